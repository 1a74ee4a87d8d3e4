// Package page renders "bookend report", a web page of a node's records over time.
package page

import (
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/safetext"
)

// Page shows a node's records over time. It is self-contained, and usable without scripts, on paper and by keyboard.
type Page struct {
	Node      string
	Chart     Chart
	Offenders []gpu.ID // the GPUs that had the same finding in several runs
	Damaged   []string // the records that cannot be used, and why
	Made      time.Time
	Version   string
	Copy      bool // true for records copied from elsewhere: the current state is unknown
	// Users shows the names of the jobs' users. If false, these names, listed in People, are replaced.
	Users  bool
	People []string
}

//go:embed page.html.tmpl
var markup string

// Style is the style sheet of Bookend's pages.
//
//go:embed page.css
var Style string

//go:embed page.js
var script string

// textWidth limits quoted text. Names from outside are always shorter.
const textWidth = 400

// mostListed limits the table of findings so that the page opens quickly.
const mostListed = 500

// sheet is a Page as the template uses it. Its methods and the functions below make every text safe.
type sheet struct {
	Page
	people *regexp.Regexp // nil if users are shown
	Style  template.CSS
	Script template.JS
}

var functions = template.FuncMap{
	"percent": func(part float64) string { return fmt.Sprintf("%.3f%%", part*100) }, "clean": safe, "plural": plural,
	"width": func(from, to float64) string { return fmt.Sprintf("%.3f%%", (to-from)*100) },
	"name":  gpuName, "model": model, "shape": shape, "owner": ownerText, "outcome": outcome,
	"stamp": stamp, "figure": figure,
	"severity": func(e catalog.Entry) string { return shape(Entry{Kind: e}) },
	"moment":   func(t time.Time) string { return t.Local().Format("2 January 2006, 15:04 (UTC-07:00)") },
}

func NewPage(node string, runs []record.Run, r Request) Page {
	p := Page{Node: node, Chart: Lay(runs, r)}
	for _, r := range runs {
		p.People = append(p.People, strings.TrimSpace(r.Job.User))
	}
	return p
}

func (r Page) Write(w io.Writer) error {
	s := sheet{Page: r, Style: template.CSS(Style), Script: template.JS(script)}
	if !r.Users {
		s.people = namesOf(r.People)
	}
	t, err := template.New("page").Funcs(functions).Parse(markup)
	if err == nil {
		err = t.Execute(w, s)
	}
	if err != nil {
		return fmt.Errorf("write page: %w", err)
	}
	return nil
}

func (sheet) Policy() string { return Policy(Style, script) }

// Policy allows only a page's own style and script. Threat: text rendered as markup that runs or loads something.
func Policy(style, script string) string {
	hash := func(text string) string {
		sum := sha256.Sum256([]byte(text))
		return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	return fmt.Sprintf("default-src 'none'; style-src %s; script-src %s; base-uri 'none'; form-action 'none'",
		hash(style), hash(script))
}

func safe(name any) safetext.Safe { return safetext.Clean(fmt.Sprint(name), 64) }

// Text makes text from outside safe for the page, and replaces user names by "(user)" if users are not shown. It needs
// the raw text: a truncated one may end within a name.
func (s sheet) Text(raw string) safetext.Safe {
	if s.people != nil {
		for range 2 { // of two adjacent names, the first match takes the separator that the second needs
			raw = s.people.ReplaceAllString(raw, "$1\x00$2")
		}
		raw = strings.ReplaceAll(raw, "\x00", "(user)")
	}
	return safetext.Clean(raw, textWidth)
}

// namesOf matches any of the names as a word, preferring the longest; nil if there are none.
func namesOf(people []string) *regexp.Regexp {
	var names []string
	slices.Sort(people)
	for _, name := range slices.Compact(people) {
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

func (s sheet) Empty() bool {
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

func (s sheet) Offender(c GPU) bool { return slices.Contains(s.Offenders, c.Device.ID) }

func stamp(t time.Time) string {
	if t.IsZero() {
		return "unknown"
	}
	return t.Local().Format(time.DateTime)
}

func plural(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s%s", n, one, more)
}

func model(c GPU) safetext.Safe {
	text := strings.TrimPrefix(c.Device.Name, "NVIDIA ")
	if c.Total.Known() && c.Total.Bytes > 0 {
		text += ", " + figure(c.Total)
	}
	return safe(text)
}

func gpuName(c GPU) string {
	switch {
	case c.Index != nil && c.Device.Parent != "":
		return fmt.Sprintf("GPU %d (MIG)", *c.Index)
	case c.Index != nil:
		return fmt.Sprintf("GPU %d", *c.Index)
	}
	return cmp.Or(c.Device.Node(), string(safe(c.Device.ID)))
}

func figure(f gpu.Figure) string { return f.Text("an unknown amount") }

// Label returns a block's name if it fits: letters are 6.6 pixels wide, lanes at least 600.
func (k Block) Label() string {
	label := k.Job
	if k.Jobs > 1 {
		label = plural(k.Jobs, "job", "s")
	}
	if k.Rows > 2 || (k.To-k.From)*600 < float64(len(label)+1)*6.6 {
		return ""
	}
	return label
}

// Of returns " of " and the user's name, or nothing if users are not shown.
func (s sheet) Of(user string) string {
	if !s.Users || user == "" {
		return ""
	}
	return " of " + string(safe(user))
}

// Gravest returns the finding that determines a mark's appearance.
func (s sheet) Gravest(m Mark) Entry { return s.Chart.Entries[m.Entries[0]] }

// Link returns the anchor of a mark's finding in the table, or of the table if the finding is not listed.
func (s sheet) Link(m Mark) string {
	if m.Entries[0] >= mostListed {
		return "findings"
	}
	return fmt.Sprintf("f%d", m.Entries[0])
}

// LaneOf returns the index of a finding's lane, or -1 if it concerns no GPU that is shown.
func (s sheet) LaneOf(e Entry) int {
	return slices.IndexFunc(s.Chart.Lanes, func(l Lane) bool { return l.GPU.Device.ID == e.Finding.GPU })
}

func shape(e Entry) string {
	return [...]string{"note", "note", "warning", "serious", "drained"}[e.Grave()]
}

// MarkTip describes a mark's most serious finding: what, when, and what policy decided. The table has the others.
func (s sheet) MarkTip(m Mark) string {
	e := s.Gravest(m)
	text := fmt.Sprintf("%s: %s\n%s, %s\n%s", safe(e.Kind.Code), e.Kind.Title, s.Occasion(e), stamp(e.At),
		outcome(e))
	if more := len(m.Entries) - 1; more > 0 {
		text += fmt.Sprintf("\n\nand %d more", more)
	}
	return text
}

// Seen describes what was found and which process holds it.
func (s sheet) Seen(e Entry) safetext.Safe {
	var parts []string
	f := e.Finding
	if f.Bytes.Known() && f.Bytes.Bytes > 0 {
		parts = append(parts, figure(f.Bytes))
	}
	if f.Holder != nil {
		parts = append(parts, "process "+process(f.Holder.Process))
	}
	if f.Observed != "" {
		parts = append(parts, f.Observed)
	}
	if f.Unknown != "" {
		parts = append(parts, "unknown: "+f.Unknown)
	}
	if n := len(f.Candidates); f.Holder == nil && n > 0 {
		parts = append(parts, "maybe held by "+process(f.Candidates[0].Process))
		if n > 1 {
			parts = append(parts, fmt.Sprintf("or by %d more", n-1))
		}
	}
	return s.Text(strings.Join(parts, "; "))
}

func process(p record.Process) string {
	switch {
	case p.Gone:
		return fmt.Sprintf("%d, which is gone", p.PID)
	case p.Name == "":
		return fmt.Sprint(p.PID)
	}
	return fmt.Sprintf("%d (%s)", p.PID, p.Name)
}

func ownerText(e Entry) string {
	o := e.Finding.Owner
	if o == nil {
		return ""
	}
	if !o.Named() {
		return fmt.Sprintf("of no job (evidence: %s)", safe(o.Level))
	}
	text := fmt.Sprintf("of job %s (evidence: %s)", safe(o.JobName()), safe(o.Level))
	if o.Level.Weaker(record.BySighting) {
		text = "probably " + text
	}
	return text
}

// Occasion describes when a finding was made: at which end of which job.
func (s sheet) Occasion(e Entry) string {
	if e.Job == "" {
		return e.Phase
	}
	return fmt.Sprintf("%s of job %s%s", e.Phase, e.Job, s.Of(e.User))
}

func outcome(e Entry) string {
	switch a := e.Judged.Action; {
	case e.Drained:
		return "drained the node"
	case a == catalog.ToDrain:
		return "would drain"
	case a == catalog.ToNote:
		return "noted"
	case e.Judged.Why != "":
		return "warned, not drained"
	}
	return "warned"
}
