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

// tally counts what became of trials; many workers add to it.
type tally struct {
	mu      sync.Mutex
	classes map[class]int
	calls   map[string]map[string]int // call, fault
	wrong   map[string]int            // by kind
	failed  []string

	seen, tried int // calls of the history, trials
}

func newTally() *tally {
	return &tally{classes: map[class]int{}, calls: map[string]map[string]int{}, wrong: map[string]int{}}
}

// add counts a trial.
func (t *tally) add(tr trial, v verdict) {
	t.mu.Lock()
	t.classes[v.class]++
	if t.calls[tr.call] == nil {
		t.calls[tr.call] = map[string]int{}
	}
	t.calls[tr.call][tr.fault.name]++
	t.mu.Unlock()
	t.fail(v.wrong, fmt.Sprintf("--only %q", tr.String()))
}

// fail notes what must not be.
func (t *tally) fail(wrong []string, replay string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, w := range wrong {
		kind, _, _ := strings.Cut(w, ":")
		t.wrong[kind]++
		t.failed = append(t.failed, fmt.Sprintf("%s (%s)", w, replay))
	}
}

func (t *tally) failures() int { return len(t.failed) }

// print writes what was tried, what became of it, and what must not be.
func (t *tally) print(w io.Writer) {
	fmt.Fprintf(w, "%d calls of the hooks touch what they keep; %d faults were tried\n", t.seen, t.tried)
	for _, c := range sorted(t.classes) {
		fmt.Fprintf(w, "%-28s %d\n", c+":", t.classes[c])
	}
	for _, call := range sorted(t.calls) {
		fmt.Fprintf(w, "%-12s %v\n", call, t.calls[call])
	}
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
