package main

import (
	"fmt"
	"slices"
)

func (r *run) neighbours() {
	gate := r.gate()
	first := r.submit(1, r.script("$CUDAJOB alloc --mib 2048 &", r.until(gate), "kill $!", "wait $! || true"),
		"--gres=gpu:1")
	r.awaitOutput(first, "ready ")
	second := r.leaveOrphan()
	try(open(gate))
	job := r.finish(first)
	r.evidence("after both jobs, the second's process alive")
	r.orphan(second, "orphan", 0)
	r.clean(job)
	r.holds("the jobs had different GPUs", "two GPUs", uuids(job.GPUs)+" and "+uuids(second.GPUs),
		uuids(job.GPUs) != uuids(second.GPUs))
}

func (r *run) numberAgrees() {
	r.record("numbering", "-L")
	r.sideBySide(slices.Repeat([]string{r.oneGPU}, len(r.cards)))
	job := r.onEveryCard()
	r.check("GPUs of the job", fmt.Sprint(len(r.cards)), fmt.Sprint(len(job.GPUs)))
	r.clean(job)
}
