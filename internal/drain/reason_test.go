package drain

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"regexp"
	"strings"
	"testing"

	"bookend/internal/catalog"
	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/test/golden"
	"bookend/test/must"
)

// about is a finding with everything that a reason can say.
func about(c catalog.Code, index int, bytes uint64, pid int) record.Finding {
	return record.Finding{
		Code: c, GPU: "GPU-a", Index: &index, Bytes: gpu.Bytes(bytes),
		Holder: &record.Holder{Process: record.Process{PID: pid, Name: "\nState=IDLE"}},
	}
}

// The reason's form is an interface: sites match on it.
func TestText(t *testing.T) {
	golden.Lines(t, *update, "testdata/texts.txt", func(given string) string {
		var f record.Finding
		phase, about, _ := strings.Cut(given, " ")
		must.Do(t, json.Unmarshal([]byte(about), &f))
		return string(Compose(f, 42, map[string]slurm.Context{"prolog": slurm.Prolog, "epilog": slurm.Epilog}[phase]))
	})
}

// Every code with everything at its longest: within the bound, code and card among what sinfo -R shows, and read back.
func TestRoundTrip(t *testing.T) {
	card := regexp.MustCompile(`^[A-Z-]+ g(pu)?=(0|15)( |$)`)
	for _, e := range catalog.All() {
		for _, f := range []record.Finding{about(e.Code, 15, 1<<57, 1<<31-1), about(e.Code, 0, 0, 0), {Code: e.Code}} {
			for _, want := range []Reason{{e.Code, 1<<32 - 1, slurm.Prolog}, {e.Code, 1, slurm.Epilog}} {
				text := string(Compose(f, want.Job, want.Phase))
				if got, ours := ParseReason(text); !ours || got != want || strings.HasSuffix(text, "...") {
					t.Errorf("%q is read as %+v, %v", text, got, ours)
				}
				if f.Index != nil && !card.MatchString(text[:Shown]) {
					t.Errorf("sinfo -R shows %q of %q: no whole GPU", text[:Shown], text)
				}
			}
		}
	}
}

// What is read of a reason: a form that a release wrote, and nothing else.
func TestReasons(t *testing.T) {
	golden.Lines(t, *update, "testdata/reasons.txt", func(text string) string {
		r, ours := ParseReason(text)
		for _, more := range []string{"; disk swap", "\n"} {
			if Ours(text + more) {
				t.Errorf("%q with %q behind it is ours", text, more)
			}
		}
		if !ours {
			return "not ours"
		}
		return fmt.Sprint(r.Code, " ", r.Job, " ", words[r.Phase])
	})
}

var update = flag.Bool("update", false, "rewrite docs/drain-reasons.md and testdata/decisions.txtar")

const doc = "../../docs/drain-reasons.md"

// The documentation has the grammar, reasons that fit it, and the codes whose drains can be resumed.
func TestDocIsTheCatalogue(t *testing.T) {
	data := must.Have(os.ReadFile(doc))(t)
	got, want := string(data), string(data)
	for _, part := range []struct{ name, text string }{
		{"grammar", "```\n" + Grammar + "\n```\n"}, {"resumable", resumable()},
	} {
		before, rest, begins := strings.Cut(want, "<!-- "+part.name+" -->\n")
		_, behind, ends := strings.Cut(rest, "<!-- end -->\n")
		if !begins || !ends {
			t.Fatalf("%s has no place for %s", doc, part.name)
		}
		want = before + "<!-- " + part.name + " -->\n" + part.text + "<!-- end -->\n" + behind
	}
	if *update {
		if err := os.WriteFile(doc, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got != want {
		t.Errorf("%s is not what the catalogue says: go test ./internal/drain -update", doc)
	}
	grammar := regexp.MustCompile(Grammar)
	for _, quoted := range regexp.MustCompile("`(BKD-[^`]*; see[^`]*)`").FindAllStringSubmatch(got, -1) {
		if !Ours(quoted[1]) || !grammar.MatchString(quoted[1]) {
			t.Errorf("%s shows %q, which is no reason of ours", doc, quoted[1])
		}
	}
}

// resumable lists the codes that a health check can verify.
func resumable() string {
	var codes []string
	for _, e := range catalog.All() {
		if Verifiable(e.Code) {
			codes = append(codes, string(e.Code))
		}
	}
	return strings.Join(codes, ", ") + ".\n"
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
		if r, ours := ParseReason(text); ours && (len(text) > MaxReason || !grammar.MatchString(text) || r.Job == 0) {
			t.Errorf("%q is read as %+v", text, r)
		}
		for _, c := range []catalog.Code{catalog.Orphan, catalog.RemapFailed, catalog.Code(text)} {
			composed := string(Compose(about(c, index, bytes, pid&math.MaxInt32), 7, slurm.Epilog))
			known := c != catalog.Code(text)
			if len(composed) > MaxReason || known && (strings.ContainsAny(composed, "[]\n") || !Ours(composed)) {
				t.Errorf("%q", composed)
			}
		}
	})
}
