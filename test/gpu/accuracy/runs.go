package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"bookend/test/gpu/record"
)

func (s *scenario) section() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n## %s\n**True:** %s\n\n", s.title, s.truth)
	b.WriteString("| run | mode | outcome | at the start | at the end | held | reported | settled | prolog | " +
		"epilog |\n")
	b.WriteString("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n")
	for _, r := range s.runs {
		b.WriteString(r.row())
	}
	b.WriteString(s.causes() + s.healthChecks())
	for _, r := range s.runs {
		b.WriteString(r.complaints())
	}
	return b.String()
}

// about is the job that the run is about: the last one, or of several one in which something was found.
func (r run) about() record.Job {
	job := record.Job{}
	if n := len(r.Jobs); n > 0 {
		job = r.Jobs[n-1]
	}
	for _, j := range r.Jobs {
		if j.End != nil && len(j.End.Findings) > 0 {
			job = j
		}
	}
	return job
}

// ends are both ends of a job that are on record.
func ends(j record.Job) []*record.End {
	return slices.DeleteFunc([]*record.End{j.Start, j.End}, func(e *record.End) bool { return e == nil })
}

func (r run) row() string {
	job := r.about()
	holds, reported := "-", "-"
	if r.Holder != nil {
		holds = mib(r.Holder.Held)
	}
	for _, e := range ends(job) {
		if len(e.Findings) > 0 {
			reported = mib(e.Findings[0].Bytes)
		}
	}
	return fmt.Sprintf("| %s%d | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", r.from, r.Number, r.settings(),
		r.Outcome,
		said(job.Start), said(job.End), holds, reported, settled(job.End), took(job, "bookend-prolog"), took(job,
			"bookend-epilog"))
}

// settings are what the run was configured with.
func (r run) settings() string {
	if r.Settings == "" {
		return r.Mode
	}
	return r.Mode + ", `" + oneLine(r.Settings) + "`"
}

// verdict is what was found, without what differs from run to run, and what followed.
func (r run) verdict() string {
	job := r.about()
	var all []string
	for i, e := range []*record.End{job.Start, job.End} {
		if e == nil || len(e.Findings) == 0 {
			continue
		}
		var codes []string
		for _, f := range e.Findings {
			code := f.Code
			if f.Unknown != "" {
				code += " (unknown)"
			}
			codes = append(codes, code)
		}
		all = append(all, []string{"start: ", "end: "}[i]+strings.Join(codes, ", ")+consequence(e))
	}
	if codes := r.checked(); codes != "" {
		all = append(all, "health check: "+codes)
	}
	switch {
	case len(all) > 0:
		return strings.Join(all, "; ")
	case job.Start == nil && job.End == nil:
		return "nothing"
	}
	return "clean"
}

// consequence is what followed from an end's findings.
func consequence(e *record.End) string {
	switch {
	case e.Exit != 0:
		return fmt.Sprintf(": drain, exit %d", e.Exit)
	case e.Held != "":
		return ": drain held, " + e.Held
	}
	return ""
}

// evidence is what the findings rest on: whose it is and how that is known, of what kind the holder is, and how many
// others may hold it.
func (r run) evidence() string {
	var all []string
	for _, found := range r.found() {
		for _, f := range found {
			var parts []string
			if f.Evidence != "" {
				parts = append(parts, "job by "+f.Evidence)
			}
			if len(f.Classes) > 0 {
				parts = append(parts, "process is "+strings.Join(f.Classes, ", "))
			}
			if len(f.Candidates) > 0 {
				parts = append(parts, fmt.Sprintf("%d may hold it: %s", len(f.Candidates),
					strings.Join(f.Candidates[0].Classes, ", ")))
			}
			if f.Unknown != "" {
				parts = append(parts, oneLine(f.Unknown))
			}
			if text := strings.Join(parts, "; "); text != "" && !slices.Contains(all, text) {
				all = append(all, text)
			}
		}
	}
	return orDash(strings.Join(all, "; "))
}

// found is what was found, at both ends of the job that the run is about and by each health check.
func (r run) found() (all [][]record.Finding) {
	for _, e := range ends(r.about()) {
		all = append(all, e.Findings)
	}
	for _, c := range r.HealthChecks {
		all = append(all, c.Findings)
	}
	return all
}

// settleTimes are the times after which the cards no longer moved, at that end of the job at which they were watched
// for longer, and for how long that was.
func (s *scenario) settleTimes() string {
	var moved, watched []float64
	for _, r := range s.runs {
		var longest record.Curve
		for _, e := range ends(r.about()) {
			for _, c := range e.Curves {
				if c.Span >= longest.Span {
					longest = c
				}
			}
		}
		if longest.State != "" {
			moved, watched = append(moved, longest.Settled), append(watched, longest.Span)
		}
	}
	if len(moved) == 0 {
		return "-"
	}
	return fmt.Sprintf("%s, watched %s", span(moved), span(watched))
}

func span(seconds []float64) string {
	low, high := fmt.Sprintf("%.1f", slices.Min(seconds)), fmt.Sprintf("%.1f", slices.Max(seconds))
	if low == high {
		return low + " s"
	}
	return low + " to " + high + " s"
}

// firstComplaint is the first check that was not right.
func (r run) firstComplaint() string {
	for _, c := range r.Checks {
		if !c.Right {
			return fmt.Sprintf("%s: want `%s`, got `%s`", c.What, oneLine(c.Want), oneLine(c.Got))
		}
	}
	return orDash(oneLine(r.Problem))
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
	return text + consequence(e)
}

// settled is how long the slowest card moved at the end.
func settled(e *record.End) string {
	if e == nil || len(e.Curves) == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f s", slowest(e).Settled)
}

func slowest(e *record.End) record.Curve {
	return slices.MaxFunc(e.Curves, func(a, b record.Curve) int { return cmp.Compare(a.Settled, b.Settled) })
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
	// Neither end a code span nor a table's cell.
	text = strings.NewReplacer("`", "'", "|", "¦").Replace(strings.Join(strings.Fields(text), " "))
	if len(text) > 300 {
		text = text[:300] + "..."
	}
	return text
}
