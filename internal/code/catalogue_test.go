package code

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite docs/findings.md")

const doc = "../../docs/findings.md"

func TestCatalogueHasEveryCodeOnce(t *testing.T) {
	want := declaredCodes(t)
	seen := map[Code]bool{}
	for _, e := range All() {
		if seen[e.Code] {
			t.Errorf("%s stands twice in the catalogue", e.Code)
		}
		seen[e.Code] = true
		if !want[e.Code] {
			t.Errorf("%s is in the catalogue and is no constant", e.Code)
		}
	}
	for c := range want {
		if !seen[c] {
			t.Errorf("%s is not in the catalogue", c)
		}
	}
	if len(want) < 30 {
		t.Errorf("found only %d constants of type Code", len(want))
	}
}

// declaredCodes reads the constants of type Code from code.go.
func declaredCodes(t *testing.T) map[Code]bool {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "code.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	codes := map[Code]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if typ, ok := spec.Type.(*ast.Ident); !ok || typ.Name != "Code" {
			return true
		}
		text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		codes[Code(text)] = true
		return true
	})
	return codes
}

func TestEntriesAreComplete(t *testing.T) {
	grammar := regexp.MustCompile(`^BKD-[A-Z]+(-[A-Z]+)?$`)
	for _, e := range All() {
		if !grammar.MatchString(string(e.Code)) || len(e.Code) > 16 {
			t.Errorf("%q: a code must fit the 20 characters sinfo -R shows", e.Code)
		}
		if len(e.Title) == 0 || len(e.Title) > 40 {
			t.Errorf("%s: title %q must have 1 to 40 characters", e.Code, e.Title)
		}
		for trait, action := range map[string]Action{"Start": e.Start, "End": e.End} {
			if !slices.Contains([]Action{ToIgnore, ToNote, ToWarn, ToDrain}, action) {
				t.Errorf("%s: fill in Traits.%s, what the shipped policy does with it: %q", e.Code, trait, action)
			}
		}
		switch {
		case e.Memory != "" && (e.Scope != Card || e.Condition || e.Gone != Fact{}):
			t.Errorf("%s: Traits.Memory is for what lies on a job's GPU, which a look at it can verify", e.Code)
		case e.Milder != "" && !e.Condition, e.Gone != Fact{} && !e.Condition:
			t.Errorf("%s: Traits.Milder and Gone are for a GPU's condition: set Condition", e.Code)
		case e.Doubtful && e.Fault == "":
			t.Errorf("%s: Traits.Doubtful needs Fault, what failed", e.Code)
		case (e.Start == ToDrain || e.End == ToDrain) && e.Exit == 0:
			t.Errorf("%s drains as shipped: fill in Traits.Exit", e.Code)
		}
		for _, text := range []string{e.Meaning, e.Remedy} {
			if !strings.HasSuffix(text, ".") {
				t.Errorf("%s: %q is no sentence", e.Code, text)
			}
		}
		for _, r := range e.Title + e.Meaning + e.Remedy {
			if r < ' ' || r > '~' {
				t.Errorf("%s: %q is not plain ASCII", e.Code, r)
			}
		}
		if e.Severity != Note && e.Severity != Warning && e.Severity != Serious {
			t.Errorf("%s: severity %q", e.Code, e.Severity)
		}
		if e.Scope != Card && e.Scope != Elsewhere && e.Scope != Driver && e.Scope != Own {
			t.Errorf("%s: scope %q", e.Code, e.Scope)
		}
		if _, ok := whose[e.Whose]; !ok {
			t.Errorf("%s: whose %q", e.Code, e.Whose)
		}
	}
}

func TestLookup(t *testing.T) {
	if e, ok := Lookup(Stuck); !ok || e.Code != Stuck {
		t.Errorf("Lookup(%s) = %v, %v", Stuck, e, ok)
	}
	if e, ok := Lookup("BKD-NOSUCH"); ok || e != (Entry{}) {
		t.Errorf("Lookup of no code = %v, %v", e, ok)
	}
	All()[0].Title = "changed"
	if All()[0].Title == "changed" {
		t.Error("All hands out the catalogue itself")
	}
}

func TestFindingsDoc(t *testing.T) {
	want := findingsDoc()
	if *update {
		if err := os.WriteFile(doc, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(doc)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s differs from the catalogue: run go test ./internal/code -update", doc)
	}
}

var whose = map[Whose]string{
	Job:  "the job that is named",
	Node: "the node",
	Site: "how Bookend is set up",
	Self: "Bookend",
	None: "nobody",
}

var scopes = []struct {
	scope Scope
	head  string
}{
	{Card, "On one card of the job"},
	{Elsewhere, "On another card of the node"},
	{Driver, "On the driver as a whole"},
	{Own, "On Bookend itself"},
}

// evidenceDoc explains package attrib's levels, which findings carry and "bookend show" words.
const evidenceDoc = `
## Evidence
A process is blamed on a job only together with the evidence for it, never because of its user alone. Strongest first:

| level | what was seen | how a user reads it |
| --- | --- | --- |
| cgroup | the process is in the job's cgroup | this job |
| sighting | an earlier hook saw this very process (PID and start time) in the job's cgroup | this job |
| exclusive | it belongs to the job's user and started while that job had the card alone, and its environment names no other job | probably this job |
| environment | SLURM_JOB_ID in its environment names the job, and it belongs to the job's user: a hint, as a process can write there what it likes | probably this job |
| none | nothing of all that: the job is not named | |

Memory without a process is blamed on the ended job, as exclusive, where it came while that job had the card alone. A
later job is told of it with the evidence that was found then. If another ended job fits as well, no job is named.

*Probably* can be wrong: ` + "`make soak`" + ` plays jobs on simulated nodes that are made to mislead, and allows one wrong name in 20 000.

## Holders
What kind of process holds a card, or may hold it. One can be of several kinds.

| class | what it is |
| --- | --- |
| orphan | its job has ended |
| phantom | the driver lists it, but it is gone: whoever has the card open keeps its memory alive |
| exported | a candidate: it has the driver open and nothing that explains why, so it may hold an exported handle |
| stopped | stopped by a signal (state T); SIGKILL ends it |
| dying | a zombie whose threads live on, or in uninterruptible sleep (state D) |
| mps | NVIDIA's Multi-Process Service: its server, its daemon or a client |
| container | in a container, or in another PID namespace |
| system | a service of the system manager: no job's |

A descriptor proves a holder, not bytes: a candidate is never blamed by that alone.
`

func findingsDoc() string {
	var b strings.Builder
	b.WriteString(`# Findings
Each finding has a code that never changes its meaning. What a finding leads to (` + "`ignore`, `note`, `warn`, `drain`" + `)
is policy: see [the configuration](config.md). This page is generated from the catalogue by ` +
		"`go test ./internal/code -update`" + `.
` + evidenceDoc)
	for _, s := range scopes {
		fmt.Fprintf(&b, "\n## %s\n\n| code | | |\n| --- | --- | --- |\n", s.head)
		for _, e := range All() {
			if e.Scope == s.scope {
				fmt.Fprintf(&b, "| [%s](#%s) | %s | %s |\n", e.Code, strings.ToLower(string(e.Code)), e.Title, e.Severity)
			}
		}
		for _, e := range All() {
			if e.Scope == s.scope {
				fmt.Fprintf(&b, "\n### %s\n**%s.** %s\n\n*Whose problem:* %s. *What to do:* %s\n",
					e.Code, upperFirst(e.Title), e.Meaning, whose[e.Whose], e.Remedy)
			}
		}
	}
	return b.String()
}

func upperFirst(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
