package view

import (
	"fmt"
	"io"

	"bookend/internal/answer"
	"bookend/internal/report"
)

// Own writes what users may read of a job of theirs; file is the output that they named, empty for none. Whose output a
// file is, nobody but its user knows.
func Own(w io.Writer, o answer.OwnReport, file string) {
	job := inkOf(w).in(bold, "job "+string(report.Keep(o.Job, nameWidth)))
	fmt.Fprintf(w, "%s on %s\n", job, report.Keep(o.Node, nameWidth))
	if len(o.Start) > 0 {
		own(w, "at its start:", o.Start)
	} else {
		fmt.Fprintln(w, "at its start: there is no report of it for you here")
	}
	file = string(report.Clean(file, troubleWidth))
	switch {
	case file == "":
		fmt.Fprintln(w, "its end report is the last that Bookend wrote in its output")
	case len(o.End) == 0:
		fmt.Fprintf(w, "in %s: no line of Bookend's\n", file)
	default:
		own(w, "in "+file+":", o.End)
	}
}

func own(w io.Writer, title string, lines []string) {
	fmt.Fprintln(w, title)
	for _, line := range lines {
		fmt.Fprintf(w, "  %s\n", report.Keep(line, troubleWidth))
	}
}
