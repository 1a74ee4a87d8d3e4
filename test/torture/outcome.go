package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

type breach struct {
	what string
	// harm: something happened that must not. Otherwise only what was to prevent it was seen missing.
	harm bool
	text string
}

func (b breach) String() string { return b.what + ": " + b.text }

type outcome struct {
	counts   map[string]int
	read     int // readings of the drop with a swap between look-up and use
	wrote    int // children that append with a swap between look-up and use
	swaps    int // and their undoing
	slowest  time.Duration
	breaches []breach
	why      error // of the last swap that failed
}

func newOutcome() *outcome { return &outcome{counts: map[string]int{}} }

func (o *outcome) count(what string, n int) { o.counts[what] += n }

func (o *outcome) breach(b ...breach) { o.breaches = append(o.breaches, b...) }

func (o *outcome) add(other *outcome) {
	for what, n := range other.counts {
		o.counts[what] += n
	}
	o.read, o.wrote, o.swaps = o.read+other.read, o.wrote+other.wrote, o.swaps+other.swaps
	o.slowest = max(o.slowest, other.slowest)
	o.breaches = append(o.breaches, other.breaches...)
	if other.why != nil {
		o.why = other.why
	}
}

// harm is the first breach by which something happened, "" for none.
func (o *outcome) harm() string {
	for _, b := range o.breaches {
		if b.harm {
			return b.String()
		}
	}
	return ""
}

func (o *outcome) print(w io.Writer) {
	row := func(what string, n int) { fmt.Fprintf(w, "%9d  %s\n", n, what) }
	row("writes, each with a swap between look-up and use", o.wrote)
	row("reads of the drop, each with a swap between look-up and use", o.read)
	row("swaps in all", o.swaps)
	various := 0
	for _, what := range slices.Sorted(maps.Keys(o.counts)) {
		if strings.HasPrefix(what, "kind ") {
			various++
			continue
		}
		row(what, o.counts[what])
	}
	row("kinds of things swapped in", various)
	fmt.Fprintf(w, "%9v  the slowest run\n", o.slowest.Round(time.Millisecond))
	row("breaches", len(o.breaches))
	for _, b := range o.breaches {
		fmt.Fprintln(w, b)
	}
}
