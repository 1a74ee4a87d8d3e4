package report

import (
	"strings"
	"testing"
)

// Slurm obeys lines that begin with export and unset, and ends one without a line's end with a NUL: whatever stands in
// a report, each line is one for it to print. Blanks before a line, and a carriage return, count for nothing with
// Slurm.
func FuzzPrinted(f *testing.F) {
	for _, seed := range []string{"bookend: GPU 0 of n1 clean\n", "export PATH=/tmp\n", "a\nunset HOME", "\x00", "\n\n", "a\rexport X=1\n", "  print x", "\u2028export A=b\n", strings.Repeat("x", 300)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		lines := strings.SplitAfter(Printed(text), "\n")
		if last := lines[len(lines)-1]; last != "" {
			t.Fatalf("a line without an end: %q", last)
		}
		lines = lines[:len(lines)-1]
		if want := strings.Count(text, "\n"); len(lines) != want && len(lines) != want+1 {
			t.Fatalf("%d lines of %q", len(lines), text)
		}
		for _, line := range lines {
			if !strings.HasPrefix(line, "print | ") || !plain(strings.TrimSuffix(line, "\n")) || len(line) > len("print | \n")+Width {
				t.Fatalf("line %q", line)
			}
		}
	})
}

func plain(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}
