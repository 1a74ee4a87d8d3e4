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

// words are how the levels are told to people, the worst first.
var words = []struct {
	level     Level
	word, one string
}{{Wrong, "ERROR", "error"}, {Unknown, "UNKNOWN", "unknown"}, {Warning, "WARNING", "warning"}, {OK, "ok", "ok"}}

// Print writes the count, then what is not well, worst first, with why and fix below; what is well only with all.
// Checks
// that only lack slurm.conf are named in one line.
func Print(w io.Writer, node string, results []Result, all bool) {
	var unjudged, counts []string
	n := count(results)
	for _, l := range words {
		switch k := n[string(l.level)]; {
		case k > 1 && l.level != OK && l.level != Unknown:
			counts = append(counts, fmt.Sprintf("%d %ss", k, l.one))
		case k > 0:
			counts = append(counts, fmt.Sprintf("%d %s", k, l.one))
		}
	}
	hint := ""
	if !all && n[string(OK)] > 0 {
		hint = " (--all shows them)"
	}
	fmt.Fprintf(w, "%s: %s%s\n", report.Keep(node, widest), strings.Join(counts, ", "), hint)
	for _, l := range words {
		for _, r := range results {
			switch {
			case r.Level != l.level, r.Level == OK && !all:
			case r.Seen == notJudged:
				unjudged = append(unjudged, r.Check)
			default:
				r.print(w, l.word)
			}
		}
	}
	if len(unjudged) > 0 {
		fmt.Fprintln(w, "UNKNOWN "+notJudged+": "+strings.Join(unjudged, ", "))
	}
}

func (r Result) print(w io.Writer, word string) {
	r = r.clean()
	fmt.Fprintf(w, "%s %s: %s: %s\n", word, r.Check, r.Path, r.Seen)
	if r.Why != "" {
		fmt.Fprintln(w, "  why: "+r.Why)
	}
	if r.Fix != "" {
		fmt.Fprintf(w, "  fix: %s\n", strings.ReplaceAll(r.Fix, "\n", "\n       "))
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
