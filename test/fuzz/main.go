// Command fuzz runs every native fuzz target of a module, each for a bounded time. It finds them by itself, so that no
// new one is forgotten.
//
//	fuzz [--time 10s] [--jobs 2] [--only TEXT] [--list | --keep]
//
// It is run in the root of the module. What makes a target fail is kept as an input below testdata/fuzz of its package,
// where every later go test tries it again; its path is printed. Exit codes: 0 no target failed and each executed
// something, 1 one did not, 64 usage, or targets that could not be listed.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"
)

const (
	exitWrong = 1
	exitUsage = 64
)

// plan is what is run, and how.
type plan struct {
	dir   string        // the module's root
	cache string        // where inputs are found; empty: where Go keeps them
	time  time.Duration // of each target
	jobs  int           // targets at a time, each with one worker
	only  string        // part of the name of those that are run
	list  bool          // name them, and run none
	kept  bool          // keep what was found before, and run none
}

func main() {
	p, err := read(os.Args[1:])
	var ok bool
	if err == nil {
		ok, err = p.run(os.Stdout)
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "fuzz:", err)
		os.Exit(exitUsage)
	case !ok:
		os.Exit(exitWrong)
	}
}

// maxJobs is how many targets run side by side unless more are asked for: each keeps one processor busy.
const maxJobs = 2

func read(args []string) (plan, error) {
	p := plan{dir: "."}
	flags := flag.NewFlagSet("fuzz", flag.ContinueOnError)
	flags.DurationVar(&p.time, "time", 10*time.Second, "how long each target is run")
	flags.IntVar(&p.jobs, "jobs", min(maxJobs, runtime.NumCPU()), "how many targets run at a time")
	flags.StringVar(&p.only, "only", "", "run the targets alone whose package and name contain `TEXT`")
	flags.BoolVar(&p.list, "list", false, "name the targets, and run none")
	flags.BoolVar(&p.kept, "keep", false, "copy into testdata/fuzz the few inputs, of those found before, that reach what no seed does, and run none")
	if err := flags.Parse(args); err != nil {
		return p, err
	}
	switch {
	case flags.NArg() > 0:
		return p, fmt.Errorf("unknown argument %q", flags.Arg(0))
	case p.time < time.Second || p.jobs < 1:
		return p, fmt.Errorf("--time %v, --jobs %d: want at least 1s and 1", p.time, p.jobs)
	}
	return p, nil
}

// run reports whether all went well; an error means that nobody knows.
func (p plan) run(w io.Writer) (ok bool, err error) {
	all, err := find(p.dir)
	if err != nil {
		return false, err
	}
	var chosen []target
	for _, t := range all {
		if strings.Contains(t.String(), p.only) {
			chosen = append(chosen, t)
		}
	}
	if len(chosen) == 0 {
		return false, fmt.Errorf("no fuzz target's name contains %q", p.only)
	}
	if p.list {
		for _, t := range chosen {
			fmt.Fprintln(w, t)
		}
		return true, nil
	}
	if p.kept {
		return true, p.keep(w, chosen)
	}
	return p.report(w, chosen), nil
}

const row = "%-26s %-26s %12v %10v  %s\n"

// report runs the targets, a line each as they end, and sums up.
func (p plan) report(w io.Writer, chosen []target) (ok bool) {
	fmt.Fprintf(w, row, "package", "target", "executions", "new inputs", "result")
	var executions, inputs, bad int
	for r := range p.runAll(chosen) {
		executions, inputs = executions+r.executions, inputs+r.inputs
		fmt.Fprintf(w, row, r.pkg, r.name, r.executions, r.inputs, r.result())
		if !r.ok() {
			bad++
			fmt.Fprint(w, r.said())
		}
	}
	fmt.Fprintf(w, row, fmt.Sprintf("%d targets", len(chosen)), p.time.String()+" each", executions, inputs, fmt.Sprintf("%d failed", bad))
	return bad == 0
}
