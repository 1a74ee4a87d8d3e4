package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// module writes a module of its own, of files by name.
func module(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	files["go.mod"] = "module scratch\n\ngo 1.24\n"
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("GOFLAGS", "")
	t.Setenv("GOWORK", "off")
	t.Setenv("CGO_ENABLED", "0") // what compiles the scratch module is not what is tested
	return dir
}

const good = `package a

import "testing"

func FuzzGood(f *testing.F) {
	f.Add("x")
	f.Fuzz(func(t *testing.T, s string) {})
}

type t struct{}

func (t) FuzzMethod(f *testing.F) {}

func Fuzzy(n int) {}
`

const crasher = `package b_test

import "testing"

func FuzzCrash(f *testing.F) {
	f.Add("seed")
	f.Fuzz(func(t *testing.T, s string) {
		if s != "seed" {
			t.Error("planted")
		}
	})
}
`

const idle = `package c

import "testing"

func FuzzIdle(f *testing.F) { f.Skip("never") }
`

func TestFindsPlantedTargets(t *testing.T) {
	dir := module(t, map[string]string{"a/a_test.go": good, "deep/er/b_test.go": crasher})
	all, err := find(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, found := range all {
		names = append(names, found.String())
	}
	if want := []string{"./a FuzzGood", "./deep/er FuzzCrash"}; !slices.Equal(names, want) {
		t.Errorf("found %q, want %q", names, want)
	}
}

// What is not built here would silently never be run.
func TestRefusesWhatIsNotBuilt(t *testing.T) {
	dir := module(t, map[string]string{"a/a.go": "package a\n", "a/a_test.go": "//go:build plan9\n\n" + good})
	if _, err := find(dir); err == nil || !strings.Contains(err.Error(), "FuzzGood of a/a_test.go is not built here") {
		t.Errorf("error %v", err)
	}
	if _, err := find(module(t, map[string]string{"a/a.go": "package a\n"})); err == nil {
		t.Error("a module without a target is well")
	}
}

func TestRun(t *testing.T) {
	dir := module(t, map[string]string{"a/a_test.go": good, "b/b_test.go": crasher, "c/c_test.go": idle})
	for name, want := range map[string]struct {
		ok   bool
		said string
	}{
		"FuzzGood":  {true, "1s each"},
		"FuzzCrash": {false, "FAILED: b/testdata/fuzz/FuzzCrash/"},
		"FuzzIdle":  {false, "EXECUTED NOTHING"},
	} {
		var out strings.Builder
		ok, err := plan{dir: dir, time: time.Second, jobs: 1, only: name}.run(&out)
		if err != nil || ok != want.ok || !strings.Contains(out.String(), want.said) {
			t.Errorf("%s: %v, %v:\n%s", name, ok, err, out.String())
		}
	}
	if kept, _ := filepath.Glob(filepath.Join(dir, "b/testdata/fuzz/FuzzCrash/*")); len(kept) != 1 {
		t.Errorf("kept %q, want one input", kept)
	}
}

const branches = `package d

func Has(s string) bool {
	if len(s) > 2 {
		return true
	}
	return false
}
`

const branching = `package d

import "testing"

func FuzzHas(f *testing.F) {
	f.Add("")
	f.Fuzz(func(t *testing.T, s string) { Has(s) })
}
`

// Of what was found before, one input that reaches more than the seed is kept, and the shortest.
func TestKeep(t *testing.T) {
	dir := module(t, map[string]string{"d/d.go": branches, "d/d_test.go": branching})
	cache := t.TempDir()
	found := filepath.Join(cache, "scratch/d/FuzzHas")
	if err := os.MkdirAll(found, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, input := range map[string]string{"short": "ab", "right": "abc", "long": "abcd"} {
		if err := os.WriteFile(filepath.Join(found, name), []byte("go test fuzz v1\nstring(\""+input+"\")\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var out strings.Builder
	if ok, err := (plan{dir: dir, cache: cache, kept: true}).run(&out); !ok || err != nil || out.String() != "./d FuzzHas: 1 kept\n" {
		t.Errorf("%v, %v: %q", ok, err, out.String())
	}
	if kept, _ := filepath.Glob(filepath.Join(dir, "d/testdata/fuzz/FuzzHas/*")); len(kept) != 1 || filepath.Base(kept[0]) != "right" {
		t.Errorf("kept %q", kept)
	}
}

func TestParse(t *testing.T) {
	r := parse("fuzz: elapsed: 0s, gathering baseline coverage: 0/3 completed\n" +
		"fuzz: elapsed: 3s, execs: 12 (4/sec), new interesting: 1 (total: 4)\n" +
		"fuzz: elapsed: 5s, execs: 345 (100/sec), new interesting: 2 (total: 5)\nPASS\n")
	if r.executions != 345 || r.inputs != 2 || r.kept != "" {
		t.Errorf("%+v", r)
	}
	r = parse("failure while testing seed corpus entry: FuzzX/0a1b\n")
	if r.kept != "testdata/fuzz/FuzzX/0a1b" || r.ok() {
		t.Errorf("%+v", r)
	}
	const end = "fuzz: elapsed: 3s, execs: 12 (4/sec), new interesting: 1 (total: 4)\n--- FAIL: FuzzX (3.00s)\n    context deadline exceeded\nFAIL\nexit status 1\n"
	if r = parse(end); !r.late {
		t.Errorf("%+v", r)
	}
	r.err = errors.New("exit status 1")
	if !r.ok() || r.result() != "ok" {
		t.Errorf("the end of its time counts as a failure: %+v", r)
	}
	if r = parse(strings.Replace(end, "    context", "    x_test.go:3: bad\n    context", 1)); r.late {
		t.Errorf("%+v", r)
	}
	if r = parse("failure while testing seed corpus entry: FuzzX/seed#3\n"); r.kept != "" {
		t.Errorf("%+v", r)
	}
}

// The lists of this module and of grep agree: none is forgotten.
func TestFindsAllOfThisModule(t *testing.T) {
	all, err := find("../..")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, t := range all {
		found[t.String()] = true
	}
	err = filepath.WalkDir("../..", func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for line := range strings.Lines(string(text)) {
			rest, ok := strings.CutPrefix(line, "func Fuzz")
			name, _, fuzzes := strings.Cut(rest, "(f *testing.F) {")
			pkg := "./" + strings.TrimPrefix(filepath.ToSlash(filepath.Dir(path)), "../../")
			if ok && fuzzes && pkg != "./test/fuzz" && !found[pkg+" Fuzz"+name] {
				t.Errorf("%s: Fuzz%s is not found", path, name)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
