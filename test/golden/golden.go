// Package golden holds tests to files that say what follows; with update it writes them.
package golden

import (
	"fmt"
	"iter"
	"os"
	"slices"
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
			line, has, wants := difference(string(f.Data), got)
			t.Errorf("%s: %s, line %d: has %q, want %q; go test -update writes it", file, f.Name, line, has, wants)
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

// Names gives each name that is not in a file of Lines yet a line of its own, for Lines to fill in, if update is set.
func Names(t testing.TB, update bool, file string, names iter.Seq[string]) {
	t.Helper()
	text := must.Read(t, file)
	has := func(name string) bool { return strings.Contains("\n"+text, "\n"+name+" => ") }
	add(t, update, file, text, names, has, func(name string) string { return name + " => \n" })
}

// CaseNames is Names for a file of Archive, in which a case is given by its name alone.
func CaseNames(t testing.TB, update bool, file string, names iter.Seq[string]) {
	t.Helper()
	text := must.Read(t, file)
	cases := len(txtar.Parse([]byte(text)).Files)
	has := func(name string) bool { return strings.Contains(text, " --\n"+name+"\n=>\n") }
	add(t, update, file, text, names, has, func(name string) string {
		cases++
		return fmt.Sprintf("-- %d --\n%s\n=>\n", cases, name)
	})
}

func add(t testing.TB, update bool, file, text string, names iter.Seq[string], has func(string) bool,
	empty func(string) string) {
	t.Helper()
	for _, name := range slices.Sorted(names) {
		switch {
		case has(name):
		case update:
			text += empty(name)
		default:
			t.Errorf("%s: has nothing for %q; go test -update adds it", file, name)
		}
	}
	if update {
		must.Do(t, os.WriteFile(file, []byte(text), 0o644))
	}
}
