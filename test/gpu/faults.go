package main

import (
	"fmt"
	"slices"
	"strings"

	"bookend/internal/catalog"
	"bookend/internal/record"
)

// faults are errors of a job's own program. They want a real driver, which writes them to the kernel's log.
var faults = []chain{
	{torch: true, real: true, mode: "enforce", steps: without(unlogged, "fault-assert", faulty("assert", 43))},
	{torch: true, real: true, mode: "enforce", steps: without(unlogged, "fault-illegal", faulty("illegal", 31, 13))},
	{torch: true, real: true, mode: "enforce", steps: one("fault-cancelled", (*run).cancelled)},
}

// unlogged lets the epilog pass over Xids that point to a program.
var unlogged = map[string]string{"policy": "{epilog: {BKD-XID: ignore}}"}

// faulty is a job whose program has an error that the driver logs with one of these numbers.
func faulty(program string, numbers ...int) func(*run) {
	return func(r *run) {
		job := r.fails(r.script(r.python+" "+r.site.Program("faults.py")+" "+program), 0)
		i := slices.IndexFunc(job.AtEnd().Findings, func(f record.Finding) bool {
			return f.Code == catalog.Xid && slices.Contains(numbers, f.Xid)
		})
		r.holds("an Xid of the program's own", numbers, fmt.Sprint(job.AtEnd().Findings), i >= 0)
		if i >= 0 {
			r.said(job, fmt.Sprintf("Xid %d", job.AtEnd().Findings[i].Xid))
		}
		r.holds("who is to blame, by the job's log", "not the GPU", unwrapped(job.Output), !strings.Contains(unwrapped(job.Output),
			"not your code"))
		r.draining(job, 0)
	}
}

// cancelled is a job that its user cancels while it works: nothing is wrong with the GPU, and its log says nothing.
func (r *run) cancelled() {
	id := r.submit(0, r.script("exec "+r.python+" "+r.site.Program("faults.py")+" busy"), "--gres=gpu:1")
	r.awaitOutput(id, "ready")
	r.sampled(id)
	try(r.site.Cancel(id))
	job := r.finish(id)
	r.check("what became of the job", "CANCELLED", job.State)
	r.holds("a warning in the job's log", "none", unwrapped(job.Output), !strings.Contains(unwrapped(job.Output), "WARNING"))
	r.draining(job, 0)
}
