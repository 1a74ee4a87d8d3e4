package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"bookend/internal/gpu"
	"bookend/internal/state"

	"golang.org/x/sys/unix"
)

// The job ids that hooks started by the lane itself are told, above any of Slurm's here and apart from the timings'.
const ownJob = 300000

// How often a probe is begun anew for a moment that is over in some 45 ms.
const attempts = 12

const pause = "sleep 150"

// hookPause makes a rehearsal's release of memory take its time, as the real driver's does. The fake driver takes it
// before it gives the memory back.
func (r *run) hookPause(rule string) error {
	if w := r.site.World(r.node); w != nil {
		return w.Set("on.cuMemRelease", rule)
	}
	return nil
}

var probeKilled = step{
	name: "probe-killed", title: "Test allocation killed half-way",
	truth: "The backend is killed by SIGKILL while it holds nearly all of the card. The driver takes the memory back at once, the " +
		"lock is free, and a prolog that starts then finds the card clean.",
	do: func(r *run) error {
		if err := r.hookPause(pause); err != nil {
			return err
		}
		c := r.cards[0]
		w, err := r.watch(c.uuid)
		if err != nil {
			return err
		}
		defer w.end()
		used, err := r.killProbe(w, c)
		if err != nil {
			return err
		}
		r.holds("memory in use at the moment of the kill", "more than half of the card", used+" bytes", number(used) > r.total()*mib/2)
		r.check("its lock", "free", r.lockOf(c.uuid))
		hook, err := r.hook("prolog_slurmd", ownJob+r.rec.Number)
		if err != nil {
			return err
		}
		r.check("a prolog started at once says", "clean", hook)
		empty, err := w.await("empty", 5*time.Second)
		if err != nil {
			return err
		}
		r.holds("memory in use after it", "0 bytes within 2 s", fmt.Sprintf("%s bytes after %s ms", empty["used"], empty["after_ms"]),
			empty["used"] == "0" && len(empty["after_ms"]) <= len("1999.9"))
		hook, err = r.hook("epilog_slurmd", ownJob+r.rec.Number)
		r.check("its epilog says", "clean", hook)
		return errors.Join(err, r.hookPause(""))
	},
}

// killProbe kills a backend while it holds memory and returns how much was in use.
func (r *run) killProbe(w *watcher, c card) (used string, err error) {
	line, err := r.probeRequest([]card{c})
	if err != nil {
		return "", err
	}
	for range attempts {
		a, err := r.askAgain(w, line)
		if err != nil {
			return "", err
		}
		seen, missed := w.await("taken", 3*time.Second)
		_ = a.cmd.Process.Kill()
		_ = a.cmd.Wait() // says that it was killed
		if killed := a.cmd.ProcessState.Sys().(syscall.WaitStatus); missed == nil && killed.Signaled() && killed.Signal() == syscall.SIGKILL {
			return seen["used"], nil
		}
	}
	return "", fmt.Errorf("in %d attempts no probe was killed while it held memory", attempts)
}

// askAgain starts a probe on a card that is empty.
func (r *run) askAgain(w *watcher, line []byte) (*asked, error) {
	if err := w.settle(); err != nil {
		return nil, err
	}
	return r.askBackend(line)
}

// lockOf says whether a card's probe lock is free.
func (r *run) lockOf(uuid string) string {
	store, err := state.Open(r.site.Run(), r.node)
	if err != nil {
		return err.Error()
	}
	f, err := os.OpenFile(store.ProbeLock(gpu.ID(uuid)), os.O_RDWR, 0)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return err.Error()
	}
	return "free"
}

// hook runs a hook on every card as slurmd would and returns what Bookend's log says of it.
func (r *run) hook(context string, job int) (string, error) {
	before, err := r.hooks(job)
	if err != nil {
		return "", err
	}
	name := map[string]string{"prolog_slurmd": "bookend-prolog", "epilog_slurmd": "bookend-epilog"}[context]
	cmd := exec.Command(r.site.Program(name))
	cmd.Env = r.hookEnv(context, job, true, r.site.ConfigFile(r.node))
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", name, err, tail(string(out)))
	}
	all, err := r.hooks(job)
	if err == nil && len(all) != len(before)+1 {
		err = fmt.Errorf("%s wrote %d lines to the log, want one", name, len(all)-len(before))
	}
	if err != nil {
		return "", err
	}
	last := all[len(all)-1]
	r.looks = append(r.looks, last.Looks)
	return last.Message, nil
}

var probeHooks = step{
	name: "probe-hooks", title: "Hooks while a test allocation is at work",
	truth: "Prologs and epilogs start while the backend's own test holds nearly all of the card. That memory is nobody's leak: every " +
		"one of them finds the card clean.",
	do: func(r *run) error {
		if err := r.hookPause(pause); err != nil {
			return err
		}
		c := r.cards[0]
		w, err := r.watch(c.uuid)
		if err != nil {
			return err
		}
		defer w.end()
		for i := range 3 {
			for _, context := range []string{"prolog_slurmd", "epilog_slurmd"} {
				said, err := r.duringProbe(w, c, context, ownJob+100+10*r.rec.Number+i)
				if err != nil {
					return err
				}
				r.check(fmt.Sprintf("hook %s during a probe", context), "clean", said)
			}
		}
		met := 0
		for _, looks := range r.looks {
			if looks > 1 {
				met++
			}
		}
		r.holds("hooks that met the memory and looked again", "one or more", fmt.Sprintf("%d of %d", met, len(r.looks)), met > 0)
		return r.hookPause("")
	},
}

// duringProbe starts a hook at the moment when a probe has taken memory. Where the moment was too short to be seen, another
// probe is begun.
func (r *run) duringProbe(w *watcher, c card, context string, job int) (said string, err error) {
	line, err := r.probeRequest([]card{c})
	if err != nil {
		return "", err
	}
	for range attempts {
		a, err := r.askAgain(w, line)
		if err != nil {
			return "", err
		}
		_, missed := w.await("taken", 3*time.Second)
		if missed == nil {
			said, err = r.hook(context, job)
		}
		_, bad := a.end()
		if err = errors.Join(err, bad); err != nil || missed == nil {
			return said, err
		}
	}
	return "", fmt.Errorf("in %d attempts no probe was seen to hold memory", attempts)
}
