package main

import (
	"fmt"
	"slices"
	"strings"
)

// alike are points that differ in their number alone, or in which of many old runs they are about.
type alike struct {
	hook hookName
	point
}

// sampled are how many of those that are alike are tried: the first ones and the last one.
const sampled = 3

// plan lists the trials of every step but the last, which shows what the one before it left. seen counts the calls. All
// that fits is tried at the first of the calls that are alike, the likeliest at some more.
func plan(steps []reference, only string) (trials []trial, seen int) {
	before := map[alike]bool{} // in an earlier step
	for i, r := range steps[:len(steps)-1] {
		seen += len(r.points)
		count, met := map[alike]int{}, map[alike]int{}
		for _, p := range r.points {
			count[r.kind(p)]++
		}
		for _, p := range r.points {
			k := r.kind(p)
			met[k]++
			for _, f := range worth(p, met[k], count[k], before[k]) {
				if t := (trial{i, p, f}); strings.Contains(t.String(), only) {
					trials = append(trials, t)
				}
			}
		}
		for k := range count {
			before[k] = true
		}
	}
	return trials, seen
}

func (r reference) kind(p point) alike {
	p.nth, p.class = 0, strings.ReplaceAll(p.class, fmt.Sprint(r.run.id), "OWN")
	return alike{r.hook, p}
}

// worth are the faults to try at the n-th of some points that are alike.
func worth(p point, n, of int, before bool) []fault {
	all := p.faults()
	switch {
	case n > sampled && n != of:
		return nil
	case n == 1 && !before:
		return all
	case p.call == "openat" && p.write, slices.Contains(changing, p.call):
		// a kill between two changes leaves the same, wherever it is
		return slices.DeleteFunc(all, func(f fault) bool { return f.name != all[0].name && !f.kills })
	case n == 1:
		return all[:1]
	}
	return nil
}
