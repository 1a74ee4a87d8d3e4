package main

import (
	"fmt"
	"os"
	"syscall"

	"bookend/internal/gpu"
	"bookend/internal/slurm"
	"bookend/test/gpu/runrecord"
	"bookend/test/rig"

	"golang.org/x/sys/unix"
)

func (r *run) probeKilled() {
	c := r.cards[0]
	w := r.watch(c.uuid)
	defer w.end()
	used := r.killProbe(w, c)
	r.holds("memory in use at the moment of the kill", "more than half of the GPU", used+" bytes",
		number(used) > r.total()*mib/2)
	r.check("its lock", "free", r.lockOf(c.uuid))
	job := r.ownJobs(1)
	r.check("a prolog started at once says", "clean", r.hook(slurm.Prolog, job, nothing).Message)
	empty := must(w.await("empty"))
	soon := r.fake > 0 || len(empty["after_ms"]) <= len("1999.9") // fake GPUs have no time of their own to show
	r.holds("memory in use after it", "0 bytes within 2 s",
		fmt.Sprintf("%s bytes after %s ms", empty["used"], empty["after_ms"]), empty["used"] == "0" && soon)
	r.check("its epilog says", "clean", r.hook(slurm.Epilog, job, nothing).Message)
}

// killProbe kills a backend while it holds memory and returns how much was in use.
func (r *run) killProbe(w *watcher, c card) (used string) {
	a := r.slowProbe(w, c, r.gate())
	seen := must(w.await("taken"))
	_ = a.cmd.Process.Kill()
	_ = a.cmd.Wait() // says that it was killed
	killed := a.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !killed.Signaled() || killed.Signal() != syscall.SIGKILL {
		panic(fmt.Errorf("the backend was not killed but ended: %s", tail(a.out.String())))
	}
	return seen["used"]
}

// slowProbe starts a test of a card that is empty, which holds the memory for a while; in a rehearsal until the gate is
// open, however slow the machine is.
func (r *run) slowProbe(w *watcher, c card, gate string) *process {
	line := r.probeRequest([]card{c}, true)
	try(w.settle())
	if world := r.site.World(r.node); world != nil {
		return r.askBackend(line, "LD_LIBRARY_PATH="+world.Dir(), "BOOKEND_LANE_HOLD="+gate)
	}
	return r.askBackend(line)
}

// lockOf says whether a card's probe lock is free.
func (r *run) lockOf(uuid string) string {
	f := must(os.OpenFile(r.store().Turns.ProbeLock(gpu.ID(uuid)), os.O_RDWR, 0))
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return err.Error()
	}
	return "free"
}

func (r *run) probeHooks() {
	c := r.cards[0]
	w := r.watch(c.uuid)
	defer w.end()
	met := 0
	for range 3 {
		job := r.ownJobs(1)
		for _, context := range []slurm.Context{slurm.Prolog, slurm.Epilog} {
			h := r.duringProbe(w, c, context, job)
			if r.check(fmt.Sprintf("hook %s during a probe", context), "clean", h.Message); h.Looks > 1 {
				met++
			}
		}
	}
	r.holds("hooks that met the memory and looked again", "one or more", met, met > 0)
}

// duringProbe starts a hook at the moment when a probe has taken memory.
func (r *run) duringProbe(w *watcher, c card, context slurm.Context, job int) runrecord.Hook {
	gate := r.gate()
	a := r.slowProbe(w, c, gate)
	must(w.await("taken"))
	wait := nothing
	if r.fake > 0 {
		wait = opening(r.store().Turns.ProbeLock(gpu.ID(c.uuid)))
	}
	said := r.hook(context, job, func() {
		wait()
		try(open(gate))
	})
	r.tests("while a hook ran beside it", a)
	return said
}

func nothing() {}

// opening watches a file; wait returns once another process has opened it since. The lock of a probe is opened by a hook
// that has seen the memory settled, and judges it only when no probe is at work.
func opening(path string) (wait func()) {
	openings := must(rig.WatchOpenings(path))
	return func() {
		defer openings.Close()
		try(openings.Next(patience))
	}
}
