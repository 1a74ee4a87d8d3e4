// Clean-up ends processes that an ended job left on a card, where the admin has switched that on.
//
//	pidfd_open ─► read /proc/PID ─► proven the job's ─► SIGTERM ─► grace ─► SIGKILL ─► wait
//
// The order is the point: the descriptor pins one process before that process is looked at, and all signals go
// through it, so that a PID that is used again in between is never somebody else's end. What cannot be proven is
// left alone. Reading another process's /proc can sleep, so a hook has it done in a child.

package operation

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/attrib"
	"bookend/internal/child"
	"bookend/internal/config"
	"bookend/internal/finding"
)

// Result is the outcome of one process.
type Result struct {
	PID     int             `json:"pid"`
	Outcome finding.Outcome `json:"outcome"`
	// Why is for Refused and StillThere; raw strings of the system may be inside.
	Why string `json:"why,omitempty"`
}

// Order is how leftovers are ended.
type Order struct {
	Proc string // /proc, for this process's own ancestors
	// Read looks at a process anew, once it is pinned.
	Read func(pid int) attrib.Process
	// Owned proves from such a look, by its cgroup or by a sighting of this very process, that it is the ended
	// job's. A weaker proof than that must answer false.
	Owned func(attrib.Process) bool
	Grace time.Duration // between SIGTERM and SIGKILL, for all together

	testOnlyOpen func(pid int) (fd int, err error) // nil is pidfd_open
	testOnlySend func(fd int, sig unix.Signal) error
}

// End ends these processes, as they were seen when they were judged: it takes at most Grace and config.KillWait,
// however many they are, beside the reading. Results are in the order given.
func End(o Order, judged []attrib.Process) []Result {
	results := make([]Result, len(judged))
	pinned := map[int]int{} // place in results: descriptor
	defer func() {
		for _, fd := range pinned {
			_ = unix.Close(fd)
		}
	}()
	own, err := ancestors(o.Proc)
	for i, p := range judged {
		fd, result := -1, refuse(p.PID, "this process's own ancestors could not be told: %v", err)
		if err == nil {
			fd, result = o.pin(p, own)
		}
		if results[i] = result; fd >= 0 {
			pinned[i] = fd
		}
	}
	o.signal(pinned, results, unix.SIGTERM)
	wait(pinned, results, o.Grace, finding.ByTerm)
	o.signal(pinned, results, unix.SIGKILL)
	wait(pinned, results, config.KillWait, finding.ByKill)
	for i := range pinned {
		results[i].Outcome = finding.StillThere
		results[i].Why = fmt.Sprintf("not gone %v after SIGKILL: it hangs in the kernel", config.KillWait)
	}
	return results
}

// pin gets hold of a process that is to be ended: fd is -1 for one that is gone, or must be left alone.
func (o Order) pin(p attrib.Process, own map[int]bool) (fd int, r Result) {
	switch {
	case p.PID <= 1 || own[p.PID]:
		return -1, refuse(p.PID, "it is this process, an ancestor of it, or the system's first")
	case p.Gone || p.Why != "" || p.Start <= 0:
		return -1, refuse(p.PID, "which process it was is not known")
	}
	// Threat: a PID names another process as soon as the first has ended; a descriptor never does.
	fd, err := o.open(p.PID)
	switch {
	case errors.Is(err, unix.ESRCH):
		return -1, Result{PID: p.PID, Outcome: finding.AlreadyGone}
	case errors.Is(err, unix.ENOSYS):
		return -1, refuse(p.PID, "this kernel has no pidfd (Linux 5.3): nothing can be ended safely")
	case err != nil:
		return -1, refuse(p.PID, "open pidfd: %v", err)
	}
	r, is := o.proven(p)
	if !is {
		_ = unix.Close(fd)
		return -1, r
	}
	return fd, r
}

// proven looks at a pinned process again: it must be the one that was judged, and still be proven the job's.
// Threat: a process moved to a live job's cgroup, or Slurm's own process in the ended job's.
func (o Order) proven(p attrib.Process) (r Result, is bool) {
	now := o.Read(p.PID)
	switch {
	case now.Gone, now.Why == "" && now.PID == p.PID && now.Start != p.Start: // its PID is another's by now
		return Result{PID: p.PID, Outcome: finding.AlreadyGone}, false
	case now.Why != "" || now.PID != p.PID:
		return refuse(p.PID, "could not be read again: %s", now.Why), false
	case now.Cgroup.Daemon || strings.HasPrefix(now.Name, "slurmstepd"):
		return refuse(p.PID, "it is Slurm's own"), false
	case !o.Owned(now):
		return refuse(p.PID, "it is not proven to be the ended job's any more"), false
	}
	return Result{PID: p.PID}, true
}

func refuse(pid int, format string, args ...any) Result {
	return Result{PID: pid, Outcome: finding.Refused, Why: fmt.Sprintf(format, args...)}
}

// signal sends to every process that is still pinned. One that cannot be sent to is let go.
func (o Order) signal(pinned map[int]int, results []Result, sig unix.Signal) {
	for i, fd := range pinned {
		err := o.send(fd, sig)
		if err == nil || errors.Is(err, unix.ESRCH) { // ended meanwhile: wait sees it
			continue
		}
		results[i] = refuse(results[i].PID, "send %s: %v", unix.SignalName(sig), err)
		if sig == unix.SIGKILL {
			results[i].Outcome = finding.StillThere
		}
		_ = unix.Close(fd)
		delete(pinned, i)
	}
}

func (o Order) open(pid int) (int, error) {
	if o.testOnlyOpen != nil {
		return o.testOnlyOpen(pid)
	}
	return unix.PidfdOpen(pid, 0)
}

// send signals a process. Threat: a wrong one. The descriptor was proven to be the ended job's process.
func (o Order) send(fd int, sig unix.Signal) error {
	if o.testOnlySend != nil {
		return o.testOnlySend(fd, sig)
	}
	return unix.PidfdSendSignal(fd, sig, nil, 0)
}

// wait lets go of each process that has ended, threads and all, for at most limit.
func wait(pinned map[int]int, results []Result, limit time.Duration, outcome finding.Outcome) {
	over := time.NewTimer(limit)
	defer over.Stop()
	for last := false; len(pinned) > 0; {
		for i, fd := range pinned {
			if !ended(fd) {
				continue
			}
			results[i].Outcome = outcome
			_ = unix.Close(fd)
			delete(pinned, i)
		}
		if last {
			return
		}
		select {
		case <-over.C:
			last = true // looks once more: the scheduler may have kept this process away
		case <-time.After(step):
		}
	}
}

// step is the pause between two looks: a process takes from a millisecond to some hundred to end.
const step = 5 * time.Millisecond

// ended reports that a pidfd's process is over: it is readable then, and not before its last thread has ended.
func ended(fd int) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n == 1 && fds[0].Revents&unix.POLLIN != 0
}

// ancestors are this process and all above it, up to the first of its PID namespace.
func ancestors(proc string) (map[int]bool, error) {
	own := map[int]bool{}
	for pid := os.Getpid(); pid > 1 && !own[pid]; {
		own[pid] = true
		parent, _, err := child.Parent(proc, pid)
		if err != nil {
			return nil, err
		}
		pid = parent
	}
	return own, nil
}
