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

var words = [][3]string{{Wrong, "ERROR", " error"}, {Unknown, "UNKNOWN", " unknown"}, {Warning, "WARNING", " warning"},
	{OK, "ok", " ok"}}

// Print writes the count, then what is not well, worst first, with why and fix below; what is well only with all.
// Checks that only lack slurm.conf are named in one line.
func Print(w io.Writer, node string, results []Result, all bool) {
	var unjudged, counts []string
	n := count(results)
	for _, l := range words {
		k, one := n[l[0]], l[2]
		if k > 1 && (l[0] == Wrong || l[0] == Warning) {
			one += "s"
		}
		if k > 0 {
			counts = append(counts, fmt.Sprint(k)+one)
		}
	}
	hint := ""
	if !all && n[OK] > 0 {
		hint = " (--all shows them)"
	}
	fmt.Fprintf(w, "%s: %s%s\n", report.Keep(node, widest), strings.Join(counts, ", "), hint)
	for _, l := range words {
		for _, r := range results {
			switch {
			case r.Level != l[0], r.Level == OK && !all:
			case r.Seen == notJudged:
				unjudged = append(unjudged, r.Check)
			default:
				printed(w, l[1], clean(r))
			}
		}
	}
	if len(unjudged) > 0 {
		fmt.Fprintln(w, "UNKNOWN "+notJudged+": "+strings.Join(unjudged, ", "))
	}
}

func printed(w io.Writer, word string, r Result) {
	fmt.Fprintf(w, "%s %s: %s: %s\n", word, r.Check, r.Path, r.Seen)
	if r.Why != "" {
		fmt.Fprintln(w, "  why: "+r.Why)
	}
	if r.Fix != "" {
		fmt.Fprintf(w, "  fix: %s\n", strings.ReplaceAll(r.Fix, "\n", "\n       "))
	}
}

func PrintJSON(w io.Writer, results []Result) error {
	var checked []Result
	for _, r := range results {
		checked = append(checked, clean(r))
	}
	return answer.Write(w, answer.NewDoctor(checked, count(results)))
}

func count(results []Result) map[string]int {
	n := map[string]int{OK: 0, Warning: 0, Wrong: 0, Unknown: 0}
	for _, r := range results {
		n[r.Level]++
	}
	return n
}

// clean makes what came from outside fit for a terminal. A fix is a shell's line, each one to paste: its backslashes
// stay as they are.
func clean(r Result) Result {
	r.Path, r.Seen = string(report.Clean(r.Path, widest)), string(report.Clean(r.Seen, widest))
	r.Why = string(report.Keep(r.Why, widest))
	lines := strings.Split(r.Fix, "\n")
	for i, l := range lines {
		lines[i] = string(report.Keep(l, 2*widest))
	}
	r.Fix = strings.Join(lines, "\n")
	return r
}
