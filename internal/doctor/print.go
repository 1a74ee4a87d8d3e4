package doctor

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"bookend/internal/report"
)

// widest bounds a value of a line: paths may have 4095 bytes, but none that is used has.
const widest = 400

// Print writes one line for each result, with why and fix below where it is not well, and the count last. What a folder
// above makes wrong of others too, in the same way, is said once.
func Print(w io.Writer, results []Result) {
	also := map[int][]string{}
	for i, r := range results {
		if at := sameCause(results[:i], r); at >= 0 {
			also[at] = append(also[at], r.Check)
		}
	}
	building := false
	for i, r := range results {
		if sameCause(results[:i], r) >= 0 {
			continue
		}
		r = r.clean()
		fmt.Fprintf(w, "%-8s %-16s %s: %s\n", r.Level, r.Check, r.Path, r.Seen)
		if r.Why != "" {
			fmt.Fprintf(w, "%8s why: %s\n", "", r.Why)
		}
		if r.Fix != "" {
			fmt.Fprintf(w, "%8s fix: %s\n", "", r.Fix)
		}
		if n := len(also[i]); n > 0 {
			fmt.Fprintf(w, "%8s and for the same cause: %s\n", "", strings.Join(slices.Compact(also[i]), ", "))
		}
		building = building || fromBuild(r.Fix)
	}
	if building {
		fmt.Fprintln(w, "run fixes with bin/, configs/ or deploy/ in them in the folder in which Bookend was built")
	}
	n := count(results)
	fmt.Fprintf(w, "%d checked: %d ok, %d %s, %d wrong, %d unknown\n", len(results), n[OK], n[Warning], plural("warning", n[Warning]), n[Wrong], n[Unknown])
}

// sameCause is the index of the first result that the fix of r mends too, where it is a folder above that is wrong; -1
// where there is none.
func sameCause(before []Result, r Result) int {
	if !r.above() {
		return -1
	}
	return slices.IndexFunc(before, func(b Result) bool { return b.Level == r.Level && b.Fix == r.Fix && b.Fix != "" })
}

// PrintJSON writes the same for programs.
func PrintJSON(w io.Writer, results []Result) error {
	out := struct {
		Results []Result      `json:"results"`
		Counts  map[Level]int `json:"counts"`
	}{Counts: count(results)}
	for _, r := range results {
		out.Results = append(out.Results, r.clean())
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(out)
}

func count(results []Result) map[Level]int {
	n := map[Level]int{OK: 0, Warning: 0, Wrong: 0, Unknown: 0}
	for _, r := range results {
		n[r.Level]++
	}
	return n
}

// clean makes what came from outside fit for a terminal. A fix is a shell's line: its backslashes stay as they are.
func (r Result) clean() Result {
	r.Path, r.Seen = string(report.Clean(r.Path, widest)), string(report.Clean(r.Seen, widest))
	r.Why, r.Fix = string(report.Keep(r.Why, widest)), string(report.Keep(r.Fix, 2*widest))
	return r
}
