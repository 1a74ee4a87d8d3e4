// Command crash asks whether what the hooks keep survives whatever becomes of a hook: it runs the built hooks, as they
// are shipped, through a history of jobs on fake GPUs, and makes one system call at a time fail, do less than it was
// asked to, or be the last one before SIGKILL. After each it reads everything as the next hook would, and lets that hook
// run. Then it kills hooks at random, and at last plants mistakes in the code, one at a time, of which each must be
// noticed.
//
//	crash [--kills N] [--seed S] [--only TEXT] [--life N] [--workers N] [--faults=false] [--mutants=false]
//
// It is run as root in the root of the tree. Exit codes: 0 all was as it must be, 1 something was not, 64 usage, or
// something that keeps the run from being made.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"time"

	"bookend/test/intercept"
	"bookend/test/mountns"
)

const (
	exitWrong = 1
	exitUsage = 64
)

// errWrong says that something was not as it must be; what, is printed already.
var errWrong = errors.New("not all is as it must be")

func main() {
	intercept.Serve()
	err := mountns.Enter()
	if err == nil {
		err = work(os.Args[1:])
	}
	switch {
	case errors.Is(err, errWrong):
		fmt.Fprintln(os.Stderr, "crash:", err)
		os.Exit(exitWrong)
	case err != nil:
		fmt.Fprintln(os.Stderr, "crash:", err)
		os.Exit(exitUsage)
	}
}

// order is what is to be done.
type order struct {
	kills   int
	seed    uint64
	life    int // this one alone; -1: all
	only    string
	workers int
	faults  bool
	mutants bool
}

func parse(args []string) (o order, err error) {
	flags := flag.NewFlagSet("crash", flag.ContinueOnError)
	flags.IntVar(&o.kills, "kills", 10_000, "kills at random points, 0 for none")
	flags.Uint64Var(&o.seed, "seed", 1, "seed of all chance")
	flags.IntVar(&o.life, "life", -1, "kill in this one `LIFE` alone, and try no faults")
	flags.StringVar(&o.only, "only", "", "try the faults and mutants alone whose name contains `TEXT`, and kill nothing at random")
	flags.IntVar(&o.workers, "workers", 3*runtime.NumCPU(), "nodes side by side: most of a hook's time is waiting")
	flags.BoolVar(&o.faults, "faults", true, "try each fault")
	flags.BoolVar(&o.mutants, "mutants", true, "plant mistakes, too")
	if err := flags.Parse(args); err != nil {
		return o, fmt.Errorf("read arguments: %w", err)
	}
	return o, nil
}

func work(args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	b, err := newBench(".")
	if err != nil {
		return err
	}
	defer b.remove()
	began := time.Now()
	programs, err := b.build("programs", "")
	if err != nil {
		return err
	}
	t := newTally()
	if err := b.all(o, programs, t); err != nil {
		return err
	}
	t.print(os.Stdout)
	t.printKills(os.Stdout)
	t.printWrong(os.Stdout)
	fmt.Printf("%.0f s\n", time.Since(began).Seconds())
	if t.failures() > 0 {
		return errWrong
	}
	if o.mutants && o.life < 0 {
		return b.mutants(o)
	}
	return nil
}

// all does what is ordered with one set of programs.
func (b *bench) all(o order, programs string, t *tally) error {
	if o.life < 0 && o.faults {
		if err := b.faults(o, programs, t); err != nil {
			return err
		}
	}
	if o.only != "" {
		return nil
	}
	if o.life < 0 {
		if err := b.twoEnds(programs, t); err != nil {
			return err
		}
	}
	return b.lives(o, programs, t)
}

// faults tries every fault, then two in a row.
func (b *bench) faults(o order, programs string, t *tally) error {
	c, err := newCrew(b.folder("stands"), programs, o.workers)
	if err != nil {
		return err
	}
	trials, seen := plan(c.stands[0].steps, o.only)
	t.seen, t.single = seen, len(trials)
	if err := c.enumerate(trials, t); err != nil {
		return err
	}
	two, err := c.pairs(firsts(c.stands[0].steps, o.only), o.only)
	if err != nil {
		return err
	}
	t.double = len(two)
	return c.enumerate(two, t)
}
