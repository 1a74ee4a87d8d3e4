package main

import (
	"fmt"
	"slices"
	"time"

	"bookend/internal/record"
	"bookend/test/cluster"
)

const accounts = 9

// manyAtOnce runs a job a GPU at once, of as many users, of which two leave a process each.
func (r *run) manyAtOnce() {
	gate, left, users := r.gate(), map[int]*holder{}, cluster.Users(min(len(r.cards), accounts))
	var all []cluster.JobID
	script := r.script(append(slices.Clone(whichCard), r.until(gate))...)
	for i := range r.cards { // the two that leave something are of users who have no other
		all = append(all, must(r.site.Submit(users[i%len(users)], script, "--time=30", "--nodelist="+r.node, "--gres="+r.oneGPU)))
	}
	for i, id := range all {
		card := cudaCards(r.awaitOutput(id, "ready "))[0].UUID
		if i == len(users)-1 || i == len(users)-2 {
			uid, gid := ids(users[i])
			h := r.daemon.start(uid, gid, card, "cudajob", "alloc", "--mib", fmt.Sprint(r.size()))
			h.Role = "left behind by job " + string(id)
			r.known(card, &h.Holder)
			left[i] = h
		}
	}
	for _, id := range all {
		r.sampled(id)
	}
	try(open(gate))
	for i, id := range all {
		job := r.finish(id)
		if on, seen := r.recordedOf(job); !r.scene.control {
			r.holds("samples of its GPU", "one or more", on.Samples, seen && on.Samples > 0)
		}
		h := left[i]
		if h == nil {
			r.clean(job)
			r.check("exit code on record", "0", exitOf(job.End))
			continue
		}
		r.check("start of the job", "clean", verdict(job.Start))
		r.names(r.one("end of the job", job.End, "BKD-ORPHAN"), leftover{code: "BKD-ORPHAN", pid: h.PID,
			classes: "orphan", job: job.ID, evidence: "exclusive", of: &h.Holder})
		r.draining(job, exitOrphan)
	}
}

// reduceKilled cancels a job in the middle of an all-reduce over every GPU.
func (r *run) reduceKilled() {
	id := r.submit(0, r.script("exec "+r.python+" "+r.site.Program("allreduce.py")),
		fmt.Sprintf("--gres=gpu:%d", len(r.cards)))
	r.awaitOutput(id, "ready")
	time.Sleep(3 * time.Second) // the recorder's
	r.evidence("in the middle of it")
	try(r.site.Cancel(id))
	job := r.finish(id)
	r.check("what became of the job", "CANCELLED", job.State)
	r.cleanEnds(job)
	r.draining(job, 0)
	if of := job.AtEnd().Recording; of != nil {
		used := slices.DeleteFunc(slices.Clone(of.GPUs), func(g record.GPURecording) bool { return g.Together == 0 })
		r.check("GPUs that the recorder saw the job use", len(r.cards), len(used))
	}
}
