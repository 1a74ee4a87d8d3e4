package main

import (
	"fmt"
	"slices"
	"strings"

	"bookend/test/gpu/runrecord"
)

// yardstick begins the name of the program that the others are compared with.
const yardstick = "nvidia-smi --query-gpu"

// table has a row for each program, or pair of them, and a column for each kind of machine.
type table struct {
	Kinds []string
	Rows  []*row
}

type row struct {
	Name, What string
	Cells      []string
}

// tableOf has what fill sets of each file with timings.
func (f facts) tableOf(fill func(t *runrecord.Timings, set func(name, what, cell string))) (t table) {
	files := slices.DeleteFunc(slices.Clone(f.Files), func(file runrecord.File) bool { return file.Timings == nil })
	for _, file := range files {
		t.Kinds = append(t.Kinds, file.Machine.Kind())
	}
	slices.Sort(t.Kinds)
	t.Kinds = slices.Compact(t.Kinds)
	for _, file := range files {
		fill(file.Timings, func(name, what, cell string) { t.set(file.Machine.Kind(), name, what, cell) })
	}
	return t
}

// set fills in a cell of a row, which it adds if need be; the newest wording of it counts.
func (t *table) set(kind, name, what, cell string) {
	i := slices.IndexFunc(t.Rows, func(r *row) bool { return r.Name == name })
	if i < 0 {
		i, t.Rows = len(t.Rows), append(t.Rows, &row{Name: name, Cells: slices.Repeat([]string{"-"}, len(t.Kinds))})
	}
	t.Rows[i].What, t.Rows[i].Cells[slices.Index(t.Kinds, kind)] = what, cell
}

// Programs are the medians of whole programs, and how many times one query of nvidia-smi in the same run that is.
func (f facts) Programs() table {
	return f.tableOf(func(t *runrecord.Timings, set func(name, what, cell string)) {
		once := base(t)
		for _, p := range t.Programs {
			if len(p.Millis) == 0 {
				continue
			}
			cell := fmt.Sprintf("%.1f ms", p.Median())
			if once > 0 {
				cell += fmt.Sprintf(" (%.2f)", p.Median()/once)
			}
			set(p.Name, p.What, cell)
		}
	})
}

// Pairs are the ratios of pairs of programs, and whether the goal was held.
func (f facts) Pairs() table {
	return f.tableOf(func(t *runrecord.Timings, set func(name, what, cell string)) {
		for _, p := range t.Pairs {
			ratios, held := p.Ratios(), "held"
			if len(ratios) == 0 {
				continue
			}
			if !p.Held() {
				held = "**not held**"
			}
			set(p.Name, p.What, fmt.Sprintf("%.3f (%.3f to %.3f); at most %.2f: %s", p.Ratio(), slices.Min(ratios),
				slices.Max(ratios), p.Limit, held))
		}
	})
}

// base is the median of the yardstick, 0 where it was not measured.
func base(t *runrecord.Timings) (median float64) {
	for _, p := range t.Programs {
		if strings.HasPrefix(p.Name, yardstick) {
			median = p.Median()
		}
	}
	return median
}
