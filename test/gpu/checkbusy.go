package main

import (
	"fmt"
	"os"
	"path/filepath"

	"bookend/test/cluster"
)

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
		fmt.Sprintf("%d MiB", most/mib),
		first > 0 && most < first+64*mib)
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
