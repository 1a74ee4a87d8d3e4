package main

import (
	"slices"
	"strings"

	"bookend/internal/diagnosis"
	"bookend/test/gpu/record"
)

// answers are what is true of the causes: those that apply; those that applied but of which nobody could be sure from
// what there is to see, so that "cannot tell" is as good and "no" is wrong; and those that did not apply, of which
// likewise nobody could be sure. All others are to be ruled out.
type answers struct{ yes, untold, either []diagnosis.Name }

func list(all ...diagnosis.Name) []diagnosis.Name { return all }

var causes = list(diagnosis.Others, diagnosis.Leftover, diagnosis.Unlisted, diagnosis.Pieces, diagnosis.Pool,
	diagnosis.Fault,
	diagnosis.Own, diagnosis.Processes, diagnosis.Limits, diagnosis.Share)

func (a answers) want(name diagnosis.Name) []string {
	switch {
	case slices.Contains(a.yes, name):
		return []string{string(diagnosis.Yes)}
	case slices.Contains(a.untold, name):
		return []string{string(diagnosis.Yes), string(diagnosis.Unknown)}
	case slices.Contains(a.either, name):
		return []string{string(diagnosis.No), string(diagnosis.Unknown)}
	}
	return []string{string(diagnosis.No)}
}

// because wants the record of a failed job to answer every cause as it is true.
func (r *run) because(job *record.Job, a answers) {
	r.answers(job, a)
	r.rightCards(job)
}

// answers is because without the GPUs that the job itself named.
func (r *run) answers(job *record.Job, a answers) {
	var d *record.Diagnosis
	if job.End != nil {
		d = job.End.Diagnosis
	}
	asked := "no one asked"
	if d != nil && d.Asked != "" {
		asked = "asked"
	}
	r.check("whether the job's end asks why", "asked", asked)
	for _, name := range causes {
		c, found := d.Of(string(name))
		want := a.want(name)
		got := strings.TrimSuffix(c.Answer+": "+c.Evidence, ": ")
		if !found {
			got = "no answer"
		}
		r.holds("cause "+string(name), strings.Join(want, " or "), got, found && slices.Contains(want, c.Answer))
	}
	r.toldWhy(job, d)
}

// toldWhy wants the job's log to answer, and to rule out no cause that the record does not answer with no.
func (r *run) toldWhy(job *record.Job, d *record.Diagnosis) {
	r.said(job, "Details: bookend show")
	_, ruledOut, _ := strings.Cut(unwrapped(job.Output), "Ruled out: ")
	ruledOut, _, _ = strings.Cut(ruledOut, "Cannot tell: ")
	ruledOut, _, _ = strings.Cut(ruledOut, "Details: ")
	for _, name := range causes {
		title := strings.ReplaceAll(name.Title(), ", ", " or ")
		if c, _ := d.Of(string(name)); c.Answer != string(diagnosis.No) {
			r.holds("the job's log rules out "+title, "no", ruledOut, !strings.Contains(ruledOut, title))
		}
	}
}
