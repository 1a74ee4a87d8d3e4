package drain

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
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
			for job, phase := range map[slurm.JobID]slurm.Context{1<<32 - 1: slurm.Prolog, 1: slurm.Epilog, 0: slurm.HealthCheck} {
				text := string(Compose(f, job, phase))
				want := fmt.Sprint(e.Code, " ", job, " ", words[phase])
				if job == 0 {
					want = fmt.Sprint(e.Code, "  ")
				}
				must.Be(t, text, parts(text), want)
				must.Not(t, f.Index != nil && !card.MatchString(text[:Shown]),
					"sinfo -R shows %q of %q: no whole GPU", text[:Shown], text)
			}
		}
	}
}

// What is read of a reason: a form that a release wrote, and nothing else.
func TestReasons(t *testing.T) {
	golden.Lines(t, *update, "testdata/reasons.txt", func(text string) string {
		for _, more := range []string{"; disk swap", "\n"} {
			must.Not(t, Ours(text+more), "%q with %q behind it is ours", text, more)
		}
		return parts(text)
	})
}

// parts are the code, job and hook of a reason, by the groups of the grammar.
func parts(text string) string {
	if !Ours(text) {
		return "not ours"
	}
	found := regexp.MustCompile(Grammar).FindStringSubmatch(text)
	return strings.Join([]string{found[1], found[5], found[6]}, " ")
}

var update = flag.Bool("update", false, "rewrite docs/drain-reasons.md and testdata/decisions.txtar")

const doc = "../../docs/drain-reasons.md"

// The documentation has the grammar, reasons that fit it, and the codes whose drains can be resumed.
func TestDocIsTheCatalogue(t *testing.T) {
	golden.Part(t, *update, doc, "<!-- grammar -->", "<!-- end -->", "```\n"+Grammar+"\n```\n")
	golden.Part(t, *update, doc, "<!-- resumable -->", "<!-- end -->", resumable())
	grammar := regexp.MustCompile(Grammar)
	for _, quoted := range regexp.MustCompile("`(BKD-[^`]*; see[^`]*)`").FindAllStringSubmatch(must.Read(t, doc), -1) {
		must.Not(t, !Ours(quoted[1]) || !grammar.MatchString(quoted[1]),
			"%s shows %q, which is no reason of ours", doc, quoted[1])
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

// What is composed fits the bound, holds no bracket and is read back.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"BKD-ORPHAN gpu=0 20998MiB pid=4711 job=42 epilog; see: bookend show 42",
		"BKD-REMAPFAILED g=15 job=1 prolog; see: bookend show 1", slurm.EpilogError,
	} {
		f.Add(s, 3, uint64(1<<30), 4711)
	}
	f.Fuzz(func(t *testing.T, text string, index int, bytes uint64, pid int) {
		for _, c := range []catalog.Code{catalog.Orphan, catalog.RemapFailed, catalog.Code(text)} {
			composed := string(Compose(about(c, index, bytes, pid&math.MaxInt32), 7, slurm.Epilog))
			known := c != catalog.Code(text)
			if len(composed) > MaxReason || known && (strings.ContainsAny(composed, "[]\n") || !Ours(composed)) {
				t.Errorf("%q", composed)
			}
		}
	})
}

const nvsentinel = "../../deploy/nvsentinel/slurm-drain-monitor.toml"

// The rules for NVSentinel's Slurm drain monitor have one pattern for each code that can be in a reason. As the monitor
// reads them, each reason is matched by the pattern of its own code, and another's reason by none.
func TestNVSentinelRules(t *testing.T) {
	head, _, _ := strings.Cut(must.Read(t, nvsentinel), "\n[[patterns]]\n")
	rules := head + patterns()
	golden.File(t, *update, nvsentinel, rules)
	for _, e := range catalog.All() {
		for _, phase := range []slurm.Context{slurm.Epilog, slurm.HealthCheck} {
			reason := string(Compose(record.Finding{Code: e.Code}, 42, phase))
			for _, split := range []string{"", "; "} {
				want := string(e.Code)
				if !inReasons(e) {
					want = ""
				}
				must.Be(t, reason, matched(rules, reason, split), want)
			}
		}
	}
	for _, other := range []string{slurm.EpilogError, "NHC: BKD-ORPHAN", "BKD-ORPHANS gpu=0", "slurm-operator: BKD-LOST", ""} {
		must.Be(t, other, matched(rules, other, "; "), "")
	}
}

// inReasons reports whether a node can be drained for a code.
func inReasons(e catalog.Entry) bool {
	return e.NeverDrains() == "" || e.Scope == catalog.Own && e.Severity != catalog.Note ||
		e.Code == catalog.Reset || e.Code == catalog.Diagnosed // a drain of ours gets them
}

// patterns are the rules. A leftover, a warning and an error of Bookend's are no fault of the node for NVSentinel.
func patterns() string {
	var text strings.Builder
	for _, e := range catalog.All() {
		class, action := "NODE", "NONE"
		isFatal := e.Severity == catalog.Serious && e.Memory == "" && e.Scope != catalog.Own
		if isFatal {
			action = "CONTACT_SUPPORT"
		}
		if e.Scope == catalog.Card {
			class = "GPU"
		}
		if inReasons(e) {
			fmt.Fprintf(&text, "\n[[patterns]]\n# %s\nname = %[2]q\nregex = '^%[2]s( |$)'\ncheckName = %[2]q\ncomponentClass = %q\n"+
				"isFatal = %t\nrecommendedAction = %q\n", e.Title, e.Code, class, isFatal, action)
		}
	}
	return text.String()
}

// matched returns the check names of the patterns that match a part of a reason.
func matched(rules, reason, split string) string {
	parts, names := []string{reason}, []string{}
	if split != "" {
		parts = strings.Split(reason, split)
	}
	for _, rule := range regexp.MustCompile(`(?m)^regex = '(.*)'\ncheckName = "(.*)"$`).FindAllStringSubmatch(rules, -1) {
		for _, part := range parts {
			if regexp.MustCompile(rule[1]).MatchString(strings.TrimSpace(part)) {
				names = append(names, rule[2])
			}
		}
	}
	return strings.Join(names, " ")
}
