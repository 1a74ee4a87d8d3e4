// Package must ends a test by what it cannot go on without, and compares what it got with what it wants.
package must

import (
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"bookend/test/pidns"
)

// T is what ends a test: a testing.TB, or a script's own.
type T interface {
	Helper()
	Fatal(args ...any)
}

// Do ends a test by an error.
func Do(t T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Have is a value without its error: must.Have(f())(t).
func Have[V any](value V, err error) func(T) V {
	return func(t T) V {
		t.Helper()
		Do(t, err)
		return value
	}
}

// Steps is a test whose failures name the lines that led to them, so that no step of it has to call Helper.
type Steps struct{ *testing.T }

// Error is T's.
func (s Steps) Error(args ...any) { s.Helper(); s.T.Error(s.led(fmt.Sprint(args...))) }

// Errorf is T's.
func (s Steps) Errorf(format string, args ...any) {
	s.Helper()
	s.T.Error(s.led(fmt.Sprintf(format, args...)))
}

// Fatal is T's.
func (s Steps) Fatal(args ...any) { s.Helper(); s.T.Fatal(s.led(fmt.Sprint(args...))) }

// Fatalf is T's.
func (s Steps) Fatalf(format string, args ...any) {
	s.Helper()
	s.T.Fatal(s.led(fmt.Sprintf(format, args...)))
}

// led puts the lines of test files that lead here before a text, the test's own last.
func (Steps) led(text string) string {
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs)])
	var lines []string
	for f, more := frames.Next(); more; f, more = frames.Next() {
		if strings.HasSuffix(f.File, "_test.go") {
			lines = append(lines, fmt.Sprintf("%s:%d", filepath.Base(f.File), f.Line))
		}
	}
	return strings.Join(lines, " < ") + ": " + text
}

// Be compares what a test got with what it wants; the test goes on.
func Be[V any](t testing.TB, what string, got, want V) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: got %+v, want %+v", what, got, want)
	}
}

// Fail compares an error with the one that a test wants, nil for none; the test goes on.
func Fail(t testing.TB, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// Err is the error alone.
func Err[V any](_ V, err error) error { return err }

// Not says that something is so that must not be; the test goes on.
func Not(t testing.TB, so bool, format string, args ...any) {
	t.Helper()
	if so {
		t.Errorf(format, args...)
	}
}

// Slower gives try a time limit that ends something, and twice as much again and again, until it says that so much was
// enough for all that must come before: the machine may be busy.
func Slower(t testing.TB, limit time.Duration, try func(limit time.Duration) (enough bool)) {
	t.Helper()
	for ; !try(limit); limit *= 2 {
		if limit > time.Minute {
			t.Fatalf("not even %v was enough", limit)
		}
	}
}

// SeeAll skips a test that wants a complete search of all processes where a PID namespace hides some.
func SeeAll(t testing.TB) {
	t.Helper()
	if own := pidns.Own(); own != "" {
		t.Skipf("in %s, a PID namespace of its own, a search of all processes is never complete", own)
	}
}
