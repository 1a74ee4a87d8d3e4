package answer

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// OwnReport is what "bookend why" says, and "bookend show" to a user: their own job's report.
type OwnReport struct {
	Head
	Node  string   `json:"node"`
	Job   string   `json:"job"`
	Clean bool     `json:"clean"` // the GPUs were, when the job got them
	Start []string `json:"start"` // lines of the start report
	End   []string `json:"end"`   // and of the end report, or of what was seen so far
}

// NewOwnReport is its document.
func NewOwnReport(node, job string, clean bool, start, end string) OwnReport {
	lines := func(text string) []string {
		return slices.DeleteFunc(strings.Split(text, "\n"), func(l string) bool { return strings.TrimSpace(l) == "" })
	}
	return cleaned(OwnReport{Head: head(KindOwn), Node: node, Job: job, Clean: clean, Start: lines(start),
		End: lines(end)})
}

// Text writes what users may read of a job of theirs.
func (o OwnReport) Text(w io.Writer) {
	fmt.Fprintf(w, "job %s on %s\n", o.Job, o.Node)
	for i, lines := range [][]string{o.Start, o.End} {
		when := []string{"at its start", "at its end, or until now"}[i]
		if len(lines) == 0 {
			lines = []string{"nothing to tell"}
		}
		fmt.Fprintf(w, "%s:\n  %s\n", when, strings.Join(lines, "\n  "))
	}
}

// Doctor is what "bookend doctor" says.
type Doctor struct {
	Head
	Results []Checked      `json:"results"`
	Counts  map[string]int `json:"counts"` // of results by level
}

// Checked is one thing that was looked at.
type Checked struct {
	Check string `json:"check"`         // its name, as in docs/doctor.md
	Level string `json:"level"`         // ok, warning, wrong, unknown
	Path  string `json:"path"`          // or what it is about, where that is no file
	Seen  string `json:"seen"`          // what there is
	Why   string `json:"why,omitempty"` // why it matters; where it is not well
	Fix   string `json:"fix,omitempty"` // a command, or what to change
}

// NewDoctor is the document of results, whose texts are printable ASCII.
func NewDoctor(results []Checked, counts map[string]int) Doctor {
	return Doctor{head(KindDoctor), append([]Checked{}, results...), counts}
}
