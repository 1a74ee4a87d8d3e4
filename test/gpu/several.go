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
	truth: "Two users' jobs run on two cards. The second ends and leaves a process on its card; the first still " +
		"uses its own, ends later, and is clean.",
	do: func(r *run) error {
		gate := r.gate()
		first, err := r.submit(1, r.script("$CUDAJOB alloc --mib 2048 &", r.until(gate), "kill $!", "wait $! || true"), "--gres=gpu:1")
		if err != nil {
			return err
		}
		if err := r.awaitOutput(first, "ready "); err != nil {
			return err
		}
		second, err := r.leaveOrphan()
		if err != nil {
			return err
		}
		if err := open(gate); err != nil {
			return err
		}
		job, err := r.finish(first)
		if err != nil {
			return err
		}
		r.evidence("after both jobs, the second's process alive")
		r.orphan(second, "orphan")
		r.clean(job)
		r.holds("the jobs had different cards", "two cards", uuids(job.GPUs)+" and "+uuids(second.GPUs), uuids(job.GPUs) != uuids(second.GPUs))
		return nil
	},
}

var numbering = step{
	name: "numbering", title: "Which card Slurm's number means",
	truth: "gres.conf names /dev/nvidiaN in order of N. One job a card side by side, then one job with all: each " +
		"card's UUID is known from /proc/driver/nvidia and from CUDA inside the job's device fence.",
	do: func(r *run) error {
		r.record("numbering", "-L")
		if err := r.sideBySide(slices.Repeat([]string{r.oneGPU}, len(r.cards))); err != nil {
			return err
		}
		return r.allCards()
	},
}

func (r *run) onDifferentCards(all []cluster.JobID) error {
	used := map[string]bool{}
	for _, id := range all {
		job, err := r.finish(id)
		if err != nil {
			return err
		}
		r.clean(job)
		used[uuids(job.GPUs)] = true
	}
	r.check("cards in use side by side", fmt.Sprint(len(r.cards)), fmt.Sprint(len(used)))
	return nil
}

// allCards runs one job with every card.
func (r *run) allCards() error {
	var lines []string
	for i := range r.cards {
		lines = append(lines, fmt.Sprintf("$CUDAJOB alloc --mib 64 --gpu %d --sleep 0", i))
	}
	job, err := r.run1(r.script(lines...), fmt.Sprintf("--gres=gpu:%d", len(r.cards)))
	if err != nil {
		return err
	}
	r.check("cards of the job", fmt.Sprint(len(r.cards)), fmt.Sprint(len(job.GPUs)))
	r.clean(job)
	return nil
}
