package drain

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"bookend/internal/attrib"
	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/slurm"
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
		if got := For(f, 42, slurm.Epilog).Text(); string(got) != want {
			t.Errorf("reason %q, want %q", got, want)
		}
	}
	want := "BKD-LOST gpu=3 job=7 prolog; see: bookend show 7"
	if got := For(about(code.Lost, 3, 0, 0), 7, slurm.Prolog).Text(); string(got) != want {
		t.Errorf("reason %q, want %q", got, want)
	}
}

// Every code with everything at its longest: within the bound, code and card among what sinfo -R shows, matched by the
// published grammar, and read back as it was.
func TestRoundTrip(t *testing.T) {
	grammar, card := regexp.MustCompile(Grammar), regexp.MustCompile(`^[A-Z-]+ g(pu)?=(0|9|15)( |$)`)
	for _, e := range code.All() {
		for _, index := range []int{0, 9, 15} {
			for _, f := range []finding.Finding{
				about(e.Code, index, 1<<57, 1<<31-1), about(e.Code, index, 0, 0), {Code: e.Code},
			} {
				for _, phase := range []slurm.Context{slurm.Prolog, slurm.Epilog} {
					r := For(f, 1<<32-1, phase)
					text := string(r.Text())
					back, ok := Parse(text)
					if !ok || !reflect.DeepEqual(back, r) || !grammar.MatchString(text) {
						t.Errorf("%q is read as %+v, %v", text, back, ok)
					}
					if len(text) > MaxReason || strings.HasSuffix(text, "...") {
						t.Errorf("%q has %d bytes", text, len(text))
					}
					if f.Index != nil && !card.MatchString(text[:Shown]) {
						t.Errorf("sinfo -R shows %q of %q: no whole GPU", text[:Shown], text)
					}
				}
			}
		}
	}
}

// Every form that a release wrote is read, and is ours.
func TestEveryFormEverWritten(t *testing.T) {
	data, err := os.ReadFile("testdata/reasons.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		text, want, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if strings.HasPrefix(line, "#") {
			continue
		}
		r, ok := Parse(text)
		if got := facts(r); !ok || got != want {
			t.Errorf("%q is read as %q, %v", text, got, ok)
		}
		if Ours(text + "; disk swap") {
			t.Errorf("%q with words behind it is ours", text)
		}
	}
}

// facts are those of a line of the collection.
func facts(r Reason) string {
	fields := []string{string(r.Code), "-", "-", "-", fmt.Sprint(r.Job), string(r.Phase)}
	if r.GPU != nil {
		fields[1] = fmt.Sprint(*r.GPU)
	}
	if r.MiB > 0 {
		fields[2] = fmt.Sprint(r.MiB)
	}
	if r.PID > 0 {
		fields[3] = fmt.Sprint(r.PID)
	}
	fields[5] = map[slurm.Context]string{slurm.Prolog: "prolog", slurm.Epilog: "epilog"}[r.Phase]
	return strings.Join(fields, " ")
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
		"job=42 ": "", " epilog": "", " ": "  ", "pid=4711": "pid=4294967296", "BKD": " BKD", "show 42": "show 42 ",
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

// What is read is written again byte for byte, and the grammar knows it; what is composed fits and holds no bracket.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"BKD-ORPHAN gpu=0 20998MiB pid=4711 job=42 epilog; see: bookend show 42",
		"BKD-REMAPFAILED g=15 job=1 prolog; see: bookend show 1", EpilogError,
	} {
		f.Add(s, 3, uint64(1<<30), 4711)
	}
	grammar := regexp.MustCompile(Grammar)
	f.Fuzz(func(t *testing.T, text string, index int, bytes uint64, pid int) {
		if r, ours := Parse(text); ours {
			again, ok := Parse(string(r.Text()))
			if !ok || !reflect.DeepEqual(again, r) || len(text) > MaxReason || !grammar.MatchString(string(r.Text())) {
				t.Errorf("%q is read as %+v, and that as %+v", text, r, again)
			}
		}
		for _, c := range []code.Code{code.Orphan, code.RemapFailed, code.Code(text)} {
			composed := string(For(about(c, index, bytes, pid), 7, slurm.Epilog).Text())
			if len(composed) > MaxReason || c != code.Code(text) && strings.ContainsAny(composed, "[]\n") {
				t.Errorf("%q", composed)
			}
			if !Ours(composed) && c != code.Code(text) {
				t.Errorf("%q is not read back", composed)
			}
		}
	})
}
