package main

import (
	"slices"
	"strings"
	"testing"

	"bookend/internal/diagnosis"
	"bookend/internal/gpu"
	"bookend/test/gpu/record"
)

// told is a record that names one cause, and a job's log that does.
func told(yes diagnosis.Name) *record.Job {
	d := &record.Diagnosis{Asked: "it failed"}
	for _, name := range causes {
		answer := diagnosis.No
		if name == yes {
			answer = diagnosis.Yes
		}
		d.Causes = append(d.Causes, record.Cause{Name: string(name), Answer: string(answer), Evidence: "seen"})
	}
	return &record.Job{
		State: "FAILED", End: &record.End{Diagnosis: d}, GPUs: []record.GPU{{UUID: "GPU-a"}},
		Output: "| bookend:   YES          " + yes.Title() + ":\n| bookend:                seen\n| bookend:   no           the rest\n",
	}
}

func set(job *record.Job, name diagnosis.Name, answer diagnosis.Answer) {
	for i := range job.End.Diagnosis.Causes {
		if c := &job.End.Diagnosis.Causes[i]; c.Name == string(name) {
			c.Answer = string(answer)
		}
	}
}

// The judge must see each way in which an answer can be wrong.
func TestBecause(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*record.Job)
		want   bool
	}{
		"as it is":                   {func(*record.Job) {}, true},
		"unsure of what may be":      {func(j *record.Job) { set(j, diagnosis.Pieces, diagnosis.Unknown) }, true},
		"unsure of the kernel's log": {func(j *record.Job) { set(j, diagnosis.Fault, diagnosis.Unknown) }, false},
		"unsure where that is right": {func(j *record.Job) { set(j, diagnosis.Pieces, diagnosis.Unknown) }, true},
		"the true one missed":        {func(j *record.Job) { set(j, diagnosis.Others, diagnosis.No) }, false},
		"unsure of the true one":     {func(j *record.Job) { set(j, diagnosis.Others, diagnosis.Unknown) }, false},
		"a wrong one":                {func(j *record.Job) { set(j, diagnosis.Own, diagnosis.Yes) }, false},
		"unsure of what is not":      {func(j *record.Job) { set(j, diagnosis.Own, diagnosis.Unknown) }, false},
		"sure of what nobody knows":  {func(j *record.Job) { set(j, diagnosis.Pieces, diagnosis.Yes) }, false},
		"nobody asked":               {func(j *record.Job) { j.End.Diagnosis.Asked = "" }, false},
		"no answer":                  {func(j *record.Job) { j.End.Diagnosis.Causes = j.End.Diagnosis.Causes[1:] }, false},
		"no diagnosis":               {func(j *record.Job) { j.End.Diagnosis = nil }, false},
		"no record":                  {func(j *record.Job) { j.End = nil }, false},
		"not in the job's log":       {func(j *record.Job) { j.Output = "" }, false},
		"more in the job's log":      {func(j *record.Job) { j.Output += "| bookend:   YES          a share\n" }, false},
		"another in the job's log":   {func(j *record.Job) { j.Output = strings.Replace(j.Output, "another", "no", 1) }, false},
	} {
		job := told(diagnosis.Others)
		tc.change(job)
		r := run{lane: &lane{cards: []card{{uuid: "GPU-a"}}}, rec: &record.Run{}}
		r.because(job, answers{yes: list(diagnosis.Others), either: list(diagnosis.Pieces)})
		if got := r.rec.Judge() == record.Right; got != tc.want {
			t.Errorf("%s: right is %v, want %v: %+v", name, got, tc.want, r.rec.Checks)
		}
	}
}

// Of what nobody can know, "cannot tell" is as good as yes, and no is wrong.
func TestBecauseUntold(t *testing.T) {
	for answer, want := range map[diagnosis.Answer]bool{diagnosis.Yes: true, diagnosis.Unknown: true, diagnosis.No: false} {
		job := told(diagnosis.Others)
		if set(job, diagnosis.Others, answer); answer != diagnosis.Yes {
			job.Output = ""
		}
		r := run{lane: &lane{cards: []card{{uuid: "GPU-a"}}}, rec: &record.Run{}}
		r.because(job, answers{untold: list(diagnosis.Others)})
		if got := r.rec.Judge() == record.Right; got != want {
			t.Errorf("%s: right is %v, want %v: %+v", answer, got, want, r.rec.Checks)
		}
	}
}

// Every cause that Bookend judges has its place in the truth of a scenario.
func TestCauses(t *testing.T) {
	for _, c := range diagnosis.Why(diagnosis.Input{}).Causes {
		if !slices.Contains(causes, c.Name) {
			t.Errorf("cause %q is judged by Bookend and not by the lane", c.Name)
		}
	}
}

func TestWhole(t *testing.T) {
	good := record.Probe{Result: "ok", Method: "contextless", Free: 1000 * mib, Largest: 998 * mib}
	for name, tc := range map[string]struct {
		change func(*record.Probe)
		want   bool
	}{
		"as it is":        {func(*record.Probe) {}, true},
		"nearly 4 MiB":    {func(p *record.Probe) { p.Largest = 996 * mib }, true},
		"a gap":           {func(p *record.Probe) { p.Largest = 994 * mib }, false},
		"more than there": {func(p *record.Probe) { p.Largest = 1002 * mib }, false},
		"nothing":         {func(p *record.Probe) { p.Free, p.Largest = 0, 0 }, false},
		"skipped":         {func(p *record.Probe) { p.Result, p.Why = "skipped", "why" }, false},
		"with a context":  {func(p *record.Probe) { p.Method = "context" }, false},
		"unknown":         {func(p *record.Probe) { p.Unknown = "not read" }, false},
	} {
		p := good
		tc.change(&p)
		r := run{rec: &record.Run{}}
		r.whole("x", p)
		if got := r.rec.Judge() == record.Right; got != tc.want {
			t.Errorf("%s: right is %v, want %v: %+v", name, got, tc.want, r.rec.Checks)
		}
	}
}

// nvidia-smi's words become those of Bookend's facts; what it does not know is left out.
func TestPut(t *testing.T) {
	facts := map[string]string{}
	said := []string{"0", "Enabled", "Exclusive_Process", "[N/A]"}
	for i, code := range []string{"ecc_uncorrected", "persistence", "compute_mode", "accounting", "remap_pending"} {
		put(facts, gpu.FactCode(code), said, i)
	}
	put(facts, "remap_failed", []string{"Yes"}, 0)
	want := map[string]string{"ecc_uncorrected": "0", "persistence": "on", "compute_mode": "exclusive_process", "remap_failed": "yes"}
	for code, value := range want {
		if facts[code] != value {
			t.Errorf("%s is %q, want %q", code, facts[code], value)
		}
	}
	if len(facts) != len(want) {
		t.Errorf("facts %v, want %v", facts, want)
	}
}
