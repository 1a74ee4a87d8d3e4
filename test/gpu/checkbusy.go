package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"bookend/test/cluster"
	"bookend/test/gpu/record"
)

var checkBusy = step{
	name: "check-busy", title: "Health checks beside a job at work",
	truth: "A job uses its GPU without pause, and keeps 20 GiB of it. Five health checks run meanwhile: each sees " +
		"the job's process, finds nothing and says nothing. None takes memory of the GPU, the job keeps its pace, " +
		"and ends well.",
	do: func(r *run) {
		id, gate, pid := r.toil()
		r.besideWork(id, pid)
		try(open(gate))
		job := r.finish(id)
		if r.scene.off != nil {
			return
		}
		r.check("what became of the job", "COMPLETED", job.State)
		r.clean(job)
		r.draining(job, 0)
	},
}

// toil starts a job that is at work until a gate opens, and returns the PID of its process.
func (r *run) toil() (id cluster.JobID, gate string, pid int) {
	gate = r.gate()
	script := r.script(fmt.Sprintf("$CUDAJOB alloc --mib %d --chunks %d --beat 50 &", r.size()&^1023, r.size()>>10),
		r.until(gate), "kill $!", "wait $! || true")
	id = r.submit(0, script, "--gres=gpu:1")
	r.awaitOutput(id, "beat ")
	text := must(r.site.Output(id))
	m := regexp.MustCompile(`(?m)^ready pid=(\d+) `).FindStringSubmatch(text)
	if m == nil {
		panic(brokenf("job %s said %q", id, tail(text)))
	}
	return id, gate, int(number(m[1]))
}

// besideWork runs health checks beside a job at work.
func (r *run) besideWork(id cluster.JobID, pid int) {
	checks := 5
	if r.scene.off != nil {
		checks = 1 // of a job that is not on record each takes seconds
		defer r.hide(id)()
	}
	text := must(r.site.Output(id))
	card := cudaCards(text)
	if len(card) != 1 {
		panic(brokenf("job %s named %d GPUs: %q", id, len(card), tail(text)))
	}
	w, first := r.follow("highest", "highest", card[0].UUID)
	for i := range checks {
		c := r.nodeCheck(fmt.Sprintf("beside the job, %d of %d", i+1, checks))
		r.nothingFound(c)
		r.check("processes that it saw", occupants([]record.Occupant{{GPU: card[0].UUID, PID: pid}}), occupants(c.Seen))
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
