package view

import (
	"fmt"
	"io"

	"bookend/internal/report"
)

// Own writes what a user may read of a job of theirs: lines of the start report, and those that its output has.
func Own(w io.Writer, node, job string, start, output []string) {
	fmt.Fprintf(w, "%s on %s\n", inkOf(w).in(bold, "job "+string(report.Clean(job, nameWidth))), report.Clean(node, nameWidth))
	for _, part := range []struct {
		title string
		lines []string
	}{{"at its start:", start}, {"in its output:", output}} {
		if len(part.lines) == 0 {
			continue
		}
		fmt.Fprintln(w, part.title)
		for _, line := range part.lines {
			fmt.Fprintf(w, "  %s\n", report.Keep(line, troubleWidth))
		}
	}
	if len(output) == 0 {
		fmt.Fprintln(w, "its end report is the last that Bookend wrote in its output: --output FILE shows it")
	}
}
