package operation

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/child"
	"bookend/internal/config"
	"bookend/internal/finding"
	"bookend/internal/holders"
	"bookend/internal/slurm"
)

// CleanupRequest names the processes to end, as they were judged, and the job that they were proven to be of.
type CleanupRequest struct {
	Proc      string            `json:"proc"`
	Processes []finding.Process `json:"processes"`
	Owner     slurm.Owner       `json:"owner"`
	Grace     time.Duration     `json:"grace_ns"` // between SIGTERM and SIGKILL, for all together
}

// Result is the outcome of one process.
type Result struct {
	PID     int             `json:"pid"`
	Outcome finding.Outcome `json:"outcome"`
	// Why is for Refused and StillThere; raw strings of the system may be inside.
	Why string `json:"why,omitempty"`
}

// Cleanup ends processes that an ended job left on a GPU, where the admin has switched that on.
//
//	pidfd_open ─► read /proc/PID ─► proven the job's ─► SIGTERM ─► grace ─► SIGKILL ─► wait
//
// The order is the point: the descriptor pins one process before that process is looked at, and all signals go
// through it, so that a PID that is used again in between is never another process's end. What cannot be proven is
// left alone. It takes at most Grace and config.KillWait, however many they are, beside the reading. Results are in
// the order given.
var Cleanup = New("cleanup", func(r CleanupRequest) ([]Result, error) {
	// Reading takes less than a millisecond unless it hangs; a process at which it does is left alone.
	const pinnedRead = 500 * time.Millisecond
	read := func(pid int) finding.Process {
		return holders.Processes(r.Proc, "", []int{pid}, pinnedRead, Hanging(r.Processes)...)[0]
	}
	open := func(pid int) (int, error) { return unix.PidfdOpen(pid, 0) }
	send := func(fd int, sig unix.Signal) error { return unix.PidfdSendSignal(fd, sig, nil, 0) }
	return (&ending{r, read, open, send, map[int]int{}, make([]Result, len(r.Processes))}).run(), nil
})

type ending struct {
	CleanupRequest
	read    func(pid int) finding.Process // again, once it is pinned
	open    func(pid int) (fd int, err error)
	send    func(fd int, sig unix.Signal) error
	pinned  map[int]int // place in results: descriptor
	results []Result
}

func (e *ending) run() []Result {
	own, err := ancestors(e.Proc)
	for i, p := range e.Processes {
		if err != nil {
			e.results[i] = refuse(p.PID, "this process's own ancestors could not be told: %v", err)
			continue
		}
		e.results[i] = e.pin(i, p, own)
	}
	e.signal(unix.SIGTERM)
	e.wait(e.Grace, finding.ByTerm)
	e.signal(unix.SIGKILL)
	e.wait(config.KillWait, finding.ByKill)
	for i := range e.pinned {
		why := fmt.Sprintf("not gone %v after SIGKILL: it hangs in the kernel", config.KillWait)
		e.results[i] = Result{e.results[i].PID, finding.StillThere, why}
		e.release(i)
	}
	return e.results
}

// pin gets hold of a process that is to be ended, unless it is gone or to be left alone. Threat: a PID may name another
// process by now, a descriptor never does; one that moved to a live job's cgroup; Slurm's own in the ended job's.
func (e *ending) pin(i int, p finding.Process, own map[int]bool) Result {
	switch {
	case p.PID <= 1 || own[p.PID]:
		return refuse(p.PID, "it is this process, an ancestor of it, or the system's first")
	case p.Gone || p.Why != "" || p.Start <= 0:
		return refuse(p.PID, "which process it was is not known")
	}
	fd, err := e.open(p.PID)
	switch {
	case errors.Is(err, unix.ESRCH):
		return Result{PID: p.PID, Outcome: finding.AlreadyGone}
	case errors.Is(err, unix.ENOSYS):
		return refuse(p.PID, "this kernel has no pidfd (Linux 5.3): nothing can be ended safely")
	case err != nil:
		return refuse(p.PID, "open pidfd: %v", err)
	}
	e.pinned[i] = fd
	now, r := e.read(p.PID), Result{PID: p.PID}
	switch {
	case now.Gone, now.Why == "" && now.PID == p.PID && now.Start != p.Start: // its PID is another's by now
		r.Outcome = finding.AlreadyGone
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

// proves repeats the proof: a sighted process by its start time, one by cgroup must be in that job's still.
func (r CleanupRequest) proves(now finding.Process) bool {
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

func refuse(pid int, format string, args ...any) Result {
	return Result{PID: pid, Outcome: finding.Refused, Why: fmt.Sprintf(format, args...)}
}

func (e *ending) release(i int) {
	_ = unix.Close(e.pinned[i])
	delete(e.pinned, i)
}

// signal sends to every pinned process. Threat: a wrong process: each descriptor was proven to be the ended job's.
func (e *ending) signal(sig unix.Signal) {
	for i, fd := range e.pinned {
		err := e.send(fd, sig)
		if err == nil || errors.Is(err, unix.ESRCH) { // ended meanwhile: wait sees it
			continue
		}
		e.results[i] = refuse(e.results[i].PID, "send %s: %v", unix.SignalName(sig), err)
		if sig == unix.SIGKILL {
			e.results[i].Outcome = finding.StillThere
		}
		e.release(i)
	}
}

// wait lets go of each process that has ended, threads and all, for at most limit.
func (e *ending) wait(limit time.Duration, outcome finding.Outcome) {
	const step = 5 * time.Millisecond // a process takes from a millisecond to some hundred to end
	over := time.NewTimer(limit)
	defer over.Stop()
	for last := false; len(e.pinned) > 0; {
		for i, fd := range e.pinned {
			// A pidfd is readable once its process is over, and not before the last thread has ended.
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
			last = true // looks once more: the scheduler may have kept this process away
		case <-time.After(step):
		}
	}
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
