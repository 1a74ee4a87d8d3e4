package report

import (
	"fmt"
	"strings"

	"bookend/internal/record"
	"bookend/internal/safetext"
)

// Printed returns a text as a TaskProlog writes it to its stdout, where Slurm obeys "export" and strips leading blanks.
// Nothing else may be written there.
func Printed(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		fmt.Fprintf(&b, "print | %s\n", safetext.Keep(strings.TrimSuffix(line, "\n"), Width))
	}
	return b.String()
}

// StillOpen names a job's own processes that have a GPU open at the end of its script.
func StillOpen(open []record.Process) string {
	const most = 8 // a job may have hundreds of workers
	var b strings.Builder
	for _, p := range open[:min(len(open), most)] {
		const words = "bookend: process %d (%s) still uses a GPU at the end of your script"
		fmt.Fprintf(&b, "| %s\n", safetext.Keep(fmt.Sprintf(words, p.PID, safetext.Clean(p.Name, 24)), Width))
	}
	if len(open) > most {
		fmt.Fprintf(&b, "| bookend:   and %d more\n", len(open)-most)
	}
	return b.String()
}
