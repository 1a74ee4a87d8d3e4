package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// tally counts what became of the trials. Several workers add to it.
type tally struct {
	mu     sync.Mutex
	began  time.Time
	counts map[string]int
	wrong  []string // what must not happen: its kind, a colon, what happened, how to replay it
}

func newTally() *tally { return &tally{began: time.Now(), counts: map[string]int{}} }

func (t *tally) count(what string, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts[what] += n
}

func (t *tally) fail(replay string, wrong ...string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, w := range wrong {
		kind, _, _ := strings.Cut(w, ":")
		t.counts[kind]++
		t.wrong = append(t.wrong, w+" ("+replay+")")
	}
}

// harm is the first harm that was done, "" for none. What only keeps a trial from seeing harm is none.
func (t *tally) harm() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.IndexFunc(t.wrong, func(w string) bool { return !strings.HasPrefix(w, blind+":") })
	if i < 0 {
		return ""
	}
	return t.wrong[i]
}

// blind is the kind of what keeps a trial from seeing harm.
const blind = "nothing seen"

func (t *tally) print(w io.Writer) {
	for _, what := range slices.Sorted(maps.Keys(t.counts)) {
		fmt.Fprintf(w, "%9d  %s\n", t.counts[what], what)
	}
	fmt.Fprintf(w, "%9d  wrong, in %.0f s\n", len(t.wrong), time.Since(t.began).Seconds())
	for _, failed := range t.wrong[:min(20, len(t.wrong))] {
		fmt.Fprintf(w, "FAILED %s\n", failed)
	}
}
