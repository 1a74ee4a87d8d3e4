package main

import (
	"fmt"
	"slices"
	"strings"

	"bookend/test/gpu/record"
)

// test is one test allocation, with where it was made.
type test struct {
	from string
	record.Test
}

// tests are all test allocations of a set of scenarios: the lane's own, and of every job its end's.
func tests(all []*scenario) []test {
	var found []test
	for _, s := range all {
		for _, r := range s.runs {
			for _, j := range r.Jobs {
				if j.End == nil {
					continue
				}
				for _, p := range j.End.Probes {
					found = append(found, test{r.from, record.Test{What: epilogs, Probe: p}})
				}
			}
			for _, t := range r.Tests {
				found = append(found, test{r.from, t})
			}
		}
	}
	return found
}

const epilogs = "by the epilog"

// testTable renders all test allocations, those of one record that asked the same and came to the same together.
func testTable(all []*scenario) string {
	groups := map[string][]test{}
	var order []string
	for _, t := range tests(all) {
		if t.Chunk > 0 {
			continue // has a table of its own
		}
		key := t.from + "|" + t.What + "|" + t.Probe.Result
		if groups[key] == nil {
			order = append(order, key)
		}
		groups[key] = append(groups[key], t)
	}
	if len(order) == 0 {
		return ""
	}
	slices.SortStableFunc(order, func(a, b string) int { return strings.Compare(a[:1], b[:1]) })
	var b strings.Builder
	for _, key := range order {
		b.WriteString(testRow(groups[key]))
	}
	return head("tests") + b.String()
}

func testRow(group []test) string {
	first := group[0]
	of := func(say func(record.Probe) float64) []float64 {
		var all []float64
		for _, t := range group {
			all = append(all, say(t.Probe))
		}
		return all
	}
	if first.Probe.Result == "skipped" {
		return fmt.Sprintf("| %s | %s | %d | skipped: %s | - | - | - | - | - | - | - |\n", first.from, first.What,
			len(group), reasons(group))
	}
	return fmt.Sprintf("| %s | %s | %d | %s | %s | %s | %s | %s | %s | %s | %s |\n", first.from, first.What,
		len(group), first.Probe.Result,
		between(of(func(p record.Probe) float64 { return inMiB(p.Free) }), "MiB"),
		between(of(func(p record.Probe) float64 { return inMiB(p.Largest) }), "MiB"),
		between(of(func(p record.Probe) float64 { return inMiB(p.Free - min(p.Free, p.Largest)) }), "MiB"),
		between(of(func(p record.Probe) float64 { return float64(p.Attempts) }), ""),
		middle(of(func(p record.Probe) float64 { return p.Init })), middle(of(func(p record.Probe) float64 { return p.Search })),
		middle(of(func(p record.Probe) float64 { return p.Release })))
}

// reasons are why tests were not made, without what differs from run to run.
func reasons(group []test) string {
	var all []string
	for _, t := range group {
		if why := strings.TrimRight(oneLine(t.Probe.Why), "0123456789 :"); !slices.Contains(all, why) {
			all = append(all, why)
		}
	}
	return strings.Join(all, " *or* ")
}

func inMiB(bytes uint64) float64 { return float64(bytes) / (1 << 20) }

// between words the range of some figures.
func between(all []float64, unit string) string {
	word := func(v float64) string { return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0") }
	low, high := word(slices.Min(all)), word(slices.Max(all))
	if low != high {
		low += " to " + high
	}
	return strings.TrimSpace(low + " " + unit)
}

func middle(millis []float64) string {
	return fmt.Sprintf("%.0f ms", record.Timing{Millis: millis}.Median())
}

// holeTable renders what was measured of another process's holes.
func holeTable(all []*scenario) string {
	var b strings.Builder
	for _, t := range tests(all) {
		if t.Chunk == 0 {
			continue
		}
		p := t.Probe
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", t.from, blocksOf(t.Chunk),
			between([]float64{inMiB(t.Kept)}, "MiB"),
			between([]float64{inMiB(p.Free)}, "MiB"), between([]float64{inMiB(p.Largest)}, "MiB"),
			between([]float64{inMiB(p.Free - min(p.Free, p.Largest))}, "MiB"))
	}
	return under("holes", b.String())
}

func blocksOf(bytes uint64) string {
	if bytes < 1<<20 {
		return fmt.Sprintf("%d KiB", bytes>>10)
	}
	return fmt.Sprintf("%d MiB", bytes>>20)
}

// healthTable renders the condition of each card, as the first job of a record that has it.
func healthTable(all []*scenario) string {
	seen := map[string]bool{}
	var b strings.Builder
	for _, s := range all {
		for _, r := range s.runs {
			for _, j := range r.Jobs {
				for _, e := range ends(j) {
					for _, h := range e.Health {
						if key := r.from + h.GPU; !seen[key] {
							seen[key] = true
							fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", r.from, h.GPU, facts(h),
								orDash(oneLine(h.Accounting)))
						}
					}
				}
			}
		}
	}
	return under("health", b.String())
}

func facts(h record.Health) string {
	var all []string
	for _, f := range h.Facts {
		value := f.Value
		if f.Unknown != "" {
			value = "unknown: " + f.Unknown
		}
		all = append(all, f.Code+" "+oneLine(value))
	}
	return orDash(strings.Join(all, ", "))
}
