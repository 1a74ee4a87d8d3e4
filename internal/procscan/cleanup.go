package procscan

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/child"
	"bookend/internal/record"
	"bookend/internal/slurm"
)

// CleanupRequest lists the processes to end, as they were judged, and the job that they were proven to belong to.
type CleanupRequest struct {
	Proc      string           `json:"proc"`
	Processes []record.Process `json:"processes"`
	Owner     slurm.Owner      `json:"owner"`
	Grace     time.Duration    `json:"grace_ns"` // between SIGTERM and SIGKILL, for all together
	Wait      time.Duration    `json:"wait_ns"`  // after SIGKILL, for all together
}

// Limit returns how long the clean-up takes at most.
func (r CleanupRequest) Limit() time.Duration { return r.Grace + 2*r.Wait }

// CleanupResult is the outcome for one process.
type CleanupResult struct {
	PID     int            `json:"pid"`
	Outcome record.Outcome `json:"outcome"`
	// Why is set for Refused and StillThere; it may contain raw strings from the system.
	Why string `json:"why,omitempty"`
}

// Cleanup ends processes that an ended job left on a GPU, if the admin has enabled that.
//
//	pidfd_open ─► read /proc/PID ─► prove it is the job's
//	           ─► SIGTERM ─► grace ─► SIGKILL ─► wait
//
// The order matters: the descriptor pins one process before that process is examined, and all signals go through it, so
// that a PID that is reused in between never ends another process. A process that cannot be proven is left alone. In
// addition to the reading, it takes at most Grace and Wait for all together. Results are in the order given.
var Cleanup = child.NewOperation("cleanup", func(r CleanupRequest) ([]CleanupResult, error) {
	// Reading takes less than a millisecond unless it hangs; a process at which it hangs is left alone.
	const pinnedRead = 500 * time.Millisecond
	read := func(pid int) record.Process {
		return Processes(r.Proc, "", []int{pid}, pinnedRead, hanging(r.Processes)...)[0]
	}
	open := func(pid int) (int, error) { return unix.PidfdOpen(pid, 0) }
	send := func(fd int, sig unix.Signal) error { return unix.PidfdSendSignal(fd, sig, nil, 0) }
	return (&cleanup{r, read, open, send, map[int]int{}, make([]CleanupResult, len(r.Processes))}).run(), nil
}).Finish(longest)

// longest exceeds what the configuration allows for a clean-up.
const longest = 15 * time.Second

type cleanup struct {
	CleanupRequest
	read    func(pid int) record.Process // reads a process again, once it is pinned
	open    func(pid int) (fd int, err error)
	send    func(fd int, sig unix.Signal) error
	pinned  map[int]int // index in results: descriptor
	results []CleanupResult
}

func (e *cleanup) run() []CleanupResult {
	own, err := ancestors(e.Proc)
	for i, p := range e.Processes {
		if err != nil {
			e.results[i] = refuse(p.PID, "this process's own ancestors could not be told: %v", err)
			continue
		}
		e.results[i] = e.pin(i, p, own)
	}
	e.signal(unix.SIGTERM)
	e.wait(e.Grace, record.ByTerm)
	e.signal(unix.SIGKILL)
	e.wait(e.Wait, record.ByKill)
	for i := range e.pinned {
		why := fmt.Sprintf("not gone %v after SIGKILL: it hangs in the kernel", e.Wait)
		e.results[i] = CleanupResult{e.results[i].PID, record.StillThere, why}
		e.release(i)
	}
	return e.results
}

// pin opens a pidfd of a process to end, unless that is gone or must be left alone. Threat: a PID may be another
// process by now, a descriptor never; a process that moved to a live job's cgroup; Slurm's own in the ended job's.
func (e *cleanup) pin(i int, p record.Process, own map[int]bool) CleanupResult {
	switch {
	case p.PID <= 1 || own[p.PID]:
		return refuse(p.PID, "it is this process, an ancestor of it, or the system's first")
	case p.Gone || p.Why != "" || p.Start <= 0:
		return refuse(p.PID, "which process it was is not known")
	}
	fd, err := e.open(p.PID)
	switch {
	case errors.Is(err, unix.ESRCH):
		return CleanupResult{PID: p.PID, Outcome: record.AlreadyGone}
	case errors.Is(err, unix.ENOSYS):
		return refuse(p.PID, "this kernel has no pidfd (Linux 5.3): nothing can be ended safely")
	case err != nil:
		return refuse(p.PID, "open pidfd: %v", err)
	}
	e.pinned[i] = fd
	now, r := e.read(p.PID), CleanupResult{PID: p.PID}
	switch {
	case now.Gone, now.Why == "" && now.PID == p.PID && now.Start != p.Start: // its PID was reused
		r.Outcome = record.AlreadyGone
	case now.Why != "" || now.PID != p.PID:
		r = refuse(p.PID, "could not be read again: %s", now.Why)
	case now.Cgroup.Daemon || strings.HasPrefix(now.Name, "slurmstepd"):
		r = refuse(p.PID, "it is Slurm's own")
	case !e.proves(now):
		r = refuse(p.PID, "it is not proven to be the ended job's any more")
	default:
		return r
	}
	e.release(i)
	return r
}

// proves repeats the proof: the same start time, and if it is or was in a job's cgroup, it must be in the owner's now.
func (r CleanupRequest) proves(now record.Process) bool {
	if now.Why != "" || now.Cgroup.Conflict != "" {
		return false
	}
	for _, was := range r.Processes {
		if was.PID != now.PID || was.Start != now.Start {
			continue
		}
		if !now.Cgroup.Found() {
			return !was.Cgroup.Found()
		}
		return now.Cgroup.Same(r.Owner)
	}
	return false
}

func refuse(pid int, format string, args ...any) CleanupResult {
	return CleanupResult{PID: pid, Outcome: record.Refused, Why: fmt.Sprintf(format, args...)}
}

func (e *cleanup) release(i int) {
	_ = unix.Close(e.pinned[i])
	delete(e.pinned, i)
}

// signal sends to every pinned process. Threat: a wrong process: each descriptor was proven to be the ended job's.
func (e *cleanup) signal(sig unix.Signal) {
	for i, fd := range e.pinned {
		err := e.send(fd, sig)
		if err == nil || errors.Is(err, unix.ESRCH) { // ended meanwhile: wait notices
			continue
		}
		e.results[i] = refuse(e.results[i].PID, "send %s: %v", unix.SignalName(sig), err)
		if sig == unix.SIGKILL {
			e.results[i].Outcome = record.StillThere
		}
		e.release(i)
	}
}

// wait releases each process that has ended, with all its threads, for at most limit.
func (e *cleanup) wait(limit time.Duration, outcome record.Outcome) {
	const step = 5 * time.Millisecond // a process takes from one to a few hundred milliseconds to end
	over := time.NewTimer(limit)
	defer over.Stop()
	for last := false; len(e.pinned) > 0; {
		for i, fd := range e.pinned {
			// A pidfd is readable once its process has ended, and not before the last thread has.
			fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			if n, err := unix.Poll(fds, 0); err == nil && n == 1 && fds[0].Revents&unix.POLLIN != 0 {
				e.results[i].Outcome = outcome
				e.release(i)
			}
		}
		if last {
			return
		}
		select {
		case <-over.C:
			last = true // check once more: this process may not have been scheduled for a while
		case <-time.After(step):
		}
	}
}

// ancestors returns this process and all above it, except the first of its PID namespace.
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
