package doctor

import (
	"encoding/json"
	"fmt"
	"io"

	"bookend/internal/report"
)

// widest bounds a value of a line: paths may have 4095 bytes, but none that is used has.
const widest = 400

// Print writes one line for each result, with why and fix below where it is not well, and the count last.
func Print(w io.Writer, results []Result) {
	for _, r := range results {
		r = r.clean()
		fmt.Fprintf(w, "%-8s %-16s %s: %s\n", r.Level, r.Check, r.Path, r.Seen)
		if r.Why != "" {
			fmt.Fprintf(w, "%8s why: %s\n", "", r.Why)
		}
		if r.Fix != "" {
			fmt.Fprintf(w, "%8s fix: %s\n", "", r.Fix)
		}
	}
	n := count(results)
	fmt.Fprintf(w, "%d checked: %d ok, %d warnings, %d wrong, %d unknown\n", len(results), n[OK], n[Warning], n[Wrong], n[Unknown])
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
