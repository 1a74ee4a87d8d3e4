package report

import (
	"strings"
	"testing"

	"bookend/internal/record"
)

// Workers of one name are one line, and names from outside stay in theirs.
func TestStillOpen(t *testing.T) {
	many := func(n int, name string) (all []record.Process) {
		for i := range n {
			all = append(all, record.Process{PID: 700 + i, Name: strings.ReplaceAll(name, "#", string(rune('a'+i)))})
		}
		return all
	}
	for name, tt := range map[string]struct {
		open []record.Process
		want string
	}{
		"none":  {nil, ""},
		"one":   {many(1, "train"), "| bookend: process 700 (train) still uses a GPU at the end of your script\n"},
		"three": {many(3, "train"), "| bookend: 3 processes (train: 700, 701, 702) still use a GPU at the end of your script\n"},
		"two names": {append(many(1, "train"), many(2, "x\nexport A=b")...), "| bookend: process 700 (train) still uses a GPU at the end of your script\n" +
			"| bookend: 2 processes (x\\x0aexport A=b: 700, 701) still use a GPU at the end of your script\n"},
	} {
		if got := StillOpen(tt.open); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
	if got := StillOpen(many(12, "w#")); strings.Count(got, "\n") != 9 || !strings.HasSuffix(got, "of 4 more names\n") {
		t.Errorf("%s", got)
	}
	if got := StillOpen(many(300, "train")); len(got) > Width || !strings.Contains(got, "300 processes (train: 700, 701, 702, 703, ...)") {
		t.Errorf("%s", got)
	}
}

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
