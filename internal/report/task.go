package report

import (
	"fmt"
	"strings"

	"bookend/internal/record"
	"bookend/internal/safetext"
)

// Printed returns a text as a TaskProlog writes it to its stdout, where Slurm obeys other words and strips blanks.
func Printed(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		fmt.Fprintf(&b, "print | %s\n", safetext.Keep(strings.TrimSuffix(line, "\n"), Width))
	}
	return b.String()
}

// StillOpen names a job's own processes that have a GPU open at the end of its script, one line for each name.
func StillOpen(open []record.Process) string {
	const most = 8 // lines
	var found []record.Finding
	for _, p := range open {
		found = append(found, record.Finding{Holder: &record.Holder{Process: p}})
	}
	groups := Scene{}.grouped(found, func(f record.Finding) string { return "name " + f.Holder.Name })
	var b strings.Builder
	for _, g := range groups[:min(len(groups), most)] {
		const words = "bookend: %s still %s a GPU at the end of your script"
		text := fmt.Sprintf(words, g.name(), g.of("uses", "use"))
		fmt.Fprintf(&b, "| %s\n", safetext.Keep(text, Width))
	}
	if len(groups) > most {
		fmt.Fprintf(&b, "| bookend:   and others, of %d more names\n", len(groups)-most)
	}
	return b.String()
}
