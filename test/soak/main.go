// Command soak drives Bookend's own judgement, from the first look to the exit code, through simulated jobs on a
// simulated node of which everything is known, and counts what it got wrong.
//
//	soak [--pairs N] [--seed S] [--enough N] [--every DURATION]
//	soak --replay SEED:PAIR [--every DURATION]
//	soak --mutants [--pairs N] [--seed S] [--only TEXT]
//
// The second tells one pair's story; the last asks, in the root of the tree, whether the soak would notice mistakes.
// The last two lines of every run are its seed and the first breach, with what replays it, or "none".
//
// A pair is a story of its own: two or three jobs after one another on one card, with neighbours, services, strangers,
// hooks in every order, and damage. It is right when nothing that is usable is drained, nothing that is stuck goes
// unsaid, and nobody is blamed for another's. The world is package world, which knows nothing of Bookend's judgement.
//
// Exit codes: 0 all right, 1 something was wrong, or a mistake was not noticed, 64 usage, or a mistake that cannot be
// planted any more because its line has changed.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"bookend/test/rig"
)

type options struct {
	pairs, seed uint64
	enough      int
	every       time.Duration // between two samples of the recorder's
	replay      string
	mutants     bool
	only        string
}

func main() {
	var o options
	flag.CommandLine.Init("soak", flag.ContinueOnError)
	flag.Uint64Var(&o.pairs, "pairs", 1_500_000, "pairs of jobs to simulate")
	flag.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano()), "seed of all chance; the time unless given")
	flag.IntVar(&o.enough, "enough", 20, "failing pairs after which to stop")
	flag.DurationVar(&o.every, "every", drawn, "between two samples, -1s for no recorder; each pair draws its own unless given")
	flag.StringVar(&o.replay, "replay", "", "tell the story of one pair, `SEED:PAIR`")
	flag.BoolVar(&o.mutants, "mutants", false, "plant mistakes in the judgement, each of which must be noticed")
	flag.StringVar(&o.only, "only", "", "plant the mistakes alone whose name contains `TEXT`")
	err := flag.CommandLine.Parse(os.Args[1:])
	if err == nil && o.mutants {
		right := false
		if err := rig.Attempt(func() { right = mutants(o) }); err != nil {
			fmt.Fprintln(os.Stderr, "soak:", err)
			os.Exit(64)
		}
		os.Exit(map[bool]int{true: 0, false: 1}[right])
	}
	if err == nil && o.replay == "" {
		os.Exit(lead(o))
	}
	var n uint64
	if _, wrong := fmt.Sscanf(o.replay, "%d:%d", &o.seed, &n); err != nil || wrong != nil {
		fmt.Fprintln(os.Stderr, "soak: want --replay SEED:PAIR:", err, wrong)
		os.Exit(64)
	}
	p := play(shipped(o.every), o.seed, n, func(at time.Duration, text string) {
		fmt.Printf("%10.3f  %s\n", at.Seconds(), text)
	})
	fmt.Printf("%d failures\n", len(p.failures))
}

// gcPercent lets the little that lives be collected seldom: many workers make garbage fast, and wait for each
// collection.
const gcPercent = 3200

// lead runs the soak, to its end or a signal, and says what came of it.
func lead(o options) (exit int) {
	debug.SetGCPercent(gcPercent)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	rate := map[time.Duration]string{drawn: "as drawn", never: "never"}[o.every]
	fmt.Printf("seed %d, samples %s\n", o.seed, cmp.Or(rate, "every "+o.every.String()))
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
		"%d drains (%d of them due beyond doubt, %d of them for a GPU's condition), %d owners named\n",
		sum.pairs, sum.hooks, sum.damaged, time.Since(began).Seconds(), sum.leaks, sum.drains, sum.due, sum.faults, sum.blamed)
	fmt.Printf("%d owners (%.1f %%) named by exclusive use alone (%d of processes that samples saw in a job's cgroup), "+
		"%d of %d (%.1f %%) where Slurm tracks by cgroup; %d jobs that samples saw on others' GPUs\n",
		sum.guessed, percent(sum.guessed, sum.blamed), sum.unproven,
		sum.unwitnessed, sum.tracked, percent(sum.unwitnessed, sum.tracked), sum.recorded)
	fmt.Printf("%d ends with remains in shared memory, %d of them certain of who left them\n", sum.leftovers, sum.certain)
	fmt.Printf("%d false drains, %d breaches, %d missed leaks, %d missed drains, %d wrongly blamed; "+
		"%d probable owners were others\n",
		kinds[falseDrain], kinds[breach], kinds[missedLeak], kinds[missedDrain], kinds[wrongBlame], sum.misguessed)
	first := "none"
	if len(failures) > 0 {
		first, exit = failures[0].String(), 1
	}
	fmt.Printf("seed %d\nfirst breach: %s\n", o.seed, first)
	return exit
}

func percent(some, all uint64) float64 { return 100 * float64(some) / float64(max(1, all)) }

// soak plays the pairs of a seed, on several processors, until they are done, enough is seen to fail, or the context
// ends. The failures come in the order of their pairs.
func soak(ctx context.Context, o options, each func(done uint64)) (sum tally, failures []failure) {
	var next, failed atomic.Uint64
	var lock sync.Mutex
	var all sync.WaitGroup
	cfg := shipped(o.every)
	for range runtime.NumCPU() {
		all.Go(func() {
			var own tally
			for failed.Load() < uint64(o.enough) && ctx.Err() == nil {
				n := next.Add(1) - 1
				if n >= o.pairs {
					break
				}
				p := play(cfg, o.seed, n, nil)
				own.add(p.tally)
				if len(p.failures) > 0 {
					failed.Add(1)
					lock.Lock()
					failures = append(failures, p.failures...)
					lock.Unlock()
				}
				if n%100000 == 99999 && each != nil {
					each(n + 1)
				}
			}
			lock.Lock()
			defer lock.Unlock()
			sum.add(own)
		})
	}
	all.Wait()
	if sum.guessesBadly() {
		what := fmt.Sprintf("%d of %d", sum.misguessed, sum.blamed)
		failures = append(failures, failure{o.seed, sum.misguessedAt, badGuesses, what})
	}
	slices.SortStableFunc(failures, func(a, b failure) int { return cmp.Compare(a.n, b.n) })
	return sum, failures
}
