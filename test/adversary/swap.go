package main

import (
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"

	"bookend/test/faultinject"
	"bookend/test/rig"
)

//go:embed guards.yaml
var guardTable []byte

// guards are taken out of the code one at a time: the harm that each of them prevents must show.
var guards = faultinject.Mutants(guardTable)

// swap is one replacement of what an epilog, or its child, looks up.
type swap struct {
	at   stop
	kind *kind
	back bool // it is undone at the next stop
}

// plan is all that chance decides of a trial: the same for the same seed and number.
type plan struct {
	seed, number uint64
	whole        bool // an epilog; otherwise only its child that appends
	known        bool // the output's inode is on record
	signal       syscall.Signal
	read         swap // of the drop record
	tail, append swap // of the output, by a child
}

func (p plan) String() string { return fmt.Sprintf("--seed %d --replay %d", p.seed, p.number) }

// newPlan draws a plan of one of these parts: "whole", "child", or "" for both. A child takes a small part of an epilog's
// time, so only one trial in five is a whole epilog.
func newPlan(seed, number uint64, part string) plan {
	r := rand.New(rand.NewPCG(seed, number))
	p := plan{seed: seed, number: number, whole: part == "whole" || part == "" && number%5 == 0}
	p.known = r.IntN(2) == 0
	p.signal = p.drawSignal(r)
	p.read = p.draw(r, dropStops, dropFile, dropFile)
	p.tail = p.draw(r, outStops[:write], outFile, outAbove) // a child that reads the output does not write
	p.append = p.draw(r, outStops, outFile, outAbove)
	return p
}

// drawSignal leaves most children alone; one that is stopped costs its epilog a second.
func (p plan) drawSignal(r *rand.Rand) syscall.Signal {
	switch n := r.IntN(400); {
	case n < 4:
		return syscall.SIGKILL
	case n < 8:
		return syscall.SIGTERM
	case n < 12:
		return syscall.SIGCONT
	case n == 12 && p.whole:
		return syscall.SIGSTOP
	}
	return 0
}

// draw picks a stop, and a kind for places from first to last. What hangs is rare: it takes a second, and nothing ends a
// child that runs alone.
func (p plan) draw(r *rand.Rand, stops []string, first, last place) swap {
	for {
		s := swap{at: stop(r.IntN(len(stops))), kind: &kinds[r.IntN(len(kinds))], back: r.IntN(3) == 0}
		k, rare := s.kind, r.IntN(10) > 0
		switch {
		case k.where < first || k.where > last || k.known && !p.known:
		case k.hangs && (!p.whole || rare):
		default:
			return s
		}
	}
}

// What swapPlan goes by.
const (
	trialsMade = "trials"
	dropReads  = "reads of the drop, each with a swap between look-up and use"
	outWrites  = "writes, each with a swap between look-up and use"
	allSwaps   = "swaps in all"
)

// swapPlan tries the epilog as it is until all that is asked for is done, then without one guard after another.
func swapPlan(flags *flag.FlagSet, args []string) (right bool) {
	writes := flags.Int("writes", 20_000, "writes to a job's output, each with a swap between look-up and use")
	reads := flags.Int("reads", 20_000, "reads of a drop record, each with a swap between look-up and use")
	swaps := flags.Int("swaps", 80_000, "swaps in all")
	seed := flags.Uint64("seed", 1, "seed of all chance")
	only := flags.String("only", "", "take out only the guards whose name contains `TEXT`; - for none")
	replay := flags.Int64("replay", -1, "play trial `N` alone")
	without := flags.String("guard", "", "replay it without the guard `NAME`")
	rig.Try(flags.Parse(args))
	if *replay >= 0 {
		return replaySwap(*seed, uint64(*replay), *without)
	}
	sum := swapTrials(faultinject.Mutant{}, *seed, 0, func(done map[string]int) bool {
		return done[outWrites] >= *writes && done[dropReads] >= *reads && done[allSwaps] >= *swaps
	})
	sum.print(os.Stdout)
	return faultinject.EachMutant(guards, *only, func(g faultinject.Mutant) string { return missed(g, *seed) }) &&
		len(sum.wrong) == 0
}

// missed makes trials without a guard until one does harm, and returns that.
func missed(guard faultinject.Mutant, seed uint64) (harm string) {
	const patience = 3000
	sum := swapTrials(guard, seed, 0, func(done map[string]int) bool { return done[trialsMade] >= patience })
	if harm = sum.harm(); harm != "" {
		harm = fmt.Sprintf("after %d trials: %s", sum.counts[trialsMade], harm)
	}
	return harm
}

func replaySwap(seed, number uint64, without string) (right bool) {
	all := append(guards, faultinject.Mutant{}) // the last one stands for all guards in place
	i := slices.IndexFunc(all, func(g faultinject.Mutant) bool { return g.Name == without })
	if i < 0 {
		panic(fmt.Errorf("no guard %q", without))
	}
	sum := swapTrials(all[i], seed, number, func(done map[string]int) bool { return done[trialsMade] > 0 })
	sum.print(os.Stdout)
	return len(sum.wrong) == 0
}

// swapTrials makes trials from a number on, as many at a time as there are processors, until done or harm.
func swapTrials(without faultinject.Mutant, seed, next uint64, done func(map[string]int) bool) *tally {
	program := filepath.Join(programs(without, "bookend-epilog"), "bookend-epilog")
	sum := newTally()
	var worlds []*world
	for range runtime.NumCPU() {
		w := newWorld()
		defer w.close()
		worlds = append(worlds, w)
	}
	draw := func() (plan, bool) {
		harm := sum.harm()
		sum.mu.Lock()
		defer sum.mu.Unlock()
		if harm != "" || without.Name == "" && len(sum.wrong) > 0 || done(sum.counts) {
			return plan{}, false
		}
		next++
		return newPlan(seed, next-1, without.Part), true
	}
	each(worlds, draw, func(w *world, p plan) {
		(&swapping{w: w, p: p, sum: sum}).try(program)
		sum.count(trialsMade, 1)
	})
	return sum
}

// stop is where a watched thread is held still on its way to a file.
type stop int

// The stops of a drop record's reading, in order: before the file is looked up, before what was found is checked, before
// it is opened through /proc/self/fd, before it is read.
const (
	pin stop = iota
	check
	reopen
	take
)

// The stops of a child that has become the user, in order: before the output is opened by its path, before fstat, before
// write.
const (
	open stop = iota
	fstat
	write
)

var (
	dropStops = []string{"before the look-up", "after the look-up", "between check and open", "between open and read"}
	outStops  = []string{"between look-up and open", "between open and fstat", "between fstat and write"}
)

// way is one process's way to one file, with the swap that is planned for it.
type way struct {
	swap
	name  string // with the stop's name what is counted
	stops []string
	all   string       // what is counted too
	next  stop         // the first one that it has not come to
	undo  func() error // nil if nothing is swapped
}

// arrive swaps if that is planned for this stop, or undoes it if that is planned to be short.
func (s *swapping) arrive(w *way, at stop) {
	w.next = at + 1
	if at == w.at || w.back && at > w.at { // a path may be opened again
		s.restore(w)
	}
	if at != w.at {
		return
	}
	k, spot := w.kind, s.w.places[w.kind.where]
	var err error
	if k.swap != nil {
		w.undo, err = k.swap(s.w, spot.path())
	} else {
		planted := filepath.Join(spot.pool, k.name)
		w.undo, err = func() error { return exchange(spot.path(), planted) }, exchange(spot.path(), planted)
	}
	if err != nil {
		w.undo = nil
		s.sum.count("swaps that failed", 1)
		return
	}
	s.hung = s.hung || k.hangs && k.where == dropFile
	for _, what := range []string{w.name + w.stops[at], w.all, allSwaps, "swapped in: " + k.name} {
		s.sum.count(what, 1)
	}
}

// restore brings back what was swapped out.
func (s *swapping) restore(w *way) {
	if w.undo == nil {
		return
	}
	switch err := w.undo(); {
	case errors.Is(err, errMade):
		s.fail(err.Error())
	case err != nil:
		s.trouble = errors.Join(s.trouble, err)
	}
	w.undo = nil
	s.sum.count(allSwaps, 1)
}
