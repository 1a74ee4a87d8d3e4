package main

import (
	"fmt"
	"slices"

	"bookend/test/cluster"
)

func severalChains() []chain {
	return []chain{
		{gpus: 2, mode: "observe", steps: []step{neighbours}},
		{gpus: 2, mode: "observe", steps: []step{numbering}},
	}
}

var neighbours = step{
	name: "neighbours", title: "Two jobs side by side, one leaves a process",
	truth: "Two users' jobs run on two GPUs. The second ends and leaves a process on its GPU; the first still " +
		"uses its own, ends later, and is clean.",
	do: func(r *run) {
		gate := r.gate()
		first := r.submit(1, r.script("$CUDAJOB alloc --mib 2048 &", r.until(gate), "kill $!", "wait $! || true"),
			"--gres=gpu:1")
		r.awaitOutput(first, "ready ")
		second := r.leaveOrphan()
		try(open(gate))
		job := r.finish(first)
		r.evidence("after both jobs, the second's process alive")
		r.orphan(second, "orphan")
		r.clean(job)
		r.holds("the jobs had different GPUs", "two GPUs", uuids(job.GPUs)+" and "+uuids(second.GPUs),
			uuids(job.GPUs) != uuids(second.GPUs))
	},
}

var numbering = step{
	name: "numbering", title: "Which GPU Slurm's number means",
	truth: "gres.conf names /dev/nvidiaN in order of N. One job a GPU side by side, then one job with all: each " +
		"GPU's UUID is known from /proc/driver/nvidia and from CUDA inside the job's device fence.",
	do: func(r *run) {
		r.record("numbering", "-L")
		r.sideBySide(slices.Repeat([]string{r.oneGPU}, len(r.cards)))
		job := r.onEveryCard()
		r.check("GPUs of the job", fmt.Sprint(len(r.cards)), fmt.Sprint(len(job.GPUs)))
		r.clean(job)
	},
}

func (r *run) onDifferentCards(all []cluster.JobID) {
	used := map[string]bool{}
	for _, id := range all {
		job := r.finish(id)
		r.clean(job)
		used[uuids(job.GPUs)] = true
	}
	r.check("GPUs in use side by side", fmt.Sprint(len(r.cards)), fmt.Sprint(len(used)))
}
