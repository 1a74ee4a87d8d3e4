package main

import (
	"fmt"
	"slices"
	"strings"

	"bookend/test/gpu/record"
)

const accuracyHead = `# Accuracy
What Bookend says of real GPUs, against what is true. Small real programs leave memory behind in known ways, jobs run
as an unprivileged user under a real Slurm, and each run is judged by machine: a run is *right* if every one of its
checks is (codes, process, bytes, card, owner and evidence, exit code, the node's state, the words in the job's log),
*wrong* if one is not, and *broken* if the scene itself did not come about, so that nothing was judged. Bytes count
as right within 64 MiB of what nvidia-smi says the process holds.

This page is made by ` + "`go run ./test/gpu/accuracy`" + ` from the [raw records](../test/gpu/records) alone, which hold every check,
both ends of each job, its log, and nvidia-smi's output at each point. ` + "`make gpu-test`" + ` makes such records.
`

const noRecords = "\nThere is no record yet.\n"

// accuracy renders the page of scenarios.
func accuracy(files []record.File) string {
	files = slices.DeleteFunc(slices.Clone(files), func(f record.File) bool { return len(f.Runs) == 0 })
	var b strings.Builder
	b.WriteString(accuracyHead)
	if len(files) == 0 {
		return b.String() + noRecords
	}
	b.WriteString("\n## Result\n\n| scenario | right | wrong | broken |\n| --- | --- | --- | --- |\n")
	all := byScenario(files)
	for _, s := range all {
		fmt.Fprintf(&b, "| [%s](#%s) | %d | %d | %d |\n", s.title, anchor(s.title), s.count(record.Right), s.count(record.Wrong), s.count(record.Broken))
	}
	b.WriteString("\n## Machines\n\n")
	b.WriteString(machines(files))
	for _, s := range all {
		b.WriteString(s.section())
	}
	return b.String()
}

func machines(files []record.File) string {
	var b strings.Builder
	b.WriteString("| | date | GPUs | driver | kernel | system | Slurm, tracking | PyTorch | Bookend | numbering |\n")
	b.WriteString("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n")
	for i, f := range files {
		m := f.Machine
		fmt.Fprintf(&b, "| %s | %s | %d × %s | %s | %s | %s | %s, %s | %s | %s | %s |\n", name(i), f.Date.Format("2006-01-02 15:04"),
			m.GPUs, m.GPU, m.Driver, m.Kernel, m.System, m.Slurm, m.Track, orDash(m.Torch), m.Bookend, orDash(m.Orders))
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
	runs             []run
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
			s.runs = append(s.runs, run{name(i), r})
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

func (s *scenario) section() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n## %s\n**True:** %s\n\n", s.title, s.truth)
	b.WriteString("| run | mode | outcome | at the start | at the end | held | reported | settled | prolog | epilog |\n")
	b.WriteString("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n")
	for _, r := range s.runs {
		b.WriteString(r.row())
	}
	for _, r := range s.runs {
		b.WriteString(r.complaints())
	}
	return b.String()
}

// row shows the job that the run is about: the last one.
func (r run) row() string {
	job := record.Job{}
	if n := len(r.Jobs); n > 0 {
		job = r.Jobs[n-1]
	}
	for _, j := range r.Jobs { // of several, one with a finding
		if j.End != nil && len(j.End.Findings) > 0 {
			job = j
		}
	}
	holds, reported := "-", "-"
	if r.Holder != nil {
		holds = mib(r.Holder.Held)
	}
	for _, e := range []*record.End{job.Start, job.End} {
		if e != nil && len(e.Findings) > 0 {
			reported = mib(e.Findings[0].Bytes)
		}
	}
	return fmt.Sprintf("| %s%d | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", r.from, r.Number, r.Mode, r.Outcome,
		said(job.Start), said(job.End), holds, reported, settled(job.End), took(job, "bookend-prolog"), took(job, "bookend-epilog"))
}

func mib(bytes uint64) string { return fmt.Sprintf("%d MiB", bytes>>20) }

// said is what Bookend said at one end: codes with process, owner and evidence, then what followed.
func said(e *record.End) string {
	switch {
	case e == nil:
		return "nothing"
	case len(e.Findings) == 0:
		return "clean"
	}
	var all []string
	for _, f := range e.Findings {
		text := f.Code
		if f.PID != 0 {
			text += fmt.Sprintf(" process %d", f.PID)
		}
		if f.Job != 0 {
			text += fmt.Sprintf(" of job %d (%s)", f.Job, f.Evidence)
		}
		all = append(all, text)
	}
	text := strings.Join(all, "; ")
	switch {
	case e.Exit != 0:
		text += fmt.Sprintf(": drain, exit %d", e.Exit)
	case e.Held != "":
		text += ": drain held, " + e.Held
	}
	return text
}

// settled is how long the slowest card moved at the end.
func settled(e *record.End) string {
	if e == nil || len(e.Curves) == 0 {
		return "-"
	}
	longest := slices.MaxFunc(e.Curves, func(a, b record.Curve) int { return int(1000 * (a.Settled - b.Settled)) })
	return fmt.Sprintf("%.1f s", longest.Settled)
}

func took(j record.Job, program string) string {
	for _, h := range j.Hooks {
		if h.Program == program {
			return fmt.Sprintf("%.2f s", h.Seconds)
		}
	}
	return "-"
}

// complaints lists everything about a run that was not right.
func (r run) complaints() string {
	if r.Outcome == record.Right {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s%d is %s:\n", r.from, r.Number, r.Outcome)
	if r.Problem != "" {
		fmt.Fprintf(&b, "* %s\n", oneLine(r.Problem))
	}
	for _, c := range r.Checks {
		if !c.Right {
			fmt.Fprintf(&b, "* %s: want `%s`, got `%s`\n", c.What, oneLine(c.Want), oneLine(c.Got))
		}
	}
	return b.String()
}

func oneLine(text string) string {
	text = strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "`", "'")
	if len(text) > 300 {
		text = text[:300] + "..."
	}
	return text
}
