package main

import (
	"slices"

	"bookend/internal/record"
)

// remedy is a job that runs out of memory, and the same job with what the answer tells its user to type.
type remedy struct {
	name   string
	before []string         // lines of both scripts
	fails  string           // a line after them: the job fails
	typed  string           // a line instead, and it does not
	yes    record.CauseName // of the failure, if it can be told
	advice string           // what the job's log says of it; "" where it depends on the program
}

// remedies try the advice: a pool of cudaMallocAsync that starves a second process, a heap of the device that is
// full, limits that a program sets itself, and a pool in pieces.
func (r *run) remedies() []remedy {
	python := r.python + " " + r.site.Program("programs.py")
	return []remedy{
		{name: "pool of cudaMallocAsync", yes: record.CauseProcesses,
			fails: r.site.Program("plain") + " keep & sleep 15; exec " + r.site.Program("plain") + " half",
			typed: r.site.Program("plain") + " trim & sleep 15; exec " + r.site.Program("plain") + " half"},
		{name: "heap of the device", fails: r.site.Program("plain") + " heap", yes: record.CauseLimits,
			typed: r.site.Program("plain") + " larger"},
		{name: "PyTorch's own limit", fails: python + " torch half .2", typed: python + " torch half 1", yes: record.CauseShare},
		{name: "JAX's own limit", before: []string{"export XLA_CLIENT_MEM_FRACTION=.2"},
			fails: python + " jax half", yes: record.CauseShare,
			typed: "XLA_CLIENT_MEM_FRACTION=.95 " + python + " jax half"},
		{name: "CuPy's own limit", before: []string{"export CUPY_GPU_MEMORY_LIMIT=20%"}, yes: record.CauseShare,
			fails: python + " cupy half", typed: "unset CUPY_GPU_MEMORY_LIMIT; " + python + " cupy half"},
		{name: "pool in pieces", before: []string{"export PYTORCH_ALLOC_CONF=expandable_segments:False"},
			fails: r.fills("pieces", ""), yes: record.CausePool,
			typed: "PYTORCH_ALLOC_CONF=expandable_segments:True " + r.fills("pieces", ""), advice: "expandable_segments:True"},
	}
}

func (r *run) programsRemedied() {
	r.compilePlain()
	for _, m := range r.remedies() {
		job := r.finish(r.submit(0, r.script(append(slices.Clone(m.before), m.fails)...), "--gres=gpu:1"))
		r.check(m.name+": the job", "FAILED", job.State)
		r.holds(m.name+": what its output says", "a shortage", messages(job), messages(job) != "")
		c := job.because(m.yes)
		r.holds(m.name+": cause "+string(m.yes), "yes or cannot tell", answered(c), c.Answer != record.No)
		r.clearsNode(m, job)
		if m.advice != "" {
			r.said(job, m.advice)
		}
		again := r.finish(r.submit(0, r.script(append(slices.Clone(m.before), m.typed)...), "--gres=gpu:1"))
		r.check(m.name+": the job with the advice typed", "COMPLETED", again.State)
	}
}

// clearsNode wants no cause that is the node's.
func (r *run) clearsNode(m remedy, job *job) {
	for _, c := range diagnosed(job).Causes {
		if slices.Contains([]record.CauseName{record.CauseOthers, record.CauseLeftover, record.CauseUnlisted,
			record.CausePieces, record.CauseFault}, c.Name) {
			r.holds(m.name+": cause "+string(c.Name), "no or cannot tell", answered(c), c.Answer != record.Yes)
		}
	}
}
