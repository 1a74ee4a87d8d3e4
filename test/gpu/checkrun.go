package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"bookend/internal/record"
	"bookend/internal/state"
	"bookend/test/gpu/runrecord"
)

// checkPatience is how long slurmd waits for a health check.
const checkPatience = 60 * time.Second

// nodeCheck is one run of the health check, and what it has on runrecord.
type nodeCheck struct {
	runrecord.NodeCheck
	Findings []record.Finding
	verdict  record.Verdict
}

// nodeCheck runs the health check as slurmd does, told nothing but the node, and writes down what it made of it.
func (r *run) nodeCheck(when string) nodeCheck {
	c := nodeCheck{NodeCheck: runrecord.NodeCheck{When: when, Cards: []string{}}}
	before := r.checkLines()
	last := r.lastCheck()
	limit := checkPatience
	if r.fake > 0 {
		limit = jobPatience
	}
	cmd := must(r.site.Command("", r.site.Program("bookend-healthcheck"))) // where Slurm is, also in a root of its own
	cmd.Env = r.checkEnv()
	began := time.Now()
	late := time.AfterFunc(limit, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	out, err := cmd.CombinedOutput()
	if c.Seconds = time.Since(began).Seconds(); err != nil && cmd.ProcessState == nil {
		panic(err)
	}
	c.Said, c.Exit = string(out), cmd.ProcessState.ExitCode()
	r.takeDown(&c, last, began)
	after := r.checkLines()
	c.Lines = after[min(len(before), len(after)):]
	r.rec.HealthChecks = append(r.rec.HealthChecks, c.NodeCheck)
	return c
}

// checkEnv is the environment that slurmd gives the health check, and which configuration is this node's.
func (l *lane) checkEnv() []string {
	return []string{"SLURMD_NODENAME=" + l.node, "BOOKEND_CONFIG=" + l.site.ConfigFile(l.node)}
}

// lastCheck is the last health check on record, nil where there is none.
func (l *lane) lastCheck() *record.Check { return must(state.LastCheck.Load(l.store())) }

// takeDown reads what a check left on record, unless that is still the one before it.
func (r *run) takeDown(c *nodeCheck, before *record.Check, began time.Time) {
	memory := must(r.store().Drain())
	if memory.Last != nil && !memory.Last.Wall.Before(began) {
		c.Drain = string(memory.Last.Act) + ": " + memory.Last.Why
	}
	now := r.lastCheck()
	if now == nil || before != nil && now.At == before.At || now.Stopped {
		return
	}
	for _, reading := range now.Snapshot.Readings {
		id := string(reading.Device.ID)
		if reading.ProcessesUnknown != "" {
			continue // of this card it did not read who is on it
		}
		c.Cards = append(c.Cards, id)
		for _, p := range reading.Processes {
			c.Seen = append(c.Seen, runrecord.Occupant{GPU: id, PID: p.PID, Bytes: p.Memory.Bytes})
		}
	}
	slices.Sort(c.Cards)
	c.Findings, c.verdict, c.NodeCheck.Findings = now.Findings, now.Verdict, raw(now.Findings)
}

// checkLines are the lines of Bookend's log that health checks of this node wrote: what they say.
func (l *lane) checkLines() (said []string) {
	for _, one := range l.lines(func(one line) bool {
		return one.Program == "bookend-healthcheck" && one.Node == l.node
	}) {
		said = append(said, one.Message)
	}
	return said
}

// looked wants a check to have ended as one that could look, and to have read every card.
func (r *run) looked(c nodeCheck) {
	r.check("exit code of the check", 0, c.Exit)
	r.check("what it printed", "", c.Said)
	var all []string
	for _, card := range r.cards {
		all = append(all, card.uuid)
	}
	slices.Sort(all)
	r.check("GPUs that it read", strings.Join(all, " "), strings.Join(c.Cards, " "))
}

// clear wants a check that looked, and found nothing.
func (r *run) clear(c nodeCheck) {
	r.looked(c)
	r.check("what it found", "nothing", codesFound(c))
}

// leftAlone begins the line of a check that did nothing about a drain. Scenarios before this one had the node drained,
// and the lane resumed it: that a check says once, whatever the cards are like.
const leftAlone = "drain: left alone: "

// nothingFound wants a check that found nothing and had nothing to say of the cards.
func (r *run) nothingFound(c nodeCheck) {
	r.clear(c)
	c.Lines = slices.DeleteFunc(slices.Clone(c.Lines), func(l string) bool { return strings.HasPrefix(l, leftAlone) })
	r.check("its lines in Bookend's log", "none", linesOf(c))
}

// foundOnCard wants a check to have found this and nothing else, and policy to have made that of it.
func (r *run) foundOnCard(c nodeCheck, w leftover, action string) {
	r.looked(c)
	r.check("what it found", w.code, codesFound(c))
	var f record.Finding
	if len(c.Findings) > 0 {
		f = c.Findings[0]
	}
	r.names(f, w)
	r.check("what policy makes of it", action, string(c.verdict.Of(0).Action))
	r.sees(c, r.scene.holder.GPU, w.pid)
}

func codesFound(c nodeCheck) string {
	var all []string
	for _, f := range c.Findings {
		all = append(all, string(f.Code))
	}
	return cmp.Or(strings.Join(all, " "), "nothing")
}

func linesOf(c nodeCheck) string { return cmp.Or(strings.Join(c.Lines, "; "), "none") }

// logged wants one line of the check's in Bookend's log to have all of these.
func (r *run) logged(c nodeCheck, pieces ...string) {
	said := slices.ContainsFunc(c.Lines, func(line string) bool {
		return !slices.ContainsFunc(pieces, func(p string) bool { return !strings.Contains(line, p) })
	})
	r.holds("a line of Bookend's log has", strings.Join(pieces, ", "), linesOf(c), said)
}

// statusNames wants "bookend status" to name these codes of the last check, and no other.
func (r *run) statusNames(codes ...string) {
	out, err := r.site.Bookend(r.node, "status", "--node", r.node, "--json")
	if err != nil {
		panic(fmt.Errorf("bookend status: %w: %s", err, tail(out)))
	}
	var said struct {
		Check *struct {
			Codes []string `json:"codes"`
		} `json:"last_check"`
	}
	if err := json.Unmarshal([]byte(out), &said); err != nil {
		panic(fmt.Errorf("bookend status --json: %w: %s", err, tail(out)))
	}
	got := "no check"
	if said.Check != nil {
		got = strings.Join(said.Check.Codes, " ")
	}
	r.check("what bookend status has of the check", strings.Join(codes, " "), got)
}

// leaks wants the metrics to have the memory that a process holds on a card that no job has.
func (r *run) leaks(h *runrecord.Holder) {
	text := must(os.ReadFile(r.site.Metrics(r.node)))
	line := regexp.MustCompile(`(?m)^bookend_gpu_leaked_bytes\{.*uuid="` + regexp.QuoteMeta(h.GPU) +
		`"\} (\S+)$`).FindSubmatch(text)
	if line == nil {
		r.check("the metrics have leaked bytes of the GPU", "a figure", "none")
		return
	}
	r.bytes(*h, uint64(must(strconv.ParseFloat(string(line[1]), 64))))
}

func (r *run) inService() { r.check("the node", inService, r.service()) }

// ourReason is what the documentation of drain reasons promises: card, MiB, PID, job, and the job again.
var ourReason = regexp.MustCompile(
	`^drained: BKD-ORPHAN gpu=(\d+) (\d+)MiB pid=(\d+) job=(\d+) epilog; see: bookend show (\d+)$`)

// reasonIs wants the node to be drained for what the job left, in the words that are documented.
func (r *run) reasonIs(got string, job *job) {
	m := ourReason.FindStringSubmatch(got)
	if m == nil {
		m = make([]string, 6)
	}
	r.holds("the node's drain reason", "BKD-ORPHAN gpu=... epilog; see: bookend show "+fmt.Sprint(job.ID), got,
		m[0] != "")
	index := ""
	if len(job.GPUs) > 0 {
		index = fmt.Sprint(job.GPUs[0].Index)
	}
	r.check("GPU in it", index, m[1])
	r.bytes(*r.scene.holder, number(m[2])*mib)
	r.check("process in it", r.scene.holder.PID, m[3])
	r.check("job in it", job.ID, m[4])
	r.check("job to look up", job.ID, m[5])
}
