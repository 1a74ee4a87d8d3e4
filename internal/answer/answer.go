// Package answer is what the command line says to programs: for each command with --json one document, versioned, with
// fields that do not change their names or meaning within a version. docs/cli.md describes every field, and is tested
// against these types.
//
// Sizes are in bytes, durations in seconds, moments in RFC 3339 (UTC); units stand in the names. What is not known is
// null, and "unknown" of the same object says why, by the field's name. Text from outside is printable ASCII: any other
// byte is \xNN. Names of others stand only in documents for root.
package answer

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"bookend/internal/gpu"
	"bookend/internal/report"
)

// Version is the version of the documents. Fields may be added within one; a program ignores those that it does not
// know.
const Version = 1

// widest bounds a text from outside.
const widest = 400

// Head begins every document.
type Head struct {
	Version int  `json:"version"` // of the document's form: 1
	Kind    Kind `json:"kind"`    // which document it is
}

// Kind names a document.
type Kind string

// The documents.
const (
	KindShow     Kind = "show"
	KindStatus   Kind = "status"
	KindHistory  Kind = "history"
	KindLemons   Kind = "lemons"
	KindSnapshot Kind = "snapshot"
	KindBaseline Kind = "baseline"
	KindConfig   Kind = "config-check"
	KindDoctor   Kind = "doctor"
	KindOwn      Kind = "own-report"
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
	(*u)[field] = text(why)
}

// text makes a text from outside fit for a document that somebody may look at on a terminal.
func text(raw string) string { return string(report.Clean(raw, widest)) }

// known is a word of Bookend's own that was read from a record: which may be a copy, and somebody's claim.
func known[T ~string](word T) T { return T(text(string(word))) }

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
