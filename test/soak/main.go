// Command soak drives Bookend's own judgement, from the first look to the exit code, through simulated jobs on a
// simulated node of which everything is known, and counts what it got wrong.
//
//	soak [--pairs N] [--seed S] [--workers N] [--enough N]
//	soak --replay SEED:PAIR         tells one pair's story
//
// The last two lines of every run are its seed and the first breach, with what replays it, or "none".
//
// A pair is a story of its own: two or three jobs after one another on one card, with neighbours, services, strangers,
// hooks in every order, and damage. It is right when nothing that is usable is drained, nothing that is stuck goes
// unsaid, and nobody is blamed for another's. The world is package world, which knows nothing of Bookend's judgement.
//
// Exit codes: 0 all right, 1 something was wrong, 64 usage.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"
)

const (
	exitWrong = 1
	exitUsage = 64
)

type options struct {
	pairs, seed     uint64
	workers, enough int
	replay          string
}

func main() {
	o, err := parse(os.Args[1:])
	if err == nil && o.replay != "" {
		err = replay(o.replay)
	} else if err == nil {
		os.Exit(lead(o))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(exitUsage)
	}
}

func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("soak", flag.ContinueOnError)
	flags.Uint64Var(&o.pairs, "pairs", 1_500_000, "pairs of jobs to simulate")
	flags.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano()), "seed of all chance; the time unless given")
	flags.IntVar(&o.workers, "workers", runtime.NumCPU(), "pairs played at once")
	flags.IntVar(&o.enough, "enough", 20, "failing pairs after which to stop")
	flags.StringVar(&o.replay, "replay", "", "tell the story of one pair, `SEED:PAIR`")
	if err := flags.Parse(args); err != nil {
		return o, fmt.Errorf("read arguments: %w", err)
	}
	return o, nil
}

// gcPercent lets the little that lives be collected seldom: many workers make garbage fast, and wait for each
// collection.
const gcPercent = 200

// lead runs the soak, to its end or a signal, and says what came of it.
func lead(o options) int {
	debug.SetGCPercent(gcPercent)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	fmt.Printf("seed %d\n", o.seed)
	began := time.Now()
	sum, failures := soak(ctx, o, func(done uint64) {
		fmt.Printf("%d pairs, %.0f s\n", done, time.Since(began).Seconds())
	})
	kinds := map[kind]int{}
	for _, f := range failures {
		fmt.Println(f)
		kinds[f.kind]++
	}
	fmt.Printf("%d health checks, %d runs settled without an end\n", sum.checks, sum.settled)
	fmt.Printf("%d pairs, %d hooks (%d damaged) in %.0f s: %d leaks said, "+
		"%d drains (%d of them due beyond doubt), %d owners named\n",
		sum.pairs, sum.hooks, sum.damaged, time.Since(began).Seconds(), sum.leaks, sum.drains, sum.due, sum.blamed)
	fmt.Printf("%d false drains, %d breaches, %d missed leaks, %d missed drains, %d wrongly blamed; "+
		"%d probable owners were others\n",
		kinds[falseDrain], kinds[breach], kinds[missedLeak], kinds[missedDrain], kinds[wrongBlame], sum.misguessed)
	fmt.Printf("seed %d\nfirst breach: %s\n", o.seed, first(failures))
	if len(failures) > 0 {
		return exitWrong
	}
	return 0
}

// first is the failure of the earliest pair.
func first(failures []failure) string {
	if len(failures) == 0 {
		return "none"
	}
	return failures[0].String()
}

// replay tells one story.
func replay(which string) error {
	var seed, n uint64
	if _, err := fmt.Sscanf(which, "%d:%d", &seed, &n); err != nil {
		return fmt.Errorf("read --replay %q: want SEED:PAIR: %w", which, err)
	}
	p := play(shipped(), seed, n, func(at time.Duration, text string) {
		fmt.Printf("%10.3f  %s\n", at.Seconds(), text)
	})
	fmt.Printf("%d failures\n", len(p.failures))
	return nil
}
