// Command monitoring tries Bookend's metrics with the programs that read them: Prometheus and node_exporter, from Debian's
// packages, on this machine's loopback alone. Hooks on fake GPUs write the textfile, node_exporter serves it, Prometheus scrapes
// it and is asked; promtool checks file and rules; every panel of the dashboard is evaluated on figures of many simulated nodes.
//
// usage: monitoring [-programs bin] [-nodes N] [-only TEXT], as root; install-prometheus.sh installs what it needs
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"bookend/test/cluster"
)

// bench is what the checks share.
type bench struct {
	dir      string // scratch, root's all the way up
	programs string // of Bookend's, in it
	nodes    int    // simulated ones
	only     string
}

// checks are tried in this order, all of them.
var checks = []struct {
	what string
	try  func(*bench) error
}{
	{"the rules are well formed, and each alert fires when it must and else is silent", (*bench).rules},
	{"a mistake planted in any alert is noticed", (*bench).planted},
	{"hooks on fake GPUs are scraped through node_exporter, figure for figure", (*bench).scraped},
	{"each panel of the dashboard has data of many nodes, and few lines", (*bench).dashboard},
}

func main() {
	b := &bench{}
	flag.StringVar(&b.programs, "programs", "bin", "folder of the built programs (make build)")
	flag.IntVar(&b.nodes, "nodes", 100, "simulated nodes for the dashboard")
	flag.StringVar(&b.only, "only", "", "try only the checks whose title has this text")
	flag.Parse()
	if err := b.run(); err != nil {
		fmt.Fprintln(os.Stderr, "monitoring:", err)
		os.Exit(1)
	}
}

func (b *bench) run() (err error) {
	if err := cluster.SweepDead(); err != nil {
		return err
	}
	if b.dir, err = cluster.Scratch(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cluster.Remove(b.dir)) }()
	if err := b.install(); err != nil {
		return err
	}
	failed := 0
	for _, c := range checks {
		if !strings.Contains(c.what, b.only) {
			continue
		}
		begin := time.Now()
		if err := c.try(b); err != nil {
			failed++
			fmt.Printf("FAILED  %s: %v\n", c.what, err)
			continue
		}
		fmt.Printf("ok      %s (%.1f s)\n", c.what, time.Since(begin).Seconds())
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d checks failed", failed, len(checks))
	}
	return nil
}

// install copies the programs to where only root can write, as their owner demands.
func (b *bench) install() error {
	to := filepath.Join(b.dir, "libexec")
	if err := os.Mkdir(to, 0o755); err != nil {
		return err
	}
	for _, name := range []string{"bookend-prolog", "bookend-epilog", "bookend-healthcheck", "bookend-gpu"} {
		data, err := os.ReadFile(filepath.Join(b.programs, name))
		if err != nil {
			return fmt.Errorf("install: %w (make build)", err)
		}
		if err := os.WriteFile(filepath.Join(to, name), data, 0o755); err != nil {
			return err
		}
	}
	b.programs = to
	return nil
}

// command runs a program to its end and returns all that it wrote.
func command(name string, args ...string) (string, error) {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s", name, err, out)
	}
	return string(out), err
}
