// Command torture runs the shipped epilog while everything that it looks up is swapped under its hands, and asks
// whether it ever wrote or read what is not its job's user's own. Then it takes one guard after another away from it:
// each time the harm must show.
//
//	torture [--writes N] [--reads N] [--swaps N] [--seed S] [--only TEXT] [--replay N [--guard NAME]]
//
// The program under test is not changed: test/intercept makes it stand still before chosen system calls, so that a swap
// falls between the look-up of a name and its use for sure; a process of the user's tries to trace and to signal the
// children that have become the user.
//
// It needs root and FUSE, and is run in the root of the tree. Exit codes: 0 nothing was breached and every guard was
// missed, 1 otherwise, 64 usage or a torture that does not work here.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"

	"bookend/test/intercept"
	"bookend/test/rig"
)

// options are what is asked for.
type options struct {
	writes, reads, swaps int
	seed                 uint64
	only                 string
	replay               int64 // -1: no
	guard                string
}

func main() {
	intercept.Serve()
	serveAsUser()
	spare()
	rig.Program("torture", func(args []string) error {
		wrong, err := run(args)
		if err == nil && len(wrong) > 0 {
			return fmt.Errorf("%w: %s", rig.ErrWrong, strings.Join(wrong, "; "))
		}
		return err
	})
}

func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("torture", flag.ContinueOnError)
	flags.IntVar(&o.writes, "writes", 20_000, "writes to a job's output, each with a swap between look-up and use")
	flags.IntVar(&o.reads, "reads", 20_000, "reads of a drop record, each with a swap between look-up and use")
	flags.IntVar(&o.swaps, "swaps", 80_000, "swaps in all")
	flags.Uint64Var(&o.seed, "seed", 1, "seed of all chance")
	flags.StringVar(&o.only, "only", "", "take away only the guards whose name contains `TEXT`; - for none")
	flags.Int64Var(&o.replay, "replay", -1, "play run `N` alone")
	flags.StringVar(&o.guard, "guard", "", "replay it without the guard `NAME`")
	if err := flags.Parse(args); err != nil {
		return o, fmt.Errorf("read arguments: %w", err)
	}
	return o, nil
}

func run(args []string) (wrong []string, err error) {
	o, err := parse(args)
	if err != nil {
		return nil, err
	}
	rack, err := newRack(o.seed)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rack.close()) }()
	if o.replay >= 0 {
		return rack.replay(o)
	}
	if wrong, err = rack.shipped(o); err != nil {
		return wrong, err
	}
	survived, err := rack.without(o.only)
	return append(wrong, survived...), err
}

// shipped tortures the epilog as it is, until all that was asked for is done.
func (r *rack) shipped(o options) (wrong []string, err error) {
	program, err := r.build(guard{})
	if err != nil {
		return nil, err
	}
	sum, err := r.torture(program, mixed, func(sum *outcome) bool {
		return sum.wrote >= o.writes && sum.read >= o.reads && sum.swaps >= o.swaps || len(sum.breaches) >= enough
	})
	if err != nil {
		return nil, err
	}
	fmt.Printf("seed %d\n", o.seed)
	sum.print(os.Stdout)
	for _, b := range sum.breaches {
		fmt.Println(b)
	}
	if len(sum.breaches) > 0 {
		wrong = append(wrong, fmt.Sprintf("%d breaches by the shipped epilog", len(sum.breaches)))
	}
	return wrong, nil
}

// enough breaches to look at.
const enough = 10

// without tortures the epilog without one guard after another, until harm shows.
func (r *rack) without(only string) (wrong []string, err error) {
	const row = "%-34s  %-18s  %s\n"
	fmt.Printf(row, "guard taken away", "harm after", "what happened")
	for _, g := range guards {
		if !strings.Contains(g.Name, only) {
			continue
		}
		runs, harm, err := r.missed(g)
		switch {
		case err != nil:
			return wrong, err
		case harm == "":
			fmt.Printf(row, g.Name, fmt.Sprintf("none in %d runs", runs), "NOTHING")
			wrong = append(wrong, fmt.Sprintf("no one misses the guard %q", g.Name))
		default:
			fmt.Printf(row, g.Name, fmt.Sprintf("%d runs", runs), harm)
		}
	}
	return wrong, nil
}

// patience is the number of runs within which harm must show.
const patience = 3000

// missed plays runs without a guard until one does harm.
func (r *rack) missed(g guard) (runs int, harm string, err error) {
	program, err := r.build(g)
	if err != nil {
		return 0, "", err
	}
	sum, err := r.torture(program, g.lane, func(sum *outcome) bool {
		return sum.harm() != "" || sum.counts["runs"] >= patience
	})
	return sum.counts["runs"], sum.harm(), err
}

// replay plays one run again.
func (r *rack) replay(o options) (wrong []string, err error) {
	var g guard
	l := mixed
	for _, known := range guards {
		if o.guard != "" && known.Name == o.guard {
			g, l = known, known.lane
		}
	}
	if g.Name != o.guard {
		return nil, fmt.Errorf("no guard %q", o.guard)
	}
	program, err := r.build(g)
	if err != nil {
		return nil, err
	}
	sum, err := r.play(program, newPlan(o.seed, uint64(o.replay), l))
	if err != nil {
		return nil, err
	}
	sum.print(os.Stdout)
	for _, b := range sum.breaches {
		wrong = append(wrong, b.String())
	}
	return wrong, nil
}
