package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/metrics"
)

// The simulated time: so many steps, up to a time that blocks of Prometheus' database take without complaint.
const (
	steps     = 13
	step      = 5 * time.Minute
	cards     = 4 // of each node
	cardBytes = 141 << 30
)

// fleet is many nodes of two clusters. Each figure is counted and written by the very package that the hooks use; what
// happens on a node follows from its number and the step alone.
type fleet struct {
	dir   string
	nodes int
	begin time.Time
}

func (f fleet) end() time.Time { return f.begin.Add((steps - 1) * step) }

// blocks writes the fleet's history into a database of Prometheus', and returns its folder.
func (f fleet) blocks() (string, error) {
	text := filepath.Join(f.dir, "fleet.om")
	if err := f.history(text); err != nil {
		return "", err
	}
	data := filepath.Join(f.dir, "fleet")
	_, err := command("promtool", "tsdb", "create-blocks-from", "openmetrics", text, data)
	return data, err
}

func (f fleet) history(path string) error {
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(out)
	for s := range steps {
		for n := range f.nodes {
			err = errors.Join(err, f.scrape(w, n, s))
		}
		if err != nil {
			break
		}
	}
	fmt.Fprintln(w, "# EOF")
	return errors.Join(err, w.Flush(), out.Close())
}

// scrape lets a node work through a step, and writes what a scrape then says.
func (f fleet) scrape(w *bufio.Writer, n, s int) error {
	at := f.begin.Add(time.Duration(s) * step)
	files := metrics.Files{Var: filepath.Join(f.dir, fmt.Sprintf("node-%d", n))}
	files.Textfile = filepath.Join(files.Var, "bookend.prom")
	for _, r := range works(n, s, at) {
		if err := metrics.Record(files, r); err != nil {
			return err
		}
	}
	data, err := os.ReadFile(files.Textfile)
	if err != nil {
		return err
	}
	target := fmt.Sprintf(`instance="gpu%04d:9100",job="node",cluster=%q,partition=%q`, n, []string{"alpha", "beta"}[n%2], []string{"h200", "a100", "debug"}[n%3])
	for line := range strings.Lines(string(data)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name == "#" {
			continue
		}
		if family, labels, has := strings.Cut(name, "{"); has {
			name = family + "{" + target + "," + labels
		} else {
			name += "{" + target + "}"
		}
		fmt.Fprintf(w, "%s %s %d\n", name, value, at.Unix())
	}
	return nil
}

// works is what runs on a node in a step: a job with all cards, and the health check, which a few nodes have lost.
func works(n, s int, at time.Time) []metrics.Run {
	r := metrics.Run{Version: "1.2.3", At: at, Action: config.Ignore, Mode: config.Observe, Took: time.Duration(40+n%60) * time.Millisecond}
	if n%10 == 0 {
		r.Version = "1.2.4"
	}
	if n%4 == 0 {
		r.Mode = config.Enforce
	}
	start, end, check := r, r, r
	start.Hook, end.Hook = metrics.Prolog, metrics.Epilog
	end.Took *= 7
	for card := range cards {
		start.Given = append(start.Given, given(n, card, 0))
		end.Given = append(end.Given, given(n, card, 1))
	}
	spoil(&end, n, s)
	if n%50 == 7 && s >= steps/2 {
		return []metrics.Run{start, end}
	}
	check.Hook, check.Check = metrics.HealthCheck, &metrics.Check{Took: time.Duration(90+n%30) * time.Millisecond, Cards: lying(n, s)}
	return []metrics.Run{start, end, check}
}

func uuid(n, card int) gpu.ID {
	return gpu.ID(fmt.Sprintf("GPU-%08x-0000-4000-8000-%012x", n, card))
}

func given(n, card, end int) metrics.GivenCard {
	settled := time.Duration(end*(n*37+card*11)%900) * time.Millisecond
	c := metrics.GivenCard{GPU: card, UUID: uuid(n, card), Settled: &settled}
	if end > 0 {
		gap := uint64(2 << 20)
		if n%40 == 3 {
			gap = uint64(n) << 24
		}
		c.Probe, c.Gap = gpu.ProbeOK, &gap
		if n%40 == 3 {
			c.Probe = gpu.ProbeGap
		}
	}
	return c
}

// spoil lets some jobs end badly: leftovers, drains where the node enforces, own errors where a bad configuration was pushed.
func spoil(r *metrics.Run, n, s int) {
	all := code.All()
	if (n+s)%23 == 0 {
		r.Given[n%cards].Left = uint64(n%30+1) << 27
		r.Action, r.Held = config.Warn, true
		if r.Mode == config.Enforce {
			r.Action, r.Held = config.Drain, false
		}
		r.Findings = append(r.Findings, metrics.Finding{Code: code.Orphan})
	}
	if (n*7+s)%31 == 0 {
		r.Findings = append(r.Findings, metrics.Finding{Code: all[(n+s)%len(all)].Code})
	}
	if n%5 == 1 && s > steps-4 {
		r.Findings = append(r.Findings, metrics.Finding{Code: code.BadConfig, Own: true, Detail: "line 3"})
	}
}

// lying are a node's cards between jobs.
func lying(n, s int) (all []metrics.Card) {
	for card := range cards {
		c := metrics.Card{GPU: card, UUID: uuid(n, card), Used: gpu.Bytes(0), Unexplained: gpu.Bytes(0), Leaked: gpu.Bytes(0)}
		switch {
		case (n+card+s)%17 == 0:
			size := uint64(n%40+1) << 28
			c.Used, c.Unexplained, c.Leaked = gpu.Bytes(size), gpu.Bytes(size), gpu.Bytes(size)
		case (n+card+s)%3 == 0:
			c.Used = gpu.Bytes(cardBytes / 2)
		}
		all = append(all, c)
	}
	return all
}
