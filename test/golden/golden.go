// Package golden holds tests to files that say what follows; with update it writes them.
package golden

import (
	"os"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"bookend/test/must"
)

// File is what was got.
func File(t testing.TB, update bool, file, got string) {
	t.Helper()
	if update {
		must.Do(t, os.WriteFile(file, []byte(got), 0o644))
	}
	if want := must.Read(t, file); got != want {
		line, has, wants := difference(want, got)
		t.Errorf("%s:%d: has %q, want %q; go test -update writes it", file, line, has, wants)
	}
}

// difference returns the first line that differs, counted from 1, as it is in a file and as it should be.
func difference(file, follows string) (number int, has, wants string) {
	before, after := strings.Split(file, "\n"), strings.Split(follows, "\n")
	for number < min(len(before), len(after))-1 && before[number] == after[number] {
		number++
	}
	return number + 1, before[number], after[number]
}

// Part is what was got for the part of a document between two of its lines.
func Part(t testing.TB, update bool, file, begin, end, got string) {
	t.Helper()
	before, rest, begins := strings.Cut(must.Read(t, file), begin+"\n")
	_, after, ends := strings.Cut(rest, end+"\n")
	if !begins || !ends {
		t.Fatalf("%s has no part between %q and %q", file, begin, end)
	}
	File(t, update, file, before+begin+"\n"+got+end+"\n"+after)
}

// Archive is of cases: what is given and, behind "=>", what follows from it.
func Archive(t testing.TB, update bool, file string, follows func(given string) string) {
	t.Helper()
	a := txtar.Parse(must.Have(os.ReadFile(file))(t))
	for i, f := range a.Files {
		given, _, _ := strings.Cut(string(f.Data), "=>\n")
		got := strings.TrimSuffix(given+"=>\n"+follows(given), "\n") + "\n"
		if a.Files[i].Data = []byte(got); got != string(f.Data) && !update {
			t.Errorf("%s: %s: got\n%swant\n%s", file, f.Name, got, f.Data)
		}
	}
	if update {
		must.Do(t, os.WriteFile(file, txtar.Format(a), 0o644))
	}
}

// Lines is of cases of one line each: what is given and, behind " => ", what follows from it. "#" begins a remark.
func Lines(t testing.TB, update bool, file string, follows func(given string) string) {
	t.Helper()
	got := ""
	for line := range strings.Lines(must.Read(t, file)) {
		given, _, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " => ")
		if got += given; !strings.HasPrefix(given, "#") {
			got += " => " + follows(given)
		}
		got += "\n"
	}
	File(t, update, file, got)
}
