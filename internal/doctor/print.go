package doctor

import (
	"fmt"
	"io"
	"strings"

	"bookend/internal/answer"
	"bookend/internal/report"
)

// widest bounds a value of a line: paths may have 4095 bytes, but none that is used has.
const widest = 400

// Print writes what is not well first, worst first, with why and fix below; then what is well, and the count last. Checks
// that only lack slurm.conf are named in one line.
func Print(w io.Writer, results []Result) {
	var unjudged []string
	for _, level := range []Level{Wrong, Unknown, Warning, OK} {
		for _, r := range results {
			switch {
			case r.Level != level:
			case r.Seen == notJudged:
				unjudged = append(unjudged, r.Check)
			default:
				r.print(w)
			}
		}
	}
	if len(unjudged) > 0 {
		line := "unknown  " + notJudged + ": " + strings.Join(unjudged, ", ")
		fmt.Fprintln(w, line)
	}
	n := count(results)
	fmt.Fprintf(w, "%d checked: %d ok, %d warning, %d wrong, %d unknown\n", len(results), n["ok"], n["warning"],
		n["wrong"], n["unknown"])
}

func (r Result) print(w io.Writer) {
	r = r.clean()
	fmt.Fprintf(w, "%-8s %-16s %s: %s\n", r.Level, r.Check, r.Path, r.Seen)
	if r.Why != "" {
		fmt.Fprintln(w, "         why: "+r.Why)
	}
	if r.Fix != "" {
		fmt.Fprintf(w, "         fix: %s\n", strings.ReplaceAll(r.Fix, "\n", "\n              "))
	}
}

// PrintJSON writes the same for programs.
func PrintJSON(w io.Writer, results []Result) error {
	checked := []answer.Checked{}
	for _, r := range results {
		r = r.clean()
		checked = append(checked, answer.Checked{Check: r.Check, Level: string(r.Level), Path: r.Path, Seen: r.Seen,
			Why: r.Why, Fix: r.Fix})
	}
	return answer.Write(w, answer.NewDoctor(checked, count(results)))
}

func count(results []Result) map[string]int {
	n := map[string]int{"ok": 0, "warning": 0, "wrong": 0, "unknown": 0}
	for _, r := range results {
		n[string(r.Level)]++
	}
	return n
}

// clean makes what came from outside fit for a terminal. A fix is a shell's line, each one to paste: its backslashes
// stay as they are.
func (r Result) clean() Result {
	r.Path, r.Seen = string(report.Clean(r.Path, widest)), string(report.Clean(r.Seen, widest))
	r.Why = string(report.Keep(r.Why, widest))
	lines := strings.Split(r.Fix, "\n")
	for i, l := range lines {
		lines[i] = string(report.Keep(l, 2*widest))
	}
	r.Fix = strings.Join(lines, "\n")
	return r
}
