// Package view defines the documents that the command line prints, one for each command but doctor: as text or, with
// --json, as versioned JSON. Within a version, fields keep their names and meanings. docs/cli.md describes every field
// and is tested against these types.
//
// Parts of a record appear in documents unchanged. Sizes are in bytes, times in RFC 3339; field names contain the
// units. An unknown value carries a reason, or is missing or null. Other users' names appear only in documents for
// root. Texts from outside are not cleaned here: safetext.KeepAll does that for a whole document before it is printed.
package view

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"bookend/internal/gpu"
)

// Version is the version of all documents. A version may gain fields; programs must ignore unknown ones.
const Version = 2

// Head begins every document.
type Head struct {
	Version int    `json:"version"` // version of the document's format: 2
	Kind    string `json:"kind"`    // which document this is
}

func head(kind string) Head { return Head{Version, kind} }

// Document is what a command prints, unless it prints JSON.
type Document interface{ Text(w io.Writer) }

func Write(w io.Writer, document any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(document); err != nil {
		return fmt.Errorf("write document: %w", err)
	}
	return nil
}

// OwnReport is printed by "bookend why", and by "bookend show" for users: the report of their own job.
type OwnReport struct {
	Head
	Node   string   `json:"node"`
	Job    string   `json:"job"`
	Clean  bool     `json:"clean"`  // whether the GPUs were clean when the job got them
	Start  []string `json:"start"`  // lines of the start report
	End    []string `json:"end"`    // lines of the end report, or of the findings so far
	Source string   `json:"source"` // node, spool, or sacct, which has only what Slurm knows
	state  string   // "end", or "so far" while the job runs
}

// NewOwnReport returns the document for a job's start report and its end report, or without that what was found so far.
func NewOwnReport(source, node, job string, clean bool, start, end, running string) OwnReport {
	state := "end"
	if end == "" && running != "" {
		end, state = running, "so far"
	}
	return OwnReport{head("own-report"), node, job, clean, given(strings.Split(start, "\n")...),
		given(strings.Split(end, "\n")...), source, state}
}

// Text writes the reports that users may read about their own job.
func (o OwnReport) Text(w io.Writer) {
	if o.Source == "sacct" {
		fmt.Fprintf(w, "job %s: Bookend has no report here. Slurm says:\n  %s\n", o.Job, strings.Join(o.End, "\n  "))
		return
	}
	text := func(lines []string, none string) string {
		return cmp.Or(strings.Join(append([]string{""}, lines...), "\n  "), none)
	}
	start := text(o.Start, map[bool]string{true: " clean", false: " no report"}[o.Clean])
	fmt.Fprintf(w, "job %s on %s\nstart:%s\n%s:%s\n", o.Job, o.Node, start, o.state, text(o.End, " no report"))
}

func table(w io.Writer, lines ...string) {
	var b bytes.Buffer
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, l := range lines {
		fmt.Fprintln(t, l)
	}
	t.Flush()
	for line := range strings.Lines(b.String()) {
		fmt.Fprintln(w, strings.TrimRight(line, " \n"))
	}
}

func row(cells ...string) string { return strings.Join(cells, "\t") }

// figure formats a number of bytes; "unknown" if it is not known.
func figure(f gpu.Figure) string { return f.Text("unknown") }

// amount is figure for what is left out if it is 0 or unknown.
func amount(f gpu.Figure) string {
	if f.Bytes == 0 || !f.Known() {
		return ""
	}
	return gpu.Size(f.Bytes)
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return "unknown"
	}
	return t.Local().Format(time.DateTime)
}

func day(at, now time.Time) string {
	if !at.IsZero() && at.Local().Format(time.DateOnly) == now.Local().Format(time.DateOnly) {
		return at.Local().Format(time.TimeOnly)
	}
	return stamp(at)
}

func count(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s%s", n, one, more)
}

// after returns a text behind a word, or nothing if there is no text.
func after(word, text string) string {
	if text == "" {
		return ""
	}
	return word + text
}

func given(texts ...string) []string {
	return slices.DeleteFunc(texts, func(text string) bool { return text == "" })
}

func join[T ~string](words []T, separator string) string {
	return strings.Join(each(words, func(word T) string { return string(word) }), separator)
}

func each[T, R any](list []T, of func(T) R) []R {
	out := []R{}
	for _, one := range list {
		out = append(out, of(one))
	}
	return out
}

func some[T any](list []T, most int, more string, word func(T) string) []string {
	words := each(list[:min(len(list), most)], word)
	if left := len(list) - most; left > 0 {
		words = append(words, fmt.Sprintf(more, left))
	}
	return words
}
