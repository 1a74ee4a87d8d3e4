package main

import (
	"fmt"
	"path/filepath"
	"syscall"
	"time"

	"bookend/internal/gpu"
)

func (r *run) loaderKilled() {
	size := min(100<<10, r.total()*7/10)
	line := r.torch(fmt.Sprint("loader.py ", size), fmt.Sprintf("--mib %d --chunks 100 --workers 3 --workers-life 1", size))
	id := r.submit(0, r.script("exec "+line), "--gres=gpu:1")
	r.awaitOutput(id, "ready ")
	r.evidence("while the job runs")
	try(r.site.Cancel(id))
	job := r.finish(id)
	r.check("what became of the job", "CANCELLED", job.State)
	r.clean(job)
	r.draining(job, 0)
}

func (r *run) outlived() {
	s := r.stand()
	h := r.workers(s)
	h.Role, h.Proc = "dead: killed as the job ended", readProc(h.PID)
	r.scenery(&h.Holder, r.kin("worker")...)
	if r.known(s.card.UUID, &h.Holder); len(r.scene.others) == 0 {
		panic(fmt.Errorf("process %d has no workers", h.PID))
	}
	r.evidence("before the job ends")
	job := r.atEnd(s, h.kill)
	r.evidence("after the job")
	r.cleanEnds(job)
	r.lookedAgain(job)
	for _, w := range r.scene.others {
		err := syscall.Kill(w.PID, 0)
		r.holds("the workers ended by themselves", "no such process", fmt.Sprint(err), err != nil ||
			readProc(w.PID).State[0] == 'Z')
	}
	r.draining(job, 0)
}

func (r *run) workers(s *standing) *holder {
	if r.fake > 0 {
		life := "0.4" // less than a rehearsal's settle time, and more than that of the control
		if r.scene.control {
			life = "2"
		}
		return r.ask(s, "cudajob", "alloc", "--mib", fmt.Sprint(r.size()), "--workers", "4", "--workers-life", life)
	}
	return r.ask(s, "workers", fmt.Sprint(min(8<<10, r.size())))
}

// lookedAgain wants the epilog to have met what goes away: else the scene did not come about.
func (r *run) lookedAgain(job *job) {
	looks := 0
	for _, c := range job.AtEnd().Curves {
		looks = max(looks, c.Looks)
	}
	r.holds("the epilog met the memory and waited", "more than one look", fmt.Sprint(looks), looks > 1)
}

func (r *run) pieces() {
	s := r.stand()
	h := r.ask(s, "cudajob", "alloc", "--pieces-2mib", "--mib", fmt.Sprint((r.total()*9/10)&^1))
	h.Role = "dead: killed as the job ended"
	if w := r.site.World(r.node); w != nil { // a busy machine's hooks come late
		try(w.Set("teardown_ms", "1200"))
		defer func() { _ = w.Set("teardown_ms", "") }()
	}
	r.scenery(&h.Holder)
	r.known(s.card.UUID, &h.Holder)
	r.evidence("before the job ends")
	job := r.atEnd(s, func() { try(h.cmd.Process.Kill()) })
	r.evidence("after the job")
	r.clean(job)
	r.lookedAgain(job)
	r.draining(job, 0)
}

func (r *run) nearFull() {
	job := r.run1(r.script("$CUDAJOB alloc --near-full 256 --sleep 1"), "--gres=gpu:1")
	r.clean(job)
	r.draining(job, 0)
}

func (r *run) probe() {
	job := r.probeAtEnd(r.pastFlat())
	r.cleanEnds(job)
	r.lookedAgain(job)
	r.draining(job, 0)
}

func (r *run) probeStays() {
	job := r.probeAtEnd(jobPatience)
	r.check("start of the job", "clean", verdict(job.Start))
	f := r.one("end of the job", job.End, "BKD-UNREAD")
	r.names(f, leftover{unknown: true, code: "BKD-UNREAD"})
	r.rightCards(job)
	r.draining(job, 0)
}

// probeAtEnd runs a job beside whose end a probe is at work, for so long from now.
func (r *run) probeAtEnd(lasts time.Duration) *job {
	s := r.stand()
	lock := r.probeLock(s.card.UUID)
	h := r.daemon.start(0, 0, s.card.UUID, "cudajob", "probe", "--all", "--lock", lock, "--sleep",
		fmt.Sprint(lasts.Seconds()))
	h.Role = "root's probe"
	r.scenery(&h.Holder)
	r.evidence("the probe at work")
	job := r.release(s)
	r.evidence("after the job")
	return job
}

// pastFlat is a time from now at which a job that may end now has had its last look, and its epilog waits for probes,
// which it does for 1.5 s: jobs take a third of a second to end, and what does not change is settled at 3.6 s (a
// rehearsal: 0.8 s).
func (r *run) pastFlat() time.Duration {
	if r.fake > 0 {
		return 1900 * time.Millisecond
	}
	return 4700 * time.Millisecond
}

// probeLock is the file that a probe of this card holds locked.
func (r *run) probeLock(uuid string) string {
	if r.scene.control {
		return filepath.Join(r.site.Dir, "another.lock")
	}
	return r.store().ProbeLock(gpu.ID(uuid))
}
