package hook

import (
	"math/big"
	"strings"
	"testing"

	"bookend/internal/gpu"
	"bookend/internal/joblog"
	"bookend/internal/record"
	"bookend/internal/report"
)

// Slurm obeys lines that begin with export and unset, and ends one without a line's end with a NUL: whatever stands in
// a report, each line is one for it to print. Blanks before a line, and a carriage return, count for nothing with
// Slurm.
func FuzzPrintLines(f *testing.F) {
	for _, seed := range []string{"bookend: GPU 0 of n1 clean\n", "export PATH=/tmp\n", "a\nunset HOME", "\x00", "\n\n", "a\rexport X=1\n", "  print x", "\u2028export A=b\n", strings.Repeat("x", 300)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var out strings.Builder
		printLines(&out, text)
		lines := strings.SplitAfter(out.String(), "\n")
		if last := lines[len(lines)-1]; last != "" {
			t.Fatalf("a line without an end: %q", last)
		}
		lines = lines[:len(lines)-1]
		if want := strings.Count(text, "\n"); len(lines) != want && len(lines) != want+1 {
			t.Fatalf("%d lines of %q", len(lines), text)
		}
		for _, line := range lines {
			if !strings.HasPrefix(line, "print | ") || !plain(strings.TrimSuffix(line, "\n")) || len(line) > len("print | \n")+report.Width {
				t.Fatalf("line %q", line)
			}
		}
		for line := range strings.Lines(joblog.Quote(text)) {
			if !strings.HasPrefix(line, "| ") {
				t.Fatalf("line %q of a job's log", line)
			}
		}
	})
}

func plain(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}

// A limit that the user's environment states is a figure that the epilog takes back from the record, or unknown. Where
// Slurm carries none it is this process's own.
func FuzzAddressSpace(f *testing.F) {
	for _, seed := range []string{
		"U68719476736", "4294967296", "18446744073709551615", "U", "UU1", "-1", "+1", "0x1", "1_0", "18446744073709551616",
		"U0", "",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, carried string) {
		got := (&taskHook{env: Env{Getenv: func(name string) string {
			return map[string]string{"SLURM_RLIMIT_AS": carried}[name]
		}}}).addressSpace()
		want, ok := new(big.Int).SetString(strings.TrimPrefix(carried, "U"), 10)
		if !ok || strings.Trim(strings.TrimPrefix(carried, "U"), "0123456789") != "" || !want.IsUint64() {
			want = new(big.Int)
		}
		if carried == "" && (got == 0 || got > record.Unlimited) || carried != "" && got != min(want.Uint64(), record.Unlimited) {
			t.Fatalf("SLURM_RLIMIT_AS=%q: %d, want %v", carried, got, want)
		}
		record, err := joblog.Drop{AddressSpace: got}.Encode()
		if err != nil {
			t.Fatal(err)
		}
		drop, err := joblog.ParseDrop(record)
		place := joblog.Place{Drop: drop}
		if err != nil || got > 0 && place.AddressSpace() != gpu.Bytes(got) || got == 0 && place.AddressSpace().Known() {
			t.Fatalf("%s: %+v, %v", record, drop, err)
		}
	})
}
