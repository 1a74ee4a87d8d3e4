package view

import (
	"fmt"
	"io"

	"bookend/internal/report"
)

// OwnJob is what a user may read of a job of theirs.
type OwnJob struct {
	Node, Job string
	Start     []string // lines of the start report
	File      string   // the output that was named; empty for none
	Output    []string // Bookend's lines in it
}

// Own writes it. Whose output a file is, nobody but its user knows.
func Own(w io.Writer, o OwnJob) {
	fmt.Fprintf(w, "%s on %s\n", inkOf(w).in(bold, "job "+string(report.Clean(o.Job, nameWidth))), report.Clean(o.Node, nameWidth))
	if len(o.Start) > 0 {
		own(w, "at its start:", o.Start)
	} else {
		fmt.Fprintln(w, "at its start: there is no report of it for you here")
	}
	file := string(report.Clean(o.File, troubleWidth))
	switch {
	case o.File == "":
		fmt.Fprintln(w, "its end report is the last that Bookend wrote in its output: --output FILE shows it")
	case len(o.Output) == 0:
		fmt.Fprintf(w, "in %s: no line of Bookend's\n", file)
	default:
		own(w, "in "+file+":", o.Output)
	}
}

func own(w io.Writer, title string, lines []string) {
	fmt.Fprintln(w, title)
	for _, line := range lines {
		fmt.Fprintf(w, "  %s\n", report.Keep(line, troubleWidth))
	}
}
