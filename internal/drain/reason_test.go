package drain

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/slurm"
	"bookend/test/golden"
	"bookend/test/must"
)

// about is a finding with everything that a reason can say.
func about(c code.Code, index int, bytes uint64, pid int) finding.Finding {
	return finding.Finding{
		Code: c, GPU: "GPU-a", Index: &index, Bytes: gpu.Bytes(bytes),
		Holder: &finding.Holder{Process: finding.Process{PID: pid, Name: "\nState=IDLE"}},
	}
}

// The reason's form is an interface: sites match on it.
func TestText(t *testing.T) {
	golden.Lines(t, *update, "testdata/texts.txt", func(given string) string {
		var f finding.Finding
		phase, about, _ := strings.Cut(given, " ")
		must.Do(t, json.Unmarshal([]byte(about), &f))
		return string(Text(f, 42, map[string]slurm.Context{"prolog": slurm.Prolog, "epilog": slurm.Epilog}[phase]))
	})
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

// What is read of a reason: a form that a release wrote, and nothing else.
func TestReasons(t *testing.T) {
	golden.Lines(t, *update, "testdata/reasons.txt", func(text string) string {
		r, ours := Parse(text)
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

// The table in the documentation has a reason for each code that may drain, as it is composed, and what can be resumed.
func TestDocIsTheCatalogue(t *testing.T) {
	data := must.Have(os.ReadFile(doc))(t)
	got, want := string(data), string(data)
	for _, part := range []struct{ name, text string }{
		{"grammar", "```\n" + Grammar + "\n```\n"}, {"reasons", reasonTable()},
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

// reasonTable has a row for each code that a policy may drain for.
func reasonTable() string {
	var b strings.Builder
	b.WriteString("| code | as `sinfo -R` shows it | the whole reason, for example | drains by default | " +
		"can be resumed |\n| --- | --- | --- | --- | --- |\n")
	for _, e := range code.All() {
		if e.Scope == code.Elsewhere || e.Severity == code.Note {
			continue
		}
		by := "no"
		switch {
		case e.Start == config.Drain:
			by = "at the start, at the end"
		case e.End == config.Drain:
			by = "at the end"
		case e.Start == config.Repeat:
			by = "at the start or end of the second job in a row"
		case e.End == config.Repeat:
			by = "at the end of the second job in a row"
		case e.Scope == code.Own:
			by = "with `on_own_error: drain`"
		}
		text := string(Text(example(e), 42, slurm.Epilog))
		fmt.Fprintf(&b, "| [%s](findings.md#%s) | `%s` | `%s` | %s | %s |\n", e.Code, strings.ToLower(string(e.Code)),
			strings.TrimSpace(text[:Shown]), text, by, resumable(e.Code))
	}
	return b.String()
}

func resumable(c code.Code) string {
	if Verifiable(c) {
		return "once no one and nothing is on the GPU"
	}
	return "no"
}

// example is a finding as hooks make it: of a card with its number, of memory with the bytes, of a process with its
// PID.
func example(e code.Entry) finding.Finding {
	if e.Scope != code.Card {
		return finding.Finding{Code: e.Code}
	}
	f := about(e.Code, 0, 0, 0)
	switch e.Code {
	case code.Orphan, code.Stray, code.Foreign:
		return about(e.Code, 0, 20998<<20, 4711)
	case code.Residue, code.Phantom, code.Dirty, code.Gap, code.Moving:
		return about(e.Code, 0, 20998<<20, 0)
	}
	return f
}
