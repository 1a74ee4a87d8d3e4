// Package answer is what the command line says to programs: for each command with --json one document, versioned, with
// fields that do not change their names or meaning within a version. docs/cli.md describes every field, and is tested
// against these types.
//
// Sizes are in bytes, durations in seconds, moments in RFC 3339 (UTC); units stand in the names. What is not known is
// null, and "unknown" of the same object says why, by the field's name. Text from outside is printable ASCII: any other
// byte is \xNN. Names of others stand only in documents for root.
package answer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strings"
	"text/tabwriter"
	"time"

	"bookend/internal/config"
	"bookend/internal/diagnosis"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/report"
)

// Version is the version of the documents. Fields may be added within one; a program ignores those that it does not
// know.
const Version = 1

// Head begins every document.
type Head struct {
	Version int  `json:"version"` // of the document's form: 1
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
	KindBaseline  Kind = "baseline"
	KindConfig    Kind = "config-check"
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

// Unknown says of an object's fields that are null why that is, by the field's name.
type Unknown map[string]string

// bytes is a figure as a field of this name.
func (u *Unknown) bytes(field string, f gpu.Figure) *uint64 {
	if f.Known() {
		return &f.Bytes
	}
	u.because(field, f.Unknown)
	return nil
}

// moment is a wall time as a field of this name.
func (u *Unknown) moment(field string, t time.Time) *time.Time {
	m := moment(t)
	if m == nil {
		u.because(field, "the record does not say")
	}
	return m
}

func (u *Unknown) because(field, why string) {
	if *u == nil {
		*u = Unknown{}
	}
	(*u)[field] = why
}

// clean makes every text of a document fit for one that somebody may look at on a terminal, and for one line. A part
// that is the record's own is cleaned there too: who makes a document has no other use for the record's texts.
func clean(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(string(report.Keep(v.String(), textWidth)))
	case reflect.Pointer:
		if !v.IsNil() && v.Type() != reflect.TypeFor[*time.Time]() {
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

// cleaned is a document whose texts are clean.
func cleaned[T any](document T) T {
	clean(reflect.ValueOf(&document).Elem())
	return document
}

// moment is a wall time; nil for none.
func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC().Round(time.Millisecond)
	return &t
}

func seconds(d time.Duration) float64 { return d.Round(time.Millisecond).Seconds() }

// list is never null in a document.
func list[T any](of []T) []T {
	if of == nil {
		return []T{}
	}
	return of
}

const (
	nameWidth = 48  // of names from outside in a line
	textWidth = 400 // of what is quoted
	timestamp = "2006-01-02 15:04:05"
)

// Terminal returns a writer that lets nothing but printable ASCII and the ends of lines through to w, and writes the
// rest as \xNN. Each text from outside is cleaned where a line is put together; this is for the one that was forgotten.
// Threat: a name, or an argument, that tells an admin's terminal what to do.
func Terminal(w io.Writer) io.Writer { return On(w, false) }

// On is Terminal for one that may show colours: this package's own get through, and nothing else.
func On(w io.Writer, colour bool) io.Writer { return &terminal{w, colour} }

type terminal struct {
	w      io.Writer
	colour bool
}

// mostEscaped is how much longer a byte can become: \xNN.
const mostEscaped = 4

// Write makes terminal an io.Writer. Its count is of p's bytes.
func (t *terminal) Write(p []byte) (int, error) {
	var out bytes.Buffer
	for line := range bytes.Lines(p) {
		text, ended := bytes.CutSuffix(line, []byte("\n"))
		out.WriteString(t.clean(string(text)))
		if ended {
			out.WriteByte('\n')
		}
	}
	if _, err := t.w.Write(out.Bytes()); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (t *terminal) clean(text string) string {
	if !t.colour {
		return string(report.Keep(text, mostEscaped*len(text)))
	}
	var out strings.Builder
	for text != "" {
		plain, colour, rest := cutColour(text)
		out.WriteString(string(report.Keep(plain, mostEscaped*len(plain))))
		out.WriteString(colour)
		text = rest
	}
	return out.String()
}

// ink writes words in colour where the paper takes it, and plainly elsewhere. Colour says nothing that the words do
// not.
type ink bool

// All escape sequences that reach a terminal: SGR, which moves no cursor and asks for no answer.
const (
	bold   = "\x1b[1m"
	red    = "\x1b[31m"
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	normal = "\x1b[0m"
)

// inkOf is the ink for what is written to w.
func inkOf(w io.Writer) ink {
	t, ok := w.(*terminal)
	return ink(ok && t.colour)
}

func (i ink) in(colour, text string) string {
	if !i || text == "" {
		return text
	}
	return colour + text + normal
}

// action colours a text by what policy made of it.
func (i ink) action(a config.Action, text string) string {
	switch a {
	case config.Drain:
		return i.in(red, text)
	case config.Warn:
		return i.in(yellow, text)
	}
	return text
}

// verdict colours a text by a hook's outcome.
func (i ink) verdict(v finding.Verdict, text string) string {
	switch {
	case v.Exit != 0 || v.Held != "":
		return i.in(red, text)
	case v.Code == "":
		return i.in(green, text)
	}
	return i.action(v.Action, text)
}

// cutColour cuts a text at the first of this package's colours.
func cutColour(text string) (plain, colour, rest string) {
	at := len(text)
	for _, c := range []string{bold, red, green, yellow, normal} {
		if i := strings.Index(text, c); i >= 0 && i < at {
			at, colour = i, c
		}
	}
	return text[:at], colour, text[at+len(colour):]
}

// table writes lines of cells that tabs divide, in columns.
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

// Figure words bytes, or says that they are unknown.
func Figure(f gpu.Figure) string {
	if !f.Known() {
		return size(nil)
	}
	return size(&f.Bytes)
}

// size is Figure for what a document has: null where it is unknown.
func size(bytes *uint64) string {
	if bytes == nil {
		return "unknown"
	}
	return diagnosis.Size(*bytes)
}

// cut is a text from outside for one line; name is a short one.
func cut(text string) string { return string(report.Keep(text, textWidth)) }

func name(text string) string { return string(report.Keep(text, nameWidth)) }

// stamp is a moment, or says that it is unknown.
func stamp(t *time.Time) string {
	if t == nil {
		return "unknown"
	}
	return t.Local().Format(timestamp)
}

func count(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s%s", n, one, more)
}
