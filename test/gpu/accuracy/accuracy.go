package main

import (
	"fmt"
	"slices"
	"strings"

	"bookend/test/gpu/record"
)

const noRecords = "\nThere is no record yet.\n"

// accuracy renders the page of scenarios, and of what programs say.
func accuracy(files []record.File, said string) string {
	files = slices.DeleteFunc(slices.Clone(files), func(f record.File) bool { return len(f.Runs) == 0 })
	var b strings.Builder
	b.WriteString(head("accuracy"))
	if len(files) == 0 {
		return b.String() + noRecords + said
	}
	all := byScenario(files)
	b.WriteString("\n## Result\n\n| scenario | what is true | right | verdict | evidence | settle time |\n| --- | " +
		"--- | --- | --- | --- | --- |\n")
	for _, s := range all {
		if len(s.runs) > 0 {
			b.WriteString(s.result())
		}
	}
	b.WriteString(whys(all) + said + testTable(all) + holeTable(all) + healthTable(all) + controls(all))
	b.WriteString("\n## Machines\n\n")
	b.WriteString(machines(files))
	for _, s := range all {
		if len(s.runs) > 0 {
			b.WriteString(s.section())
		}
	}
	return b.String()
}

// result is a scenario's line: what was said of it in all its runs.
func (s *scenario) result() string {
	right := fmt.Sprintf("%d of %d", s.count(record.Right), len(s.runs))
	for _, o := range []record.Outcome{record.Wrong, record.Broken} {
		if n := s.count(o); n > 0 {
			right += fmt.Sprintf(", %d %s", n, o)
		}
	}
	return fmt.Sprintf("| [%s](#%s) | %s | %s | %s | %s | %s |\n", s.title, anchor(s.title), s.truth, right,
		s.each(run.verdict), s.each(run.evidence), s.settleTimes())
}

// each gathers what the runs say, every different answer once.
func (s *scenario) each(say func(run) string) string {
	var all []string
	for _, r := range s.runs {
		if text := say(r); !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	return strings.Join(all, " *or* ")
}

// controls renders the table of runs with a rule switched off.
func controls(all []*scenario) string {
	var b strings.Builder
	for _, s := range all {
		for _, r := range s.controls {
			caught := "yes"
			if !r.AsItShould() {
				caught = "**no: it is called " + string(r.Outcome) + "**"
			}
			fmt.Fprintf(&b, "| %s%d | [%s](#%s) | `%s` | %s | %s |\n", r.from, r.Number, s.title, anchor(s.title),
				oneLine(r.Control), caught, r.firstComplaint())
		}
	}
	if b.Len() == 0 {
		return ""
	}
	return "\n## Controls\n\n| run | scenario | switched off | called wrong | by the check, among others |\n| --- " +
		"| --- | --- | --- | --- |\n" + b.String()
}

func machines(files []record.File) string {
	var b strings.Builder
	b.WriteString("| | date | GPUs | driver | kernel | system | Slurm, tracking | PyTorch | Bookend | numbering | " +
		"command |\n")
	b.WriteString("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n")
	for i, f := range files {
		m := f.Machine
		fmt.Fprintf(&b, "| %s | %s | %d × %s | %s | %s | %s | %s, %s | %s | %s | %s | `%s` |\n", name(i),
			f.Date.Format("2006-01-02 15:04"),
			m.GPUs, m.GPU, m.Driver, m.Kernel, m.System, m.Slurm, m.Track, orDash(m.Torch), m.Bookend,
			orDash(m.Orders), f.Command)
	}
	return b.String()
}

// name is a record's letter.
func name(i int) string { return string(rune('A' + i)) }

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// anchor is the link to a heading, as GitHub makes it.
func anchor(title string) string {
	var b strings.Builder
	for _, c := range strings.ToLower(title) {
		switch {
		case c == ' ':
			b.WriteByte('-')
		case c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-':
			b.WriteRune(c)
		}
	}
	return b.String()
}

// scenario is all runs of one, over all records.
type scenario struct {
	id, title, truth string
	runs, controls   []run
}

type run struct {
	from string // the record's letter
	record.Run
}

// byScenario gathers runs in the order in which scenarios first appear.
func byScenario(files []record.File) []*scenario {
	var all []*scenario
	for i, f := range files {
		for _, r := range f.Runs {
			at := slices.IndexFunc(all, func(s *scenario) bool { return s.id == r.Scenario })
			if at < 0 {
				at = len(all)
				all = append(all, &scenario{id: r.Scenario})
			}
			s := all[at]
			s.title, s.truth = r.Title, r.Truth // the latest wording
			if r.Control != "" {
				s.controls = append(s.controls, run{name(i), r})
			} else {
				s.runs = append(s.runs, run{name(i), r})
			}
		}
	}
	return all
}

func (s *scenario) count(o record.Outcome) (n int) {
	for _, r := range s.runs {
		if r.Outcome == o {
			n++
		}
	}
	return n
}
