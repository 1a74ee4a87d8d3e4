package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"bookend/test/cluster"
	"bookend/test/gpu/runrecord"
)

func (r *run) checkIdle() {
	const checks = 5
	for i := range checks {
		if i == checks-1 && r.scene.control {
			r.squeeze(r.cards[0].uuid)
		}
		c := r.nodeCheck(fmt.Sprintf("idle, %d of %d", i+1, checks))
		r.nothingFound(c)
		r.sees(c, "", 0)
	}
	r.inService()
}

func (r *run) checkOrphan() {
	job := r.takesLate()
	r.clean(job)
	c := r.nodeCheck("between jobs, the process on the GPU")
	h := r.scene.holder
	r.foundOnCard(c, r.itsOrphan(job, "orphan"), "warn")
	r.logged(c, "BKD-ORPHAN", fmt.Sprintf("GPU %d", job.GPUs[0].Index), fmt.Sprintf("process %d", h.PID),
		fmt.Sprintf("job %d (exclusive)", job.ID))
	r.statusNames("BKD-ORPHAN")
	r.leaks(h)
	r.inService()
	r.stillThere()
}

// takesLate runs a job that leaves a process which takes memory only when the epilog is over.
func (r *run) takesLate() *job {
	late := r.gate() + "-late"
	s := r.stand()
	h := r.ask(s, "cudajob", "alloc", "--mib", fmt.Sprint(r.size()), "--after", late)
	h.Role, h.Allocated = "takes memory after its job's end", r.size()*mib
	job := r.release(s)
	r.evidence("after the job, the process without memory")
	if len(job.GPUs) == 0 {
		panic(fmt.Errorf("job %d has no GPU on record", job.ID))
	}
	try(open(late))
	settled(func() { r.known(s.card.UUID, &h.Holder) })
	r.scenery(&h.Holder)
	r.scene.left = job
	r.evidence("the process with memory")
	return job
}

func (r *run) checkResume() {
	job := r.leaveOrphan()
	r.orphan(job, "orphan", exitOrphan)
	for _, when := range []string{"drained by the epilog", "the process still there"} {
		c := r.nodeCheck(when)
		r.foundOnCard(c, r.itsOrphan(job, "orphan"), "warn")
		r.reasonIs(r.service(), job)
	}
	r.backToWork(job)
}

// backToWork ends the process and wants two clean checks to resume the node, and one not to.
func (r *run) backToWork(job *job) {
	r.daemon.killAll()
	r.awaitIdle()
	time.Sleep(deadListed)
	for i, want := range []string{"left alone: clean 1 of 2 times in a row",
		"resumed: clean 2 of 2 times in a row"} {
		c := r.nodeCheck(fmt.Sprintf("the process gone, %d", i+1))
		r.clear(c)
		r.holds("what it made of the drain", want+"...", c.Drain, strings.HasPrefix(c.Drain, want))
		if i == 0 {
			r.reasonIs(r.service(), job)
		}
	}
	if r.inService(); r.rec.Judge() != runrecord.Right {
		return // on a node that stays drained no job would begin
	}
	r.clean(r.run1(r.script(whichCard...), "--gres=gpu:1"))
}

// sees wants a check to have seen this process alone, none for 0.
func (r *run) sees(c nodeCheck, uuid string, pid int) {
	want, seen := []string{}, []string{}
	if pid != 0 {
		want = append(want, fmt.Sprintf("%d on %s", pid, uuid))
	}
	for _, o := range c.Seen {
		seen = append(seen, fmt.Sprintf("%d on %s", o.PID, o.GPU))
	}
	r.check("processes that it saw", cmp.Or(strings.Join(want, ", "), "none"), cmp.Or(strings.Join(seen, ", "), "none"))
}

func (r *run) checkBusy() {
	gate := r.gate()
	script := r.script(fmt.Sprintf("$CUDAJOB alloc --mib %d --chunks %d --beat 50 &", r.size()&^1023, r.size()>>10),
		r.until(gate), "kill $!", "wait $! || true")
	id := r.submit(0, script, "--gres=gpu:1")
	r.besideWork(id, r.awaitOutput(id, "beat "))
	try(open(gate))
	job := r.finish(id)
	if r.scene.control {
		return
	}
	r.check("what became of the job", "COMPLETED", job.State)
	r.clean(job)
	r.draining(job, 0)
}

// besideWork runs health checks beside a job at work, which has said who it is.
func (r *run) besideWork(id cluster.JobID, said string) {
	checks := 5
	if r.scene.control {
		checks = 1 // of a job that is not on record each takes seconds
		defer r.hide(id)()
	}
	card := cudaCards(said)
	if len(card) != 1 {
		panic(fmt.Errorf("job %s named %d GPUs: %q", id, len(card), tail(said)))
	}
	w, first := r.follow("highest", "highest", card[0].UUID)
	for i := range checks {
		c := r.nodeCheck(fmt.Sprintf("beside the job, %d of %d", i+1, checks))
		r.nothingFound(c)
		r.sees(c, card[0].UUID, saidPID(said))
	}
	r.untouched(number(first["used"]), w.most())
}

// untouched wants the most that was in use meanwhile to be what was in use at first: a test allocation would have
// taken the rest.
func (r *run) untouched(first, most uint64) {
	r.holds("the most of the GPU in use meanwhile", fmt.Sprintf("%d MiB, as before", first/mib),
		fmt.Sprintf("%d MiB", most/mib), first > 0 && most < first+64*mib)
}

// hide puts a job's record aside; back puts it back.
func (r *run) hide(id cluster.JobID) (back func()) {
	folder, aside := filepath.Join(r.site.Run(), "state", r.node, string(id)), filepath.Join(r.site.Dir,
		"aside-"+string(id))
	try(os.Rename(folder, aside))
	return func() { try(os.Rename(aside, folder)) }
}

// most ends a watcher of the highest use and returns what that was, in bytes.
func (w *watcher) most() (bytes uint64) {
	_ = w.cmd.Process.Kill()
	for line := range w.lines {
		bytes = max(bytes, number(parseReady(line)["used"]))
	}
	_ = w.cmd.Wait() // says that it was killed
	return bytes
}
