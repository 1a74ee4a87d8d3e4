package doctor

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"bookend/internal/answer"
	"bookend/internal/report"
)

// widest bounds a value of a line: paths may have 4095 bytes, but none that is used has.
const widest = 400

// Print writes what is not well first, worst first, with why and fix below; then what is well, and the count last. What
// a folder above makes wrong of others too, in the same way, is said once, and so is what one file would have told.
func Print(w io.Writer, results []Result) {
	also := map[int][]string{}
	for i, r := range results {
		if at := sameCause(results, i); at >= 0 {
			also[at] = append(also[at], r.Check)
		}
	}
	for _, level := range []Level{Wrong, Unknown, Warning, OK} {
		for i, r := range results {
			if r.Level != level || sameCause(results, i) >= 0 {
				continue
			}
			r.print(w, also[i])
		}
	}
	n := count(results)
	fmt.Fprintf(w, "%d checked: %d ok, %d warning, %d wrong, %d unknown\n", len(results), n[OK], n[Warning],
		n[Wrong], n[Unknown])
}

func (r Result) print(w io.Writer, also []string) {
	r = r.clean()
	fmt.Fprintf(w, "%-8s %-16s %s: %s\n", r.Level, r.Check, r.Path, r.Seen)
	if r.Why != "" {
		fmt.Fprintln(w, "         why: "+r.Why)
	}
	if r.Fix != "" {
		lead := fmt.Sprintf("%8s fix: ", "")
		for line := range strings.Lines(r.Fix) {
			fmt.Fprintf(w, "%s%s\n", lead, strings.TrimSuffix(line, "\n"))
			lead = strings.Repeat(" ", len(lead))
		}
	}
	if len(also) > 0 {
		names := strings.Join(slices.Compact(also), ", ")
		fmt.Fprintln(w, "         and for the same cause: "+names)
	}
}

// sameCause is the index of the result that says what is wrong of results[at] too: of the check without which it could
// not be judged, or an earlier one about the same folder above. -1 if there is none.
func sameCause(results []Result, at int) int {
	r := results[at]
	if r.Seen == notJudged {
		return slices.IndexFunc(results, func(b Result) bool { return b.Check == confCheck && b.Level != OK })
	}
	if !strings.HasPrefix(r.Seen, notAlone) {
		return -1
	}
	return slices.IndexFunc(results[:at],
		func(b Result) bool { return b.Level == r.Level && b.Seen == r.Seen && b.Fix == r.Fix })
}

// PrintJSON writes the same for programs.
func PrintJSON(w io.Writer, results []Result) error {
	checked, counts := []answer.Checked{}, map[string]int{}
	for _, r := range results {
		r = r.clean()
		checked = append(checked, answer.Checked{Check: r.Check, Level: string(r.Level), Path: r.Path, Seen: r.Seen,
			Why: r.Why, Fix: r.Fix})
	}
	for level, n := range count(results) {
		counts[string(level)] = n
	}
	return answer.Write(w, answer.NewDoctor(checked, counts))
}

func count(results []Result) map[Level]int {
	n := map[Level]int{OK: 0, Warning: 0, Wrong: 0, Unknown: 0}
	for _, r := range results {
		n[r.Level]++
	}
	return n
}

// cleanFix keeps a fix's lines apart: each is one to paste.
func (r Result) cleanFix() string {
	lines := strings.Split(r.Fix, "\n")
	for i, l := range lines {
		lines[i] = string(report.Keep(l, 2*widest))
	}
	return strings.Join(lines, "\n")
}

// clean makes what came from outside fit for a terminal. A fix is a shell's line: its backslashes stay as they are.
func (r Result) clean() Result {
	r.Path, r.Seen = string(report.Clean(r.Path, widest)), string(report.Clean(r.Seen, widest))
	r.Why, r.Fix = string(report.Keep(r.Why, widest)), r.cleanFix()
	return r
}
