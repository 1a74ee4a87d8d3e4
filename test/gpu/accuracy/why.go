package main

import (
	"fmt"
	"slices"
	"strings"

	"bookend/internal/diagnosis"
	"bookend/test/gpu/record"
)

// whys renders the table of failed jobs.
func whys(all []*scenario) string {
	var b strings.Builder
	for _, s := range all {
		if len(s.runs) == 0 || s.runs[len(s.runs)-1].why() == nil {
			continue
		}
		answered := func(a diagnosis.Answer) string {
			return s.each(func(r run) string { return orDash(strings.Join(r.answered(a), ", ")) })
		}
		fmt.Fprintf(&b, "| [%s](#%s) | %s | %d of %d | %s | %s | %s | %s |\n", s.title, anchor(s.title), s.truth,
			s.count(record.Right), len(s.runs),
			answered(diagnosis.Yes), answered(diagnosis.Unknown), answered(diagnosis.No),
			s.runs[len(s.runs)-1].evidenceOf(diagnosis.Yes))
	}
	return under("why", b.String())
}

// why is the diagnosis of the run's last job, if that failed and somebody would want to know.
func (r run) why() *record.Diagnosis {
	if len(r.Jobs) == 0 {
		return nil
	}
	last := r.Jobs[len(r.Jobs)-1]
	if last.State != "FAILED" || last.End == nil || last.End.Diagnosis == nil || last.End.Diagnosis.Asked == "" {
		return nil
	}
	return last.End.Diagnosis
}

// answered lists the causes that got an answer, in the order in which they are told.
func (r run) answered(a diagnosis.Answer) []string {
	var names []string
	d := r.why()
	if d == nil {
		return nil
	}
	for _, c := range d.Causes {
		if strongest, _ := d.Of(c.Name); strongest.Answer == string(a) && !slices.Contains(names, c.Name) {
			names = append(names, c.Name)
		}
	}
	return names
}

func (r run) evidenceOf(a diagnosis.Answer) string {
	var all []string
	for _, name := range r.answered(a) {
		c, _ := r.why().Of(name)
		all = append(all, name+": "+oneLine(c.Evidence))
	}
	return orDash(strings.Join(all, "; "))
}

// causes renders what each run of a scenario answered, cause by cause.
func (s *scenario) causes() string {
	var b strings.Builder
	for _, r := range s.runs {
		d := r.why()
		if d == nil {
			continue
		}
		fmt.Fprintf(&b, "\n%s%d asks because %s:\n\n| cause | answer | evidence |\n| --- | --- | --- |\n", r.from,
			r.Number, oneLine(d.Asked))
		for _, c := range d.Causes {
			fmt.Fprintf(&b, "| %s | %s | %s |\n", c.Name, c.Answer, orDash(oneLine(c.Evidence)))
		}
	}
	return b.String()
}
