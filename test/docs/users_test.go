// Package docs checks what the documents show: every sample of Bookend's lines is made by the programs' own code, every
// link leads somewhere.
package docs

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"bookend/internal/diagnosis"
	"bookend/internal/joblog"
	"bookend/internal/report"
	"bookend/test/golden"
	"bookend/test/must"
)

var update = flag.Bool("update", false, "rewrite the samples in docs/users.md, docs/cli.md and README.md")

var samples = regexp.MustCompile("(?s)<!-- sample: ([a-z ]+) -->\n(?:```\n(.*?)```\n)?")

// TestSamples makes each sample anew: from a job's two ends and its output to the lines that its owner reads.
func TestSamples(t *testing.T) {
	made := map[string]bool{}
	for _, page := range []string{"../../docs/users.md", "../../README.md", "../../docs/cli.md"} {
		text := must.Read(t, page)
		want := samples.ReplaceAllStringFunc(text, func(block string) string {
			name := samples.FindStringSubmatch(block)[1]
			made[name] = true
			return "<!-- sample: " + name + " -->\n```\n" + sample(t, name) + "```\n"
		})
		golden.File(t, *update, page, want)
		for line := range strings.SplitSeq(samples.ReplaceAllString(text, ""), "\n") {
			must.Not(t, strings.HasPrefix(line, "| bookend: "), "%s shows %q outside of a sample", page, line)
		}
	}
	for name := range screens {
		must.Not(t, !made[name], "no document shows the screen %q", name)
	}
	for name := range scenes {
		must.Not(t, !made[name] && plain[name] == nil, "no document shows the sample %q", name)
	}
}

var faultTable = regexp.MustCompile(`(?m)^(<!-- table: output faults -->\n)(?:\|.*\n)*`)

// TestOutputFaults: what the report says of an error in a job's output stands in the document, row by row.
func TestOutputFaults(t *testing.T) {
	const page = "../../docs/users.md"
	rows := "| your output says | it reports | what it means, and what to try |\n| --- | --- | --- |\n"
	for _, f := range diagnosis.OutputFaults() {
		rows += fmt.Sprintf("| `%s` | %s | %s Try: %s |\n", strings.Join(f.Says, "`, `"), f.Claim, f.Means, f.Try)
	}
	text := must.Read(t, page)
	must.Not(t, !faultTable.MatchString(text), "%s has no place for the table", page)
	golden.File(t, *update, page, faultTable.ReplaceAllStringFunc(text, func(block string) string {
		head, _, _ := strings.Cut(block, "\n")
		return head + "\n" + rows
	}))
}

// sample renders a scene as the job's output shows it.
func sample(t *testing.T, name string) string {
	t.Helper()
	if draw, ok := screens[name]; ok {
		return draw(t)
	}
	make, ok := scenes[name]
	if !ok {
		t.Fatalf("no scene for the sample %q", name)
	}
	s := make()
	if s.start {
		return joblog.Quote(report.Start(s.scene()))
	}
	return joblog.Quote(report.End(s.scene()))
}

// TestEveryCauseHasASection: bookend show's row with YES is in the list that leads to the sections.
func TestEveryCauseHasASection(t *testing.T) {
	text := must.Read(t, "../../docs/users.md")
	for _, c := range diagnosis.Why(diagnosis.Input{}).Causes {
		if !regexp.MustCompile(`(?m)^\|[^|]*\| ([^|:]*, )?` + regexp.QuoteMeta(c.Name.Title()) +
			`(, [^|:]*)?(: [^|]*)? \| \[\d+\]\(#`).MatchString(text) {
			t.Errorf("docs/users.md leads nowhere from the row %q", c.Name.Title())
		}
	}
}

var sizes = regexp.MustCompile(`[0-9.]+ (G|M)iB`)

// TestEveryHeadlineIsExplained: whoever reads no YES finds the headline, as Bookend words it, in the table of
// headlines.
func TestEveryHeadlineIsExplained(t *testing.T) {
	text := must.Read(t, "../../docs/users.md")
	for name, make := range plain {
		s := make()
		s.listen()
		headline := strings.ReplaceAll(diagnosis.Why(s.Input).Headline, "n1", "NODE")
		headline = sizes.ReplaceAllString(headline, "X")
		headline = strings.ReplaceAll(headline, "(exit code 1)", "(...)")
		if _, behind, asked := strings.Cut(headline, "Why out of memory: "); asked {
			headline = behind
		}
		for _, lead := range []string{"Seen while your job ran: ", "Found: ", "its output reports ", "A kernel wanted more shared memory "} {
			if before, _, ok := strings.Cut(headline, lead); ok {
				headline = before + lead + "..."
			}
		}
		must.Not(t, headline == "" || !strings.Contains(text, "\n| `"+headline+"` | "),
			"%s: docs/users.md does not explain the headline %q", name, headline)
	}
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	dropped = regexp.MustCompile(`[^a-z0-9 _-]`)
)

// TestLinks follows the links of all pages.
func TestLinks(t *testing.T) {
	pages, _ := filepath.Glob("../../*.md")
	for _, folder := range []string{"docs", "deploy"} {
		more, _ := filepath.Glob("../../" + folder + "/*.md")
		pages = append(pages, more...)
	}
	if len(pages) < 20 {
		t.Fatalf("only %d pages: %q", len(pages), pages)
	}
	for _, page := range pages {
		folder := filepath.Dir(page) + "/"
		for _, m := range link.FindAllStringSubmatch(must.Read(t, page), -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			file := folder + target
			if target == "" {
				file = page
			}
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s links to %s: %v", page, m[1], err)
				continue
			}
			must.Not(t, anchor != "" && !slices.Contains(anchors(must.Read(t, file)), anchor),
				"%s links to %s, and there is no such heading", page, m[1])
		}
	}
}

// anchors are the headings of a page as GitHub names them.
func anchors(text string) []string {
	var all []string
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		name := dropped.ReplaceAllString(strings.ToLower(m[1]), "")
		all = append(all, strings.ReplaceAll(name, " ", "-"))
	}
	return all
}
