package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"bookend/internal/gpu"
	"bookend/test/rig"
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
	job := r.atEnd(s, func() {
		r.awaitLook()
		h.kill()
	})
	r.evidence("after the job")
	r.cleanEnds(job)
	r.lookedAgain(job)
	for _, w := range r.scene.others {
		err := syscall.Kill(w.PID, 0)
		r.holds("the workers ended by themselves", "no such process", err,
			err != nil || readProc(w.PID).State[0] == 'Z')
	}
	r.draining(job, 0)
}

func (r *run) workers(s *standing) *holder {
	if r.fake > 0 {
		life := "0.4" // much less than the settle time that a rehearsal has here
		if r.scene.control {
			life = "30" // and more than that of the control
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
	r.holds("the epilog met the memory and waited", "more than one look", looks, looks > 1)
}

func (r *run) pieces() {
	s := r.stand()
	h := r.ask(s, "cudajob", "alloc", "--pieces-2mib", "--mib", fmt.Sprint((r.total()*9/10)&^1))
	h.Role = "dead: killed as the job ended"
	if w := r.site.World(r.node); w != nil { // a busy machine's looks are far apart
		try(w.Set("teardown_ms", "1200"))
		defer func() { _ = w.Set("teardown_ms", "") }()
	}
	r.scenery(&h.Holder)
	r.known(s.card.UUID, &h.Holder)
	r.evidence("before the job ends")
	job := r.atEnd(s, func() {
		r.awaitLook()
		try(h.cmd.Process.Kill())
	})
	r.evidence("after the job")
	r.clean(job)
	r.lookedAgain(job)
	r.draining(job, 0)
}

// awaitLook waits, in a rehearsal, until the epilog has looked at its GPUs: what goes away before its eyes must not be
// gone by then, however late a busy machine starts it.
func (r *run) awaitLook() {
	w := r.site.World(r.node)
	if w == nil || r.scene.control {
		return
	}
	const look = "on.nvmlDeviceGetMemoryInfo_v2"
	try(w.Set(look, "note after 1")) // the second call: the first is over
	defer func() { _ = w.Set(look, "") }()
	settled(func() {
		if !slices.ContainsFunc(must(w.Noted()), func(pid int) bool { return childOf(pid, "bookend-epilog") }) {
			panic(fmt.Errorf("no epilog has looked at the GPUs"))
		}
	})
}

// childOf reports a process whose parent runs this program.
func childOf(pid int, program string) bool {
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", rig.ReadProcess(pid).Parent))
	return err == nil && filepath.Base(exe) == program
}

func (r *run) nearFull() {
	job := r.run1(r.script("$CUDAJOB alloc --near-full 256 --sleep 1"), "--gres=gpu:1")
	r.clean(job)
	r.draining(job, 0)
}

func (r *run) probe() {
	meanwhile, flag, value := r.pastFlat()
	job := r.probeAtEnd(meanwhile, flag, value)
	r.cleanEnds(job)
	r.lookedAgain(job)
	r.draining(job, 0)
}

func (r *run) probeStays() {
	job := r.probeAtEnd(nothingMeanwhile, "--sleep", fmt.Sprint(jobPatience.Seconds()))
	r.check("start of the job", "clean", verdict(job.Start))
	f := r.one("end of the job", job.End, "BKD-UNREAD")
	r.names(f, leftover{unknown: true, code: "BKD-UNREAD"})
	r.rightCards(job)
	r.draining(job, 0)
}

// probeAtEnd runs a job at whose end a probe is at work. These flags say when the probe ends. What meanwhile makes of
// the probe's lock before the job ends is done as the epilog begins.
func (r *run) probeAtEnd(meanwhile func(lock string) (atEnd func()), flags ...string) *job {
	s := r.stand()
	lock := r.probeLock(s.card.UUID)
	h := r.daemon.start(0, 0, s.card.UUID, "cudajob", append([]string{"probe", "--all", "--lock", lock}, flags...)...)
	h.Role = "root's probe"
	r.scenery(&h.Holder)
	r.evidence("the probe at work")
	job := r.atEnd(s, meanwhile(lock))
	r.evidence("after the job")
	return job
}

// pastFlat has a probe end when the epilog of a job that may end now has had its last look, and waits for probes, which
// it does for 1.5 s: jobs take a third of a second to end, and what does not change is settled at 3.6 s. A rehearsal
// sees the epilog ask for the lock; that of the control has no need to wait.
func (r *run) pastFlat() (meanwhile func(lock string) (atEnd func()), flag, value string) {
	switch gate := r.gate(); {
	case r.fake == 0:
		return nothingMeanwhile, "--sleep", "4.7"
	case r.scene.control:
		return nothingMeanwhile, "--after", gate
	default:
		return func(lock string) func() {
			wait := opening(lock)
			return func() {
				wait()
				try(open(gate))
			}
		}, "--after", gate
	}
}

func nothingMeanwhile(string) (atEnd func()) { return nothing }

// probeLock is the file that a probe of this card holds locked.
func (r *run) probeLock(uuid string) string {
	if r.scene.control {
		return filepath.Join(r.site.Dir, "another.lock")
	}
	return r.store().Turns.ProbeLock(gpu.ID(uuid))
}
