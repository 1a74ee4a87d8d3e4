// Package safetext makes strings from outside safe to show: printable ASCII of bounded length.
package safetext

import (
	"io"
	"reflect"
	"strings"
)

// Safe is text that may enter a report, log, drain reason, terminal or page: printable ASCII (0x20 to 0x7e), bounded,
// one line. Only Clean makes one from a string that came from outside; constants of this program may be converted.
//
// Safe does not restrict how a line begins: code that writes a line must put a fixed text of its own first, against a
// leading dash, "print " or "export ".
type Safe string

const dots = "..." // ends a text that was cut

// Clean makes a string from outside safe. It writes a byte that is not printable ASCII as \xNN and a backslash as \\,
// so that different names never look alike. A text longer than max bytes is cut, never within an escape, and ends in
// "...". The work is bounded by max, however long raw is.
func Clean(raw string, max int) Safe { return bounded(raw, max, appendVisible) }

// Keep is Clean for a line made of results of Clean and this program's own words, when it is joined or read back from a
// file: it bounds and escapes in the same way but does not escape backslashes again.
func Keep(line string, max int) Safe { return bounded(line, max, appendPrintable) }

func bounded(raw string, max int, visible func([]byte, byte) []byte) Safe {
	if max <= 0 {
		return ""
	}
	out := make([]byte, 0, min(len(raw), max)+len(dots))
	keep := 0 // length of out if it has to be cut: whole escapes, and room for the dots
	for i := range len(raw) {
		if len(out)+len(dots) <= max {
			keep = len(out)
		}
		out = visible(out, raw[i])
		if len(out) > max {
			return Safe(append(out[:keep], dots[:min(len(dots), max)]...))
		}
	}
	return Safe(out)
}

func appendVisible(out []byte, c byte) []byte {
	if c == '\\' {
		out = append(out, '\\')
	}
	return appendPrintable(out, c)
}

func appendPrintable(out []byte, c byte) []byte {
	const hex = "0123456789abcdef"
	if c < 0x20 || c > 0x7e {
		return append(out, '\\', 'x', hex[c>>4], hex[c&0xf])
	}
	return append(out, c)
}

// KeepAll applies Keep to every text in a value except in maps. It also modifies what pointers and slices in the value
// refer to: callers must not use those texts for anything else.
func KeepAll[T any](value T, max int) T {
	keepAll(reflect.ValueOf(&value).Elem(), max)
	return value
}

func keepAll(v reflect.Value, max int) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(string(Keep(v.String(), max)))
	case reflect.Interface:
		if !v.IsNil() {
			value := reflect.New(v.Elem().Type()).Elem()
			value.Set(v.Elem())
			keepAll(value, max)
			v.Set(value)
		}
	case reflect.Pointer:
		if !v.IsNil() {
			keepAll(v.Elem(), max)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				keepAll(v.Field(i), max)
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			keepAll(v.Index(i), max)
		}
	}
}

// Terminal returns a writer that passes only printable ASCII and newlines to w and writes other bytes as \xNN.
// Threat: a process name or an argument that contains control sequences for an admin's terminal.
func Terminal(w io.Writer) io.Writer { return terminal{w} }

type terminal struct{ w io.Writer }

// mostEscaped is how many bytes one byte can become: \xNN.
const mostEscaped = 4

// Write makes terminal an io.Writer. It returns the number of bytes consumed from p.
func (t terminal) Write(p []byte) (int, error) {
	lines := strings.Split(string(p), "\n")
	for i, line := range lines {
		lines[i] = string(Keep(line, mostEscaped*len(line)))
	}
	if _, err := io.WriteString(t.w, strings.Join(lines, "\n")); err != nil {
		return 0, err
	}
	return len(p), nil
}
