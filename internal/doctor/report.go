package doctor

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"bookend/internal/safetext"
)

// Result is the result of one check.
type Result struct {
	Check string `json:"check"`         // its name, as in docs/doctor.md
	Level string `json:"level"`         // ok, warning, wrong, unknown
	Path  string `json:"path"`          // the file, or another subject of the check
	Seen  string `json:"seen"`          // the actual state
	Why   string `json:"why,omitempty"` // why it matters; only if Level is not ok
	Fix   string `json:"fix,omitempty"` // a command to run, or what to change
}

// Report is printed by "bookend doctor". Its texts are safe for a terminal.
type Report struct {
	Version int            `json:"version"`
	Kind    string         `json:"kind"`
	Results []Result       `json:"results"`
	Counts  map[string]int `json:"counts"` // of results by level

	node string
	all  bool
}

// widest bounds a value in a line: paths may have 4095 bytes, but no path in use has.
const widest = 400

// NewReport returns the report about a node, of which all makes Text write the checks that are ok, too.
func NewReport(version int, kind, node string, results []Result, all bool) Report {
	r := Report{version, kind, slices.Clone(results), map[string]int{OK: 0, Warning: 0, Wrong: 0, Unknown: 0},
		string(safetext.Keep(node, widest)), all}
	for i, one := range results {
		r.Counts[one.Level]++
		r.Results[i] = Result{one.Check, one.Level, string(safetext.Clean(one.Path, widest)),
			string(safetext.Clean(one.Seen, widest)), string(safetext.Keep(one.Why, widest)),
			string(safetext.Keep(one.Fix, 2*widest))} // a fix is to be pasted: its backslashes stay
	}
	return r
}

// Fails reports whether a result is more than a warning. What could not be checked is not known to be good.
func (r Report) Fails() bool { return r.Counts[Wrong]+r.Counts[Unknown] > 0 }

// levels are the worst first, with the words for a line and for the count.
var levels = []struct{ level, word, one, more string }{
	{Wrong, "ERROR", "error", "s"}, {Unknown, "UNKNOWN", "unknown", ""}, {Warning, "WARNING", "warning", "s"},
	{OK, "ok", "ok", ""},
}

// Text writes the count, then the problems, worst first, with why and fix below; what is ok only with all.
func (r Report) Text(w io.Writer) {
	var counts []string
	for _, l := range levels {
		if n := r.Counts[l.level]; n == 1 {
			counts = append(counts, "1 "+l.one)
		} else if n > 1 {
			counts = append(counts, fmt.Sprintf("%d %s%s", n, l.one, l.more))
		}
	}
	hint := ""
	if !r.all && r.Counts[OK] > 0 {
		hint = " (--all shows them)"
	}
	fmt.Fprintf(w, "%s: %s%s\n", r.node, strings.Join(counts, ", "), hint)
	for _, l := range levels {
		for _, one := range r.Results {
			if one.Level != l.level || one.Level == OK && !r.all {
				continue
			}
			fmt.Fprintf(w, "%s %s: %s: %s\n", l.word, one.Check, one.Path, one.Seen)
			if one.Level != OK {
				fmt.Fprintf(w, "  why: %s\n  fix: %s\n", one.Why, one.Fix)
			}
		}
	}
}
