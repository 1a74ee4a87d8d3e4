package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"bookend/internal/diagnosis"
	"bookend/test/gpu/record"
)

// checkChains are the scenarios about the health check, which the lane starts as slurmd does.
func checkChains() []chain {
	ignore := map[string]string{"policy": "{health_check: {BKD-ORPHAN: ignore}}"}
	kept := map[string]string{"drain": "{reason_by: healthcheck, resume: {enabled: false, after: 2}}"}
	return []chain{
		{gpus: 1, mode: "enforce", brisk: true, steps: []step{checkIdle},
			controls: despite(checkIdle, "a process takes memory before the last of them")},
		{gpus: 1, mode: "enforce", brisk: true, steps: []step{checkOrphan}, controls: without(checkOrphan, ignore)},
		{gpus: 1, mode: "enforce", with: map[string]string{"record": "{every: 0s}"}, steps: []step{checkSeen},
			controls: despite(checkSeen, "no health check runs meanwhile")},
		{gpus: 1, mode: "enforce", brisk: true,
			with: map[string]string{"drain": "{reason_by: healthcheck, resume: {enabled: true, after: 2}}"}, steps: []step{checkResume},
			controls: without(checkResume, kept)},
		{gpus: 1, mode: "enforce", brisk: true, steps: []step{checkBusy},
			controls: despite(checkBusy, "the job's record is out of the way")},
	}
}

var checkIdle = step{
	name: "check-idle", title: "Health checks on idle GPUs",
	truth: "No one uses any GPU. Each of five health checks reads all of them, finds nothing, and has nothing to say.",
	do: func(r *run) {
		const checks = 5
		for i := range checks {
			if i == checks-1 && r.scene.off != nil {
				r.squeeze(r.cards[0].uuid)
			}
			c := r.nodeCheck(fmt.Sprintf("idle, %d of %d", i+1, checks))
			r.nothingFound(c)
			r.check("processes that it saw", "none", occupants(c.Seen))
		}
		r.inService()
	},
}

var checkOrphan = step{
	name: "check-orphan", title: "A process that takes memory after its job has ended",
	truth: "A root daemon started a process for the job, as its user and outside every job's cgroup. It does " +
		"nothing until the job has ended and its epilog has found the GPU clean; then it takes memory. No job has " +
		"the GPU: the health check alone can find it, says whose it is, and drains nothing.",
	do: func(r *run) {
		job := r.takesLate()
		r.clean(job)
		c := r.nodeCheck("between jobs, the process on the GPU")
		h := r.scene.holder
		r.foundOnCard(c, leftover{code: "BKD-ORPHAN", pid: h.PID, classes: "orphan", job: job.ID,
			evidence: "exclusive"}, "warn")
		index := job.GPUs[0].Index
		r.logged(c, "BKD-ORPHAN", fmt.Sprintf("GPU %d", index), fmt.Sprintf("process %d", h.PID),
			fmt.Sprintf("job %d (exclusive)", job.ID))
		r.statusNames("BKD-ORPHAN")
		r.leaks(h)
		r.inService()
		r.stillThere()
	},
}

// takesLate runs a job that leaves a process which takes memory only when the epilog is over.
func (r *run) takesLate() *record.Job {
	late := r.gate() + "-late"
	s := r.stand()
	h := r.ask(s, "cudajob", "alloc", "--mib", fmt.Sprint(r.size()), "--after", late)
	h.Role, h.Allocated = "takes memory after its job's end", r.size()*mib
	job := r.release(s)
	r.evidence("after the job, the process without memory")
	if len(job.GPUs) == 0 {
		panic(brokenf("job %d has no GPU on record", job.ID))
	}
	try(open(late))
	settled(func() { r.known(s, &h.Holder) })
	r.scenery(&h.Holder)
	r.scene.left = job
	r.evidence("the process with memory")
	return job
}

var checkSeen = step{
	name: "check-seen", title: "Out of luck beside a process that came and went, seen by a health check",
	truth: "Another user's process, started outside Slurm, has most of the job's GPU for a while: it came after " +
		"the job's start and is gone before its end, and neither end sees it. A health check ran meanwhile. The job " +
		"fails without a word of memory.",
	do: func(r *run) {
		job, h := r.visitedMeanwhile()
		r.check("start of the job", "clean", verdict(job.Start))
		r.check("end of the job", "clean", verdict(job.End))
		r.because(job, answers{yes: list(diagnosis.Others), either: list(diagnosis.Unlisted, diagnosis.Pool,
			diagnosis.Own, diagnosis.Processes, diagnosis.Limits)})
		r.whileItRan(job)
		r.holds("the job's log names the other user", "no", fmt.Sprint(strings.Contains(job.Output, r.site.Users[1])),
			!strings.Contains(job.Output, r.site.Users[1]))
		r.rec.Holder = &h.Holder
		r.inService()
	},
}

// visitedMeanwhile runs a job that fails, on whose card another's process is only while it runs, with a health check
// beside it.
func (r *run) visitedMeanwhile() (*record.Job, *holder) {
	s := r.stand("trap 'exit 3' EXIT")
	h := r.comesAndGoes(s)
	s.let()
	return r.endsAs("FAILED", s.id), h
}

func (r *run) comesAndGoes(s *standing) *holder {
	h := r.squeeze(s.card.UUID)
	h.Proc = readProc(h.PID)
	time.Sleep(deadListed) // of the job's own program, which has said which card it has
	if r.scene.off == nil {
		c := r.nodeCheck("beside the job, another's process on its GPU")
		r.check("processes that the check saw", occupants([]record.Occupant{{GPU: s.card.UUID, PID: h.PID}}),
			occupants(c.Seen))
		for _, o := range c.Seen {
			r.bytes(h.Holder, o.Bytes)
		}
	}
	h.kill()
	h.Role += "; gone before the job's end"
	r.awaitIdle()
	return h
}

// whileItRan wants the record to know of the process by the look between the two ends, and not otherwise.
func (r *run) whileItRan(job *record.Job) {
	const between = "while your job ran, seen at "
	var d *record.Diagnosis
	if job.End != nil {
		d = job.End.Diagnosis
	}
	c, _ := d.Of(string(diagnosis.Others))
	r.holds("how it is known", between+"...", c.Evidence, strings.Contains(c.Evidence, between))
}

var checkResume = step{
	name: "check-resume", title: "A node that Bookend drained, back to work once it is clean",
	truth: "The epilog of a job that left a process drains the node. The first health check puts Bookend's reason " +
		"in the place of Slurm's; while the process is there none does more. Then the process ends. After the first " +
		"clean check the node stays drained, after the second it takes jobs again, as is configured.",
	do: func(r *run) {
		job := r.leaveOrphan()
		r.orphan(job, "orphan")
		r.draining(job, exitOrphan)
		for _, when := range []string{"drained by the epilog", "the process still there"} {
			c := r.nodeCheck(when)
			r.foundOnCard(c, leftover{code: "BKD-ORPHAN", pid: r.scene.holder.PID, classes: "orphan", job: job.ID,
				evidence: "exclusive"}, "warn")
			r.reasoned(job)
		}
		r.backToWork(job)
	},
}

// backToWork ends the process and wants two clean checks to resume the node, and one not to.
func (r *run) backToWork(job *record.Job) {
	r.daemon.killAll()
	r.awaitIdle()
	time.Sleep(deadListed)
	for i, want := range []string{"counted clean: clean 1 of 2 times in a row",
		"resumed: clean 2 of 2 times in a row"} {
		c := r.nodeCheck(fmt.Sprintf("the process gone, %d", i+1))
		r.clear(c)
		r.holds("what it made of the drain", want+"...", c.Drain, strings.HasPrefix(c.Drain, want))
		if i == 0 {
			r.reasoned(job)
		}
	}
	if r.inService(); r.rec.Judge() != record.Right {
		return // on a node that stays drained no job would begin
	}
	next := r.run1(r.script(whichCard...), "--gres=gpu:1")
	r.clean(next)
}

// occupants are processes on cards, in words.
func occupants(seen []record.Occupant) string {
	var all []string
	for _, o := range seen {
		all = append(all, fmt.Sprintf("%d on %s", o.PID, o.GPU))
	}
	if len(all) == 0 {
		return "none"
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}
