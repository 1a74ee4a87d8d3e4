package safetext

import (
	"io"
	"reflect"
	"strings"
)

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
