package page

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/diagnosis"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/report"
)

const (
	nameWidth = 64  // of names from outside
	textWidth = 400 // of texts from outside
	stamp     = "2006-01-02 15:04:05"
)

func clean(name any) report.Safe { return report.Clean(fmt.Sprint(name), nameWidth) }

// Text makes a text from outside fit for the page, with "(user)" for the names that are not to be told, in paths,
// messages and names of processes. It takes the raw text: one that was cut may end in a part of a name.
func (s sheet) Text(raw string) report.Safe {
	if s.people != nil {
		for range 2 { // of two names side by side the second begins where the first took the border
			raw = s.people.ReplaceAllString(raw, "$1\x00$2")
		}
		raw = strings.ReplaceAll(raw, "\x00", "(user)")
	}
	return report.Clean(raw, textWidth)
}

// namesOf matches any of the names that stands as a word, with its borders as groups; nil for no names. Of names that
// begin alike the longest is found.
func namesOf(people []string) *regexp.Regexp {
	var names []string
	for _, name := range people {
		if name != "" && name != "root" {
			names = append(names, regexp.QuoteMeta(name))
		}
	}
	if len(names) == 0 {
		return nil
	}
	re := regexp.MustCompile(`(^|[^0-9A-Za-z])(?:` + strings.Join(names, "|") + `)([^0-9A-Za-z]|$)`)
	re.Longest()
	return re
}

func (s sheet) Nothing() bool {
	left := func(l Lane) bool { return len(l.Held) > 0 }
	return s.Chart.Jobs == 0 && len(s.Chart.Entries) == 0 && !slices.ContainsFunc(s.Chart.Lanes, left)
}

func (s sheet) Listed() []Entry { return s.Chart.Entries[:min(len(s.Chart.Entries), mostListed)] }

func (s sheet) Serious() (n int) {
	for _, e := range s.Chart.Entries {
		if e.Grave() >= 3 {
			n++
		}
	}
	return n
}

func (s sheet) Offender(c Card) bool { return slices.Contains(s.Offenders, c.ID) }

func model(c Card) report.Safe {
	text := strings.TrimPrefix(c.Name, "NVIDIA ")
	if c.Total.Known() && c.Total.Bytes > 0 {
		text += ", " + figure(c.Total)
	}
	return clean(text)
}

func cardName(c Card) string {
	switch {
	case c.Index != nil && c.Parent != "":
		return fmt.Sprintf("GPU %d (MIG)", *c.Index)
	case c.Index != nil:
		return fmt.Sprintf("GPU %d", *c.Index)
	case c.Minor != nil:
		return fmt.Sprintf("nvidia%d", *c.Minor)
	}
	return string(clean(c.ID))
}

func count(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}

func figure(f gpu.Figure) string {
	if !f.Known() {
		return "an unknown amount"
	}
	return diagnosis.Size(f.Bytes)
}

// Label is a block's name where it fits: letters are 6.6 pixels wide, lanes 600 at least.
func (k Block) Label() string {
	label := k.Job
	if k.Jobs > 1 {
		label = count(k.Jobs, "job", "jobs")
	}
	if k.Rows > 2 || (k.To-k.From)*600 < float64(len(label)+1)*6.6 {
		return ""
	}
	return label
}

// Of names a user, where that is wanted.
func (s sheet) Of(user string) string {
	if !s.Users || user == "" {
		return ""
	}
	return " of " + string(clean(user))
}

// Gravest is the finding that a mark looks like.
func (s sheet) Gravest(m Mark) Entry { return s.Chart.Entries[m.Entries[0]] }

// Link leads from a mark to its finding's row, or where that is not listed to the table.
func (s sheet) Link(m Mark) string {
	if m.Entries[0] >= mostListed {
		return "findings"
	}
	return fmt.Sprintf("f%d", m.Entries[0])
}

// LaneOf is the lane of a finding, -1 for one that concerns no card that is shown.
func (s sheet) LaneOf(e Entry) int {
	return slices.IndexFunc(s.Chart.Lanes, func(l Lane) bool { return l.Card.ID == e.GPU })
}

// shape tells findings apart without colour.
func shape(e Entry) string {
	return [...]string{"note", "note", "warning", "serious", "drained"}[e.Grave()]
}

func severity(e code.Entry) string { return shape(Entry{Kind: e}) }

// MarkTip is a mark's gravest finding: what, when, and what was made of it. The table has the rest.
func (s sheet) MarkTip(m Mark) string {
	e := s.Gravest(m)
	text := fmt.Sprintf("%s: %s\n%s, %s\n%s", clean(e.Kind.Code), e.Kind.Title, s.Occasion(e), e.At.Format(stamp),
		outcome(e))
	if more := len(m.Entries) - 1; more > 0 {
		text += fmt.Sprintf("\n\nand %d more", more)
	}
	return text
}

// Seen words what was seen and who holds it.
func (s sheet) Seen(e Entry) report.Safe {
	var parts []string
	if e.Bytes.Known() && e.Bytes.Bytes > 0 {
		parts = append(parts, figure(e.Bytes))
	}
	if e.Holder != nil {
		parts = append(parts, "process "+process(e.Holder.Process))
	}
	if e.Observed != "" {
		parts = append(parts, e.Observed)
	}
	if e.Unknown != "" {
		parts = append(parts, "unknown: "+e.Unknown)
	}
	if n := len(e.Candidates); e.Holder == nil && n > 0 {
		parts = append(parts, "maybe held by "+process(e.Candidates[0].Process))
		if n > 1 {
			parts = append(parts, fmt.Sprintf("or by %d more", n-1))
		}
	}
	return s.Text(strings.Join(parts, "; "))
}

func process(p finding.Process) string {
	switch {
	case p.Gone:
		return fmt.Sprintf("%d, which is gone", p.PID)
	case p.Name == "":
		return fmt.Sprint(p.PID)
	}
	return fmt.Sprintf("%d (%s)", p.PID, p.Name)
}

// whose words the job that a finding is blamed on, with its evidence.
func whose(e Entry) string {
	o := e.Owner
	if o == nil {
		return ""
	}
	text := fmt.Sprintf("of job %s (evidence: %s)", clean(o.JobName()), clean(o.Level))
	if o.Level.Weaker(finding.BySighting) {
		text = "probably " + text
	}
	return text
}

// Occasion words when a finding was made: at which end of which job.
func (s sheet) Occasion(e Entry) string {
	if e.Job == "" {
		return e.Phase
	}
	return fmt.Sprintf("%s of job %s%s", e.Phase, e.Job, s.Of(e.User))
}

// outcome words what policy made of a finding.
func outcome(e Entry) string {
	switch a := e.Judged.Action; {
	case e.Drained:
		return "drained the node"
	case a == config.Drain:
		return "to drain, held back"
	case a == config.Note:
		return "noted"
	case e.Judged.Why != "":
		return "warned, not drained"
	}
	return "warned"
}
