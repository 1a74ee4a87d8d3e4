// Package report words what a hook found, for the job's owner. It prints nothing and decides nothing: plain
// ASCII, 80 columns, one line where all is well, at most MaxLines otherwise.
package report

import (
	"fmt"
	"strings"
	"time"

	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/diagnosis"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/slurm"
)

// Bounds of a report.
const (
	MaxLines = 20
	Width    = 78 // of 80 columns: what writes the lines puts "| " in front
)

// Scene is what a report is made from.
type Scene struct {
	Node     string
	Job      slurm.Job
	Cards    []finding.Card
	Now      finding.Side
	Before   *finding.Side // at the end: what the start saw
	Probes   []gpu.Probe   // test allocations of the cards, at a start perhaps an earlier hook's
	Findings []finding.Finding
	Verdict  finding.Verdict
	Privacy  config.Privacy
	// Why is the answer to why the job ran out of memory; nil where nobody is to be told.
	Why *diagnosis.Diagnosis
	// WallNow and BootNow are one moment on two clocks: they turn process start times into times of day.
	WallNow time.Time
	BootNow time.Duration
}

// Start is the text for the beginning of the job's log.
func Start(s Scene) []Safe { return s.render(startWords) }

// End is the text for the end of the job's log.
func End(s Scene) []Safe { return s.render(endWords) }

// Clean reports whether there is nothing to tell beyond one line.
func (s Scene) Clean() bool { return len(s.told()) == 0 && len(s.ended()) == 0 && !s.asked() }

// told are the findings that the job's owner is told: about cards or the driver, and not ignored or noted.
func (s Scene) told() []finding.Finding {
	var out []finding.Finding
	for i, f := range s.Findings {
		if s.Verdict.Tells(i) && f.Code != code.Ended && !privateToAdmin(f) {
			out = append(out, f)
		}
	}
	return out
}

func (s Scene) render(w words) []Safe {
	told, text := s.told(), s.ended()
	if len(told) == 0 {
		if text = append(text, s.quiet(w)); len(text) > 1 {
			text = append(text, doEnd)
		}
		return s.withWhy(s.lines(text), nil)
	}
	for _, id := range s.subjects(told) {
		text = append(text, s.paragraph(w, id, told)...)
	}
	body, closing := s.lines(text), s.lines(w.closing(s, told))
	if s.asked() {
		return s.withWhy(body, closing)
	}
	return append(s.cut(body, MaxLines-len(closing)), closing...)
}

// subjects lists what the findings are about, each once: cards in Slurm's order, then the rest.
func (s Scene) subjects(told []finding.Finding) []subject {
	var out []subject
	for _, c := range s.Cards {
		out = append(out, subject{id: c.Device.ID, name: fmt.Sprintf("GPU %d", c.Index)})
	}
	out = append(out, subject{name: "the GPU driver"})
	var present []subject
	for _, sub := range out {
		for _, f := range told {
			if f.GPU == sub.id {
				present = append(present, sub)
				break
			}
		}
	}
	return present
}

// paragraph is one subject's title and a line or two for each finding about it.
func (s Scene) paragraph(w words, sub subject, told []finding.Finding) []string {
	var about []finding.Finding
	for _, f := range told {
		if f.GPU == sub.id {
			about = append(about, f)
		}
	}
	text := []string{s.title(w, sub, about)}
	for _, f := range about {
		text = append(text, s.sentence(w, f, text[0])...)
	}
	return text
}

// lines prefixes and wraps a text.
func (s Scene) lines(text []string) []Safe {
	var out []Safe
	for _, t := range text {
		lead := prefix
		if strings.HasPrefix(t, " ") {
			t = strings.TrimLeft(t, " ")
			lead += "  "
		}
		out = append(out, wrap(lead, t)...)
	}
	return out
}

// cut bounds the findings, so that what to do about them is never cut off.
func (s Scene) cut(body []Safe, room int) []Safe {
	if len(body) <= room {
		return body
	}
	rest := fmt.Sprintf("%s  and %d more lines, for your admin: bookend show %d on %s", prefix, len(body)-room+1,
		s.Job.ID, s.Node)
	return append(body[:room-1], Clean(rest, Width))
}

const prefix = "bookend: "

// wrap breaks a line at blanks; what follows the first piece is indented under its label.
func wrap(lead, text string) []Safe {
	indent := strings.Repeat(" ", labelWidth(text))
	var out []Safe
	line := lead
	for _, word := range strings.Fields(text) {
		if len(line)+len(word) > Width && strings.TrimSpace(line) != strings.TrimSpace(lead) {
			out = append(out, Keep(strings.TrimRight(line, " "), Width))
			line = lead + indent
		}
		line += word + " "
		if strings.HasSuffix(word, ":") && strings.HasPrefix(text, word) && len(indent) > 0 {
			line += strings.Repeat(" ", max(0, len(lead)+len(indent)-len(line)))
		}
	}
	return append(out, Keep(strings.TrimRight(line, " "), Width))
}

// labelWidth is the column where the text after a "Label:" starts, 0 without a label.
func labelWidth(text string) int {
	label, _, ok := strings.Cut(text, ": ")
	if !ok || strings.Contains(label, " ") || len(label) > 7 {
		return 0
	}
	return 8
}
