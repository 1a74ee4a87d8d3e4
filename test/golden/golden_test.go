package golden

import (
	"os"
	"slices"
	"strings"
	"testing"

	"bookend/test/must"
)

// listener is a test that goes on behind an error.
type listener struct {
	testing.TB
	errors int
}

func (l *listener) Errorf(string, ...any) { l.errors++ }
func (l *listener) Helper()               {}

// With update what is new is added and what differs is written; without, each is one error.
func TestUpdate(t *testing.T) {
	file := t.TempDir() + "/file"
	for kind, of := range map[string]struct {
		given, want string
		hold        func(t testing.TB, update bool)
	}{
		"lines": {"# remark\na => A\nb => x\n", "# remark\na => A\nb => B\nc => C\n", func(t testing.TB, update bool) {
			Names(t, update, file, slices.Values([]string{"c", "a"}))
			Lines(t, update, file, strings.ToUpper)
		}},
		"cases": {"-- 1 --\na\n=>\nA\n-- 2 --\nb\n=>\nx\n", "-- 1 --\na\n=>\nA\n-- 2 --\nb\n=>\nB\n-- 3 --\nc\n=>\nC\n", func(t testing.TB, update bool) {
			CaseNames(t, update, file, slices.Values([]string{"c", "a"}))
			Archive(t, update, file, strings.ToUpper)
		}},
	} {
		must.Do(t, os.WriteFile(file, []byte(of.given), 0o644))
		before, during, after := &listener{TB: t}, &listener{TB: t}, &listener{TB: t}
		of.hold(before, false)
		of.hold(during, true)
		must.Not(t, must.Read(t, file) != of.want, "%s: wrote %q", kind, must.Read(t, file))
		of.hold(after, false)
		must.Not(t, before.errors != 2 || during.errors+after.errors != 0, "%s: %d, %d and %d errors, want 2, 0 and 0", kind,
			before.errors, during.errors, after.errors)
	}
}
