package drain

import (
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"bookend/internal/attrib"
	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/slurm"
	"bookend/test/must"
)

// about is a finding with everything that a reason can say.
func about(c code.Code, index int, bytes uint64, pid int) finding.Finding {
	return finding.Finding{
		Code: c, GPU: "GPU-a", Index: &index, Bytes: gpu.Bytes(bytes),
		Holder: &finding.Holder{Process: attrib.Process{PID: pid, Name: "\nState=IDLE"}},
	}
}

// ofTheDead is memory under a PID that is gone: whoever has that number now is another, and not to be killed for it.
func ofTheDead() finding.Finding {
	f := about(code.Phantom, 0, 512<<20, 4711)
	f.Holder.Gone = true
	return f
}

// The reason's form is an interface: sites match on it.
func TestText(t *testing.T) {
	for want, f := range map[string]finding.Finding{
		"BKD-ORPHAN gpu=0 20480MiB pid=4711 job=42 epilog; see: bookend show 42": about(code.Orphan, 0, 20<<30, 4711),
		"BKD-RESIDUE gpu=15 512MiB job=42 epilog; see: bookend show 42":          about(code.Residue, 15, 512<<20+1, 0),
		"BKD-STUCK job=42 epilog; see: bookend show 42":                          {Code: code.Stuck},
		"BKD-REMAPFAILED g=15 job=42 epilog; see: bookend show 42":               about(code.RemapFailed, 15, 0, 0),
		"BKD-RESIDUE gpu=1 job=42 epilog; see: bookend show 42":                  about(code.Residue, 1, 1<<20-1, -4),
		"BKD-RESIDUE job=42 epilog; see: bookend show 42":                        about(code.Residue, -1, 0, 0),
		"BKD-PHANTOM gpu=0 512MiB job=42 epilog; see: bookend show 42":           ofTheDead(),
	} {
		if got := Text(f, 42, slurm.Epilog); string(got) != want {
			t.Errorf("reason %q, want %q", got, want)
		}
	}
	want := "BKD-LOST gpu=3 job=7 prolog; see: bookend show 7"
	if got := Text(about(code.Lost, 3, 0, 0), 7, slurm.Prolog); string(got) != want {
		t.Errorf("reason %q, want %q", got, want)
	}
}

// Every code with everything at its longest: within the bound, code and card among what sinfo -R shows, and read back.
func TestRoundTrip(t *testing.T) {
	card := regexp.MustCompile(`^[A-Z-]+ g(pu)?=(0|15)( |$)`)
	for _, e := range code.All() {
		for _, f := range []finding.Finding{about(e.Code, 15, 1<<57, 1<<31-1), about(e.Code, 0, 0, 0), {Code: e.Code}} {
			for _, want := range []Reason{{e.Code, 1<<32 - 1, slurm.Prolog}, {e.Code, 1, slurm.Epilog}} {
				text := string(Text(f, want.Job, want.Phase))
				if got, ours := Parse(text); !ours || got != want || strings.HasSuffix(text, "...") {
					t.Errorf("%q is read as %+v, %v", text, got, ours)
				}
				if f.Index != nil && !card.MatchString(text[:Shown]) {
					t.Errorf("sinfo -R shows %q of %q: no whole GPU", text[:Shown], text)
				}
			}
		}
	}
}

// Every form that a release wrote is read, and is ours.
func TestEveryFormEverWritten(t *testing.T) {
	data := must.Have(os.ReadFile("testdata/reasons.txt"))(t)
	for line := range strings.Lines(string(data)) {
		text, want, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Fields(want) // code, GPU, MiB, PID, job, hook
		r, ours := Parse(text)
		if got := []string{string(r.Code), fmt.Sprint(r.Job), words[r.Phase]}; !ours ||
			!slices.Equal(got, []string{fields[0], fields[4], fields[5]}) {
			t.Errorf("%q is read as %q, %v", text, got, ours)
		}
		if Ours(text + "; disk swap") {
			t.Errorf("%q with words behind it is ours", text)
		}
	}
}

// Whatever differs in a byte is not ours.
func TestOursRefuses(t *testing.T) {
	const ours = "BKD-ORPHAN gpu=0 20998MiB pid=4711 job=42 epilog; see: bookend show 42"
	if !Ours(ours) {
		t.Fatalf("%q is not read", ours)
	}
	for old, new := range map[string]string{
		"42": "042", "bookend show 42": "bookend show 43", "gpu=0": "gpu=00", "epilog": "Epilog",
		"ORPHAN":         "orphan",
		"gpu=0 20998MiB": "20998MiB gpu=0", "gpu=0 2": "gpu=0 gpu=0 2", "BKD-ORPHAN": "BKD", "BKD-": "NHC-",
		"job=42 ": "", " epilog": "", " ": "  ", "BKD": " BKD", "show 42": "show 42 ",
	} {
		if text := strings.Replace(ours, old, new, 1); Ours(text) {
			t.Errorf("%q is taken for ours", text)
		}
	}
	for _, text := range []string{
		"", EpilogError, PrologError, "BKD-", ours + "\n", ours + "; swapped the GPU", ours + "x",
		ours + " [root@2026-11-21T07:00:00]", "BKD-ORPHAN job=0 epilog; see: bookend show 0",
	} {
		if Ours(text) {
			t.Errorf("%q is taken for ours", text)
		}
	}
}

// What is ours fits the grammar and the bound; what is composed fits, holds no bracket and is read back.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"BKD-ORPHAN gpu=0 20998MiB pid=4711 job=42 epilog; see: bookend show 42",
		"BKD-REMAPFAILED g=15 job=1 prolog; see: bookend show 1", EpilogError,
	} {
		f.Add(s, 3, uint64(1<<30), 4711)
	}
	grammar := regexp.MustCompile(Grammar)
	f.Fuzz(func(t *testing.T, text string, index int, bytes uint64, pid int) {
		if r, ours := Parse(text); ours && (len(text) > MaxReason || !grammar.MatchString(text) || r.Job == 0) {
			t.Errorf("%q is read as %+v", text, r)
		}
		for _, c := range []code.Code{code.Orphan, code.RemapFailed, code.Code(text)} {
			composed := string(Text(about(c, index, bytes, pid&math.MaxInt32), 7, slurm.Epilog))
			known := c != code.Code(text)
			if len(composed) > MaxReason || known && (strings.ContainsAny(composed, "[]\n") || !Ours(composed)) {
				t.Errorf("%q", composed)
			}
		}
	})
}
