package page

import (
	"fmt"
	"strings"
	"time"

	"bookend/internal/attrib"
	"bookend/internal/config"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/report"
)

const (
	nameWidth = 64  // of names from outside
	textWidth = 400 // of texts from outside
	stamp     = "2006-01-02 15:04:05"
)

// words are texts without what is not to be told.
type words struct {
	chart  Chart
	users  bool
	hidden []string
	lemons []gpu.ID
}

func (r Report) words() words {
	k := words{chart: r.Chart, users: r.Users, lemons: r.Lemons}
	if !r.Users {
		k.hidden = r.People
	}
	return k
}

// text makes a text from outside fit for the page.
func (k words) text(raw string, most int) report.Safe {
	return report.Clean(hide(raw, k.hidden), most)
}

// figure words bytes.
func figure(f gpu.Figure) string {
	switch {
	case !f.Known():
		return "an unknown amount"
	case f.Bytes >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(f.Bytes)/(1<<30))
	}
	return fmt.Sprintf("%d MiB", f.Bytes>>20)
}

// span words the time shown.
func span(since, until time.Time) string {
	if since.Year() == until.Year() && since.YearDay() == until.YearDay() {
		return since.Format("2 January 2006, 15:04") + " to " + until.Format("15:04")
	}
	return since.Format("2 January 2006, 15:04") + " to " + until.Format("2 January 2006, 15:04")
}

// zone is that of the time shown, which may change meanwhile.
func zone(since, until time.Time) string {
	begins, ends := offset(since), offset(until)
	if begins == ends {
		return begins
	}
	return begins + ", at the end " + ends
}

func offset(t time.Time) string {
	if _, seconds := t.Zone(); seconds == 0 {
		return "UTC"
	}
	return "UTC" + t.Format("-07:00")
}

// lasting words a duration in two units at most.
func lasting(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%d d %d h", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
	case d >= time.Hour:
		return fmt.Sprintf("%d h %d min", d/time.Hour, d%time.Hour/time.Minute)
	case d >= time.Minute:
		return fmt.Sprintf("%d min %d s", d/time.Minute, d%time.Minute/time.Second)
	}
	return fmt.Sprintf("%d s", d/time.Second)
}

func count(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}

// cardName is a card as an admin speaks of it.
func cardName(c Card) string {
	switch {
	case c.Index != nil && c.Parent != "":
		return fmt.Sprintf("GPU %d (MIG)", *c.Index)
	case c.Index != nil:
		return fmt.Sprintf("GPU %d", *c.Index)
	case c.Minor != nil:
		return fmt.Sprintf("nvidia%d", *c.Minor)
	}
	return string(report.Clean(string(c.ID), shortID))
}

// shortID is the length of an id where it is the name of its card.
const shortID = 14

// seen words what was seen and who holds it.
func (k words) seen(e Entry) report.Safe {
	var parts []string
	if e.Bytes.Known() && e.Bytes.Bytes > 0 {
		parts = append(parts, figure(e.Bytes))
	}
	if e.Holder != nil && (!e.Holder.Gone || e.Observed == "") {
		parts = append(parts, "process "+process(e.Holder.Process))
	}
	for _, text := range []string{observed(e.Finding), unknown(e.Unknown)} {
		if text != "" {
			parts = append(parts, text)
		}
	}
	if e.Holder == nil && len(e.Candidates) > 0 {
		parts = append(parts, "maybe held by "+candidates(e))
	}
	return k.text(strings.Join(parts, "; "), textWidth)
}

// observed is what was seen, less the process that stands before it.
func observed(f finding.Finding) string {
	if f.Ended.Signal() != "" && f.Holder != nil {
		return f.Ended.Text()
	}
	return f.Observed
}

func unknown(why string) string {
	if why == "" {
		return ""
	}
	return "unknown: " + why
}

func process(p attrib.Process) string {
	switch {
	case p.Gone:
		return fmt.Sprintf("%d, which is gone", p.PID)
	case p.Name == "":
		return fmt.Sprint(p.PID)
	}
	return fmt.Sprintf("%d (%s)", p.PID, p.Name)
}

// mostCandidates is how many processes that may hold something are named.
const mostCandidates = 3

func candidates(e Entry) string {
	var names []string
	for _, c := range e.Candidates[:min(len(e.Candidates), mostCandidates)] {
		names = append(names, process(c.Process))
	}
	if more := len(e.Candidates) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}

// whose words the job that a finding is blamed on, with its evidence.
func whose(e Entry) string {
	o := e.Owner
	if o == nil {
		return ""
	}
	job := "job " + string(report.Clean(o.JobName(), nameWidth))
	text := fmt.Sprintf("of %s (evidence: %s)", job, report.Clean(string(o.Level), nameWidth))
	if o.Level.Weaker(attrib.BySighting) {
		text = "probably " + text
	}
	return text
}

// occasion words when a finding was made: at which end of which job.
func (k words) occasion(e Entry) string {
	if e.Job == "" {
		return string(e.Phase)
	}
	text := fmt.Sprintf("%s of job %s", e.Phase, e.Job)
	if k.users && e.User != "" {
		text += " of " + string(report.Clean(e.User, nameWidth))
	}
	return text
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
