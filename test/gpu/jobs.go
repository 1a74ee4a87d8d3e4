package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/internal/state"
	"bookend/test/cluster"
	"bookend/test/gpu/runrecord"
)

// jobPatience bounds the wait for a job's end: PyTorch's first import takes some 20 s, an epilog at most 15.
const jobPatience = 5 * time.Minute

// patience bounds every other wait: it guards against a hang, on a busy machine too.
const patience = time.Minute

// script makes a batch script in which $CUDAJOB is the user's CUDA program.
func (l *lane) script(lines ...string) string {
	head := []string{"#!/bin/sh", "set -e", "echo slurm gpus=$SLURM_JOB_GPUS", "CUDAJOB=" + l.cudaJob()}
	for _, setting := range l.env {
		head = append(head, "export "+setting)
	}
	return strings.Join(slices.Concat(head, l.head, lines), "\n") + "\n"
}

// whichCard leaves in $CARD the UUID of the card that CUDA gives the job, and says it in the job's log.
var whichCard = []string{
	`WHERE=$($CUDAJOB alloc --mib 2 --sleep 0)`, `echo "$WHERE"`,
	`CARD=$(echo "$WHERE" | sed 's/.* gpu=\([^ ]*\).*/\1/')`,
}

// submit hands a job to Slurm as one of the unprivileged users.
func (r *run) submit(userIndex int, script string, args ...string) cluster.JobID {
	args = append([]string{"--time=30", "--nodelist=" + r.node}, args...)
	return must(r.site.Submit(r.site.Users[userIndex], script, args...))
}

// awaitOutput waits until the job's log has a line that begins with start, and returns the log.
func (r *run) awaitOutput(id cluster.JobID, start string) (text string) {
	for deadline := time.Now().Add(jobPatience); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		j := must(r.site.Job(id))
		text, _ = r.site.Output(id)
		if strings.Contains("\n"+text, "\n"+start) {
			return text
		}
		if j.State != "RUNNING" && j.State != "PENDING" && j.State != "CONFIGURING" {
			break
		}
	}
	panic(fmt.Errorf("job %s did not say %q: %q", id, start, tail(text)))
}

// job is a job, and what Bookend has on record of its ends; nil for nothing.
type job struct {
	runrecord.Job
	Start, End *record.End
}

// AtEnd is what was recorded at its end, empty without that.
func (j *job) AtEnd() (e record.End) {
	if j.End != nil {
		e = *j.End
	}
	return e
}

// because is the answer to one cause of a shortage, empty where none was given.
func (j *job) because(name record.CauseName) (c record.Cause) {
	if d := j.AtEnd().Diagnosis; d != nil {
		c = d.Cause(name)
	}
	return c
}

// raw is a part of the record as Bookend writes it.
func raw(v any) json.RawMessage { return must(json.Marshal(v)) }

// finish waits for a job's end, epilog included, and gathers everything known of it.
func (r *run) finish(id cluster.JobID) *job {
	j := must(r.site.Wait(id, jobPatience))
	n := must(strconv.Atoi(string(id)))
	job := &job{Job: runrecord.Job{ID: n, State: j.State, Asked: j.Fields["TresPerNode"], User: j.Fields["UserId"],
		Hooks: r.hooks(n)}}
	if j.StdOut != "" { // srun's own job has none
		job.Output = must(r.site.Output(id))
	}
	job.CUDA = cudaCards(job.Output)
	kept := r.kept(slurm.JobID(n))
	for _, d := range kept.Devices {
		job.GPUs = append(job.GPUs, runrecord.GPU{Index: d.Index, UUID: string(d.Device.ID)})
	}
	if job.Start = kept.Start; job.Start != nil {
		job.Job.Start = raw(job.Start)
	}
	if len(kept.Ends) > 0 {
		job.End, job.Job.End = &kept.Ends[0], raw(kept.Ends[0])
		// Next to fake GPUs run other tests, with processes of the same users.
		others := func(f record.Finding) bool { return r.fake > 0 && f.Code == catalog.Survivor }
		job.End.Findings = slices.DeleteFunc(job.End.Findings, others)
	}
	r.rec.Jobs = append(r.rec.Jobs, job.Job)
	return job
}

// endsAs is finish for a job that has to end in this way.
func (r *run) endsAs(state string, id cluster.JobID) *job {
	job := r.finish(id)
	if job.State != state {
		panic(fmt.Errorf("job %d ended as %s, want %s: %q", job.ID, job.State, state, tail(job.Output)))
	}
	return job
}

// run1 runs a job of the first user to its end, a good one.
func (r *run) run1(script string, args ...string) *job {
	return r.endsAs("COMPLETED", r.submit(0, script, args...))
}

func tail(text string) string { return text[max(0, len(text)-600):] }

func (l *lane) store() *state.Store { return must(state.Open(l.site.Run(), l.node)) }

// kept is a job's first run on record, empty without one.
func (r *run) kept(id slurm.JobID) (kept record.Run) {
	runs, damaged := r.store().Runs()
	if len(damaged) > 0 {
		panic(damaged[0])
	}
	if i := slices.IndexFunc(runs, func(run record.Run) bool { return run.Job.ID == id }); i >= 0 {
		kept = runs[i]
	}
	return kept
}

func classes(h record.Holder) string {
	var names []string
	for _, c := range h.Classes {
		names = append(names, string(c))
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

type line struct {
	Job     int     `json:"job"`
	Node    string  `json:"node"`
	Program string  `json:"program"`
	Message string  `json:"msg"`
	Took    float64 `json:"took"`
	Looks   int     `json:"looks"`
	JobLog  string  `json:"job_log"`
}

func (l *lane) lines(wanted func(line) bool) (all []line) {
	text, err := l.site.Log()
	if errors.Is(err, fs.ErrNotExist) {
		return nil // no hook has had anything to say yet
	}
	try(err)
	for row := range strings.Lines(text) {
		var one line
		if json.Unmarshal([]byte(row), &one) == nil && wanted(one) {
			all = append(all, one)
		}
	}
	return all
}

// hooks are the lines of Bookend's own log about a job.
func (l *lane) hooks(job int) (all []runrecord.Hook) {
	for _, one := range l.lines(func(one line) bool { return one.Job == job }) {
		all = append(all, runrecord.Hook{Program: one.Program, Message: one.Message, Seconds: one.Took, Looks: one.Looks,
			JobLog: one.JobLog})
	}
	return all
}

// cudaCards are the cards that a job's own CUDA programs named, with Slurm's indexes in the order it gave them.
func cudaCards(output string) []runrecord.GPU {
	var indexes []string
	if m := regexp.MustCompile(`(?m)^slurm gpus=([0-9,]+)$`).FindStringSubmatch(output); m != nil {
		indexes = strings.Split(m[1], ",")
	}
	var cards []runrecord.GPU
	said := regexp.MustCompile(`(?m)^ready .*gpu=(GPU-[0-9a-f]{8}-[0-9a-f-]{27})\b`)
	for i, m := range said.FindAllStringSubmatch(output, -1) {
		if i < len(indexes) {
			cards = append(cards, runrecord.GPU{Index: int(number(indexes[i])), UUID: m[1]})
		}
	}
	return cards
}
