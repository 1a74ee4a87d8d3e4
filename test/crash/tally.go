package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
)

// shown is how many failures of a run are printed.
const shown = 20

// tally counts what became of trials and kills; many workers add to it.
type tally struct {
	mu      sync.Mutex
	classes map[class]int
	calls   map[string]map[string]int // call, fault
	wrong   map[string]int            // by kind
	failed  []string

	seen, single, double int               // calls of the history, trials with one fault and with two
	events               int               // hooks of lives
	kills                map[victim][2]int // whether the hook's part is on record all the same
}

func newTally() *tally {
	return &tally{
		classes: map[class]int{}, calls: map[string]map[string]int{},
		wrong: map[string]int{}, kills: map[victim][2]int{},
	}
}

// add counts a trial.
func (t *tally) add(tr trial, v verdict) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.classes[v.class]++
	for _, f := range tr.faults {
		if t.calls[f.call] == nil {
			t.calls[f.call] = map[string]int{}
		}
		t.calls[f.call][f.fault.name]++
	}
	t.fail(v.wrong, fmt.Sprintf("--only %q", tr.String()))
}

// event counts a hook of a life.
func (t *tally) event(e event, replay string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.hook != "" {
		t.events++
	}
	if e.killed != alive {
		n := t.kills[e.killed]
		if e.fresh {
			n[1]++
		} else {
			n[0]++
		}
		t.kills[e.killed] = n
	}
	t.fail(e.wrong, replay)
}

// fail notes what must not be; the lock is held.
func (t *tally) fail(wrong []string, replay string) {
	for _, w := range wrong {
		kind, _, _ := strings.Cut(w, ":")
		t.wrong[kind]++
		t.failed = append(t.failed, fmt.Sprintf("%s (%s)", w, replay))
	}
}

func (t *tally) failures() int { return len(t.failed) }

// print writes what was tried, and what became of it.
func (t *tally) print(w io.Writer) {
	fmt.Fprintf(w, "%d calls of the hooks touch what they keep; %d faults were tried, and %d pairs of two\n",
		t.seen, t.single, t.double)
	for _, c := range sorted(t.classes) {
		fmt.Fprintf(w, "%-28s %d\n", c+":", t.classes[c])
	}
	for _, call := range sorted(t.calls) {
		fmt.Fprintf(w, "%-12s %v\n", call, t.calls[call])
	}
	t.printKills(w)
}

// printKills writes what became of kills at random points, and what must not be.
func (t *tally) printKills(w io.Writer) {
	all := 0
	for _, v := range sorted(t.kills) {
		n := t.kills[v]
		all += n[0] + n[1]
		fmt.Fprintf(w, "killed %-34s %6d: old state %d, new state %d\n", v, n[0]+n[1], n[0], n[1])
	}
	fmt.Fprintf(w, "kills: %d among %d hooks\n", all, t.events)
	for _, kind := range []string{corrupt, lost, falseDrain, mixture, unsaid, litter, others, badExit} {
		fmt.Fprintf(w, "%-28s %d\n", kind+":", t.wrong[kind])
	}
	for _, f := range t.failed[:min(shown, len(t.failed))] {
		fmt.Fprintf(w, "FAILED %s\n", f)
	}
}

func sorted[K cmp.Ordered, V any](m map[K]V) []K {
	all := make([]K, 0, len(m))
	for k := range m {
		all = append(all, k)
	}
	slices.Sort(all)
	return all
}
