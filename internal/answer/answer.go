// Package answer is what the command line says: for each command one document, which it shows as text or, with --json,
// as it is: versioned, with fields that do not change their names or meaning within a version. docs/cli.md describes
// every field, and is tested against these types.
//
// Parts of a record stand in documents as they are on record. Sizes are in bytes, moments in RFC 3339; units stand in
// the names. What is not known says why, or is missing or null. Text from outside is printable ASCII: any other byte is
// \xNN. Names of others stand only in documents for root.
//
// "bookend report" says what is on record as a page for a browser: page.go, of what chart.go and lanes.go lay out.
package answer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"bookend/internal/diagnosis"
	"bookend/internal/gpu"
	"bookend/internal/report"
)

// Version is the version of the documents. Fields may be added within one; programs ignore unknown ones.
const Version = 2

// Head begins every document.
type Head struct {
	Version int  `json:"version"` // of the document's form: 2
	Kind    Kind `json:"kind"`    // which document it is
}

// Kind names a document.
type Kind string

// The documents.
const (
	KindShow      Kind = "show"
	KindStatus    Kind = "status"
	KindHistory   Kind = "history"
	KindOffenders Kind = "repeat-offenders"
	KindSnapshot  Kind = "snapshot"
	KindDoctor    Kind = "doctor"
	KindOwn       Kind = "own-report"
)

func head(k Kind) Head { return Head{Version, k} }

// Write writes a document as indented JSON.
func Write(w io.Writer, document any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(document); err != nil {
		return fmt.Errorf("write document: %w", err)
	}
	return nil
}

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

// clean makes every text of a document fit for one that somebody may look at on a terminal, and for one line. A part
// that is the record's own is cleaned there too: who makes a document has no other use for the record's texts.
func clean(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(cut(v.String()))
	case reflect.Pointer:
		if !v.IsNil() {
			clean(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				clean(v.Field(i))
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			clean(v.Index(i))
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			name, value := reflect.New(key.Type()).Elem(), reflect.New(v.Type().Elem()).Elem()
			name.Set(key)
			value.Set(v.MapIndex(key))
			clean(name)
			clean(value)
			v.SetMapIndex(key, reflect.Value{})
			v.SetMapIndex(name, value)
		}
	}
}

func cleaned[T any](document T) T {
	clean(reflect.ValueOf(&document).Elem())
	return document
}

// Terminal returns a writer that lets nothing but printable ASCII and the ends of lines through to w, and writes the
// rest as \xNN. Documents have clean texts; this is for the one that was forgotten.
// Threat: a name, or an argument, that tells an admin's terminal what to do.
func Terminal(w io.Writer) io.Writer { return terminal{w} }

type terminal struct{ w io.Writer }

// mostEscaped is how much longer a byte can become: \xNN.
const mostEscaped = 4

// Write makes terminal an io.Writer. Its count is of p's bytes.
func (t terminal) Write(p []byte) (int, error) {
	lines := strings.Split(string(p), "\n")
	for i, line := range lines {
		lines[i] = string(report.Keep(line, mostEscaped*len(line)))
	}
	if _, err := io.WriteString(t.w, strings.Join(lines, "\n")); err != nil {
		return 0, err
	}
	return len(p), nil
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

// Figure words bytes, or says that they are unknown.
func Figure(f gpu.Figure) string {
	if !f.Known() {
		return "unknown"
	}
	return diagnosis.Size(f.Bytes)
}

// textWidth is of what is quoted; a name from outside has no more than a part of it.
const textWidth = 400

func cut(text string) string { return string(report.Keep(text, textWidth)) }

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

func each[T any](list []T, word func(T) string) (words []string) {
	for _, one := range list {
		words = append(words, word(one))
	}
	return words
}

func some[T any](list []T, most int, more string, word func(T) string) []string {
	words := each(list[:min(len(list), most)], word)
	if left := len(list) - most; left > 0 {
		words = append(words, fmt.Sprintf(more, left))
	}
	return words
}
