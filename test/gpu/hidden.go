package main

import (
	"fmt"
	"slices"

	"bookend/internal/record"
	"bookend/test/gpu/runrecord"
)

// hiding is a job that leaves a program which does something that once passed for an excuse.
func hiding(ready func(*holder), flags ...string) func(*run) {
	return func(r *run) {
		job := r.leaveHidden(ready, flags...)
		r.blames(about(job, r.scene.holder.PID), job.ID, record.ByExclusive)
		r.found(job)
	}
}

// leaveHidden runs a job that leaves a program. Its memory may move, so that what it holds is known to be no less than asked
// for.
func (r *run) leaveHidden(ready func(*holder), flags ...string) *job {
	return r.leave(func(s *standing) {
		h := r.ask(s, "cudajob", append([]string{"alloc", "--mib", fmt.Sprint(r.size())}, flags...)...)
		ready(h)
		h.Role, h.GPU = "left behind", s.card.UUID
		h.Held = r.listed(s.card.UUID)[h.PID]
		r.scenery(&h.Holder)
	})
}

// found wants the end of the job to name the process it left for all that it holds, and the node drained. What else is
// said of memory that moves is true as well.
func (r *run) found(job *job) {
	f := about(job, r.scene.holder.PID)
	r.check("start of the job", "clean", verdict(job.Start))
	r.check("the process it left", "BKD-ORPHAN", string(f.Code))
	r.holds("doubts", "none", f.Doubts, f.Unknown == "" && len(f.Doubts) == 0)
	r.holds("bytes", fmt.Sprintf("%d MiB or more", r.size()), fmt.Sprintf("%d MiB", f.Bytes.Bytes/mib),
		f.Bytes.Bytes >= r.size()*mib)
	r.rightCards(job)
	r.draining(job, exitOrphan)
}

// hiddenByID: the environment names a job that there never was. A job without GPUs, which leaves no record, would look
// the same, so that no job is blamed.
func (r *run) hiddenByID() {
	before := r.daemon.env
	r.daemon.env = append(slices.Clone(before), "SLURM_JOB_ID=424242")
	defer func() { r.daemon.env = before }()
	job := r.leaveHidden(asItIs)
	r.blames(about(job, r.scene.holder.PID), 0, "")
	r.found(job)
}

// passers starts processes that end at once, one after the other, four at a time.
const passers = `echo "ready pid=$$"
for i in 1 2 3 4; do while :; do /bin/true; done & done
wait`

func (r *run) hiddenAmongPassers() {
	crowd := r.startAs(1, "", "passers")
	crowd.Role = "starts processes that end at once"
	r.leavePhantom("cudajob", r.forkHold(), runrecord.Holder{PID: crowd.PID, Role: crowd.Role, UID: crowd.UID})
}
