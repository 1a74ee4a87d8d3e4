package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const someProfile = `mode: set
bookend/internal/a/x.go:3.20,4.12 1 1
bookend/internal/a/x.go:4.12,6.3 2 0
bookend/internal/a/x.go:7.2,7.10 1 1
bookend/internal/a/x.go:9.1,9.2 0 0
bookend/internal/a/x.go:4.12,6.3 2 0
bookend/internal/a/x.go:3.20,4.12 1 0
bookend/internal/b/y.go:3.1,4.2 3 0
`

func TestProfile(t *testing.T) {
	blocks, err := parseProfile(someProfile)
	if err != nil || len(blocks) != 4 {
		t.Fatalf("%+v, %v", blocks, err)
	}
	got := sums(blocks, []string{"internal/a", "internal/b", "internal/none"})
	want := []sum{{"internal/a", 2, 4}, {"internal/b", 0, 3}, {"internal/none", 0, 0}}
	if !slices.Equal(got, want) || got[0].percent() != 50 || got[2].percent() != 0 {
		t.Errorf("%+v, want %+v", got, want)
	}
	for _, line := range []string{"x", "bookend/a.go:1.2,3.4 1", "bookend/a.go:1.2,3.4 1 x"} {
		if _, err := parseProfile(line); err == nil {
			t.Errorf("%q passes", line)
		}
	}
}

const someSource = `package a

func (s *Store[T]) write(n int) error {
	if n > 1 {
		// why
		return nil
	}
	go func() { n++ }()
	return errors.New("x")
}

var f = func() { n = 1 }
`

func TestLocate(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "x.go"), []byte(someSource), 0o600); err != nil {
		t.Fatal(err)
	}
	for key, at := range map[string]place{
		" Store.write: if n > 1 { return nil":                              {line: 4, column: 11},
		" Store.write: func (s *Store[T]) write(n int) error { if n > 1 {": {line: 3, column: 40},
		" Store.write: n++ }()":                                            {line: 8, column: 13},
		` Store.write: return errors.New("x")`:                             {line: 9, column: 2},
		" -: n = 1 }":                                                      {line: 12, column: 17},
	} {
		at.file = "x.go"
		b := block{place: at}
		if err := b.locate(root); err != nil || b.key() != key {
			t.Errorf("%d.%d is %q, %v; want %q", at.line, at.column, b.key(), err, key)
		}
	}
	for _, at := range []place{{file: "x.go", line: 100, column: 1}, {file: "x.go", line: 3, column: 99}, {file: "none.go", line: 1, column: 1}} {
		if err := (&block{place: at}).locate(root); err == nil {
			t.Errorf("%+v is found", at)
		}
	}
}

func TestParseGaps(t *testing.T) {
	gaps, err := parseGaps("# list\n\na f: x\n    one\n    two\nb g: y\n\tsometimes: three\n")
	if err != nil || len(gaps) != 2 || gaps[0].reason != "one two" || gaps[1].key != "b g: y" {
		t.Errorf("%+v, %v", gaps, err)
	}
	for _, text := range []string{"    reason\n", "a f: x\n", "a f: x\n    r\na f: x\n    r\n", "a f: x\n    sometimes:\n"} {
		if _, err := parseGaps(text); err == nil {
			t.Errorf("%q passes", text)
		}
	}
}

func TestCompare(t *testing.T) {
	of := func(text string, reached bool) block {
		return block{place: place{file: "a/x.go"}, function: "f", text: text, reached: reached}
	}
	blocks := []block{of("open", false), of("explained", false), of("reached", true), of("at times", true), of("twice", true), of("twice", false)}
	gaps := []gap{
		{key: "a f: explained", reason: "r"}, {key: "a f: reached", reason: "r"}, {key: "a f: at times", reason: "sometimes: r"},
		{key: "a f: gone", reason: "r"}, {key: "a f: twice", reason: "r"},
	}
	got := strings.Join(compare(blocks, gaps), "\n")
	for _, want := range []string{"not explained: a f: open", "no such block: a f: gone", ": a f: reached"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in %q", want, got)
		}
	}
	if n := len(compare(blocks, gaps)); n != 3 {
		t.Errorf("%d complaints: %q", n, got)
	}
	if text := drafted(blocks, gaps); text != "a f: open\n    \n" {
		t.Errorf("%q", text)
	}
}

// What is explained stands in the sources, as far as their text alone can tell: a change of them does not wait for the
// next long run to be noticed.
func TestGapsAreOfTheSources(t *testing.T) {
	text, err := os.ReadFile("gaps.txt")
	if err != nil {
		t.Fatal(err)
	}
	gaps, err := parseGaps(string(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range gaps {
		pkg, rest, _ := strings.Cut(g.key, " ")
		function, begins, _ := strings.Cut(rest, ": ")
		if !slices.Contains(measured, pkg) {
			t.Errorf("%s is not measured", pkg)
		}
		if !inSources(t, filepath.Join("../..", pkg), function, begins) {
			t.Errorf("gaps.txt:%d: not in the sources: %s", g.line, g.key)
		}
	}
}

func inSources(t *testing.T, dir, function, begins string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		source, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(string(source), "\n")
		for i, line := range lines {
			column := max(1, strings.LastIndex(line, "{")+2)
			whole := beginning(append(lines[:i:i], append([]string{line + " "}, lines[i+1:]...)...), i+1, column) == begins
			if !whole && !strings.HasSuffix(strings.TrimSpace(line), begins) {
				continue
			}
			if name, err := functionAt(path, source, i+1); err == nil && name == function {
				return true
			}
		}
	}
	return false
}
