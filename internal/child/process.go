package child

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/safefile"
)

// process is the child as Run sees it. One goroutine starts it and sleeps in waitid; it reaps a child that Run
// abandoned. Only Run's own goroutine kills and reaps others, so that a signal never goes to a PID that was reused.
type process struct {
	born   chan birth    // unbuffered
	ended  chan error    // unbuffered: the child is a zombie and waits to be reaped
	disown chan struct{} // closed when Run no longer listens
}

type birth struct {
	pid   int
	ticks uint64
	err   error
}

// launch starts the child in a goroutine: exec reads the program from a disk, which may not answer.
func launch(s Spec, p *pipes) *process {
	c := &process{born: make(chan birth), ended: make(chan error), disown: make(chan struct{})}
	Go(c.panicked, func() { c.live(s, p) })
	return c
}

func (c *process) panicked(p *Panic) {
	select {
	case c.born <- birth{err: p}:
	case c.ended <- p:
	case <-c.disown:
	}
}

func (c *process) live(s Spec, p *pipes) {
	b := start(s, p)
	select {
	case c.born <- b:
	case <-c.disown: // too late: Run has returned
		kill(b.pid)
	}
	if b.err != nil {
		return
	}
	err := awaitZombie(b.pid)
	select {
	case c.ended <- err:
	case <-c.disown:
		_, _ = reap(b.pid)
	}
}

// start forks and executes. It seals other descriptors each time: a lock held by a stuck child would block jobs.
func start(s Spec, p *pipes) birth {
	defer p.closeTheirs()
	if err := SealDescriptors(); err != nil {
		return birth{err: err}
	}
	attributes := &syscall.SysProcAttr{Setsid: true}
	if s.Foreign {
		// Threat: a user who can write the program would run code as root here.
		if err := safefile.Trusted(s.Path); err != nil {
			return birth{err: err}
		}
		runtime.LockOSThread() // the kernel sends the signal when this thread ends; it waits for the child's end
		attributes.Pdeathsig = syscall.SIGKILL
	}
	pid, err := syscall.ForkExec(s.Path, append([]string{cmp.Or(s.Name, s.Path)}, s.Args...), &syscall.ProcAttr{
		Dir:   "/",
		Env:   s.Env,
		Files: []uintptr{p.theirs[0].Fd(), p.theirs[1].Fd(), p.theirs[2].Fd()},
		Sys:   attributes,
	})
	if err != nil {
		return birth{err: fmt.Errorf("start %q: %w", s.Path, err)}
	}
	st, err := readStat("/proc", pid)
	if err != nil {
		return birth{pid: pid} // the start time stays unknown; the child can do its work
	}
	return birth{pid: pid, ticks: st.Ticks}
}

type ends struct {
	flood    <-chan struct{}
	answered <-chan struct{} // ends the child a grace later
	deadline <-chan time.Time
	stop     <-chan struct{}
}

// end waits for the first of: the child's exit, too much output, its deadline, Stop, or a grace after its answer. It
// kills the child unless that exited by itself, and returns which it was. An Abandoned child must not be reaped here. A
// child that has answered and is not in uninterruptible sleep only waits for a processor: it has until the deadline.
func (c *process) end(b birth, by ends, grace time.Duration) (Outcome, error) {
	var outcome Outcome
	var done <-chan time.Time
	for outcome == "" {
		select {
		case err := <-c.ended:
			return Exited, err
		case <-by.flood:
			outcome = Flooded
		case <-by.answered:
			by.answered, done = nil, time.After(grace)
		case <-done:
			outcome = Hung
		case <-by.deadline:
			outcome, by.deadline = Hung, nil
		case <-by.stop:
			outcome = Stopped
		}
	}
	kill(b.pid)
	answered := done != nil && by.deadline != nil
	for asleep := time.Duration(0); ; {
		select {
		case err := <-c.ended:
			return outcome, err
		case <-time.After(grace):
		}
		select {
		case <-by.deadline:
			answered = false
		default:
		}
		asleep += grace
		if !Uninterruptible("/proc", b.pid, b.ticks) {
			asleep = 0
		}
		if !answered || asleep >= maxNap {
			close(c.disown)
			return Abandoned, nil
		}
	}
}

// maxNap is how long a killed child that has answered may be in uninterruptible sleep before it is abandoned. On a
// machine with too few processors for 64 hooks at once, one slept for more than 200 ms before it ended.
var maxNap = 5 * grace

func (res *Result) finish(outcome Outcome, err error) {
	res.Outcome = outcome
	if err != nil { // it cannot be waited for: whether it ended is unknown
		res.Outcome, res.Err = Abandoned, err
	}
	if res.Outcome == Abandoned {
		return
	}
	kill(res.PID) // the rest of its group; the zombie keeps the PID from being reused
	ws, err := reap(res.PID)
	switch {
	case err != nil:
		res.Err = err
	case ws.Signaled():
		res.Signal = ws.Signal()
		if outcome == Exited { // why Run killed the child outranks how it died
			res.Outcome = Crashed
		}
	default:
		res.ExitCode = ws.ExitStatus()
	}
}

// outlived abandons a process of the child's group that no signal wakes: a script ends even if its program hangs.
func (res *Result) outlived() {
	const looks = 10
	for range looks {
		if unix.Kill(-res.PID, 0) != nil {
			return
		}
		time.Sleep(grace / looks)
	}
	// Threat: none, /proc itself.
	entries, _ := os.ReadDir("/proc")
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		group, _ := unix.Getpgid(pid)
		st, err := readStat("/proc", pid)
		if err == nil && group == res.PID && Uninterruptible("/proc", pid, st.Ticks) {
			res.Outcome, res.PID, res.StartTicks = Abandoned, pid, st.Ticks
			return
		}
	}
}

// kill kills the child's process group, including stopped processes. ESRCH is no error: none is left.
func kill(pid int) {
	if pid > 1 { // -1 would be every process on the machine
		_ = syscall.Kill(-pid, syscall.SIGKILL)
	}
}

// foreign is the PID of the Foreign child that runs and is not reaped, 0 for none. A program has one at a time.
var (
	foreign     int
	foreignLock sync.Mutex
)

func setForeign(pid int) {
	foreignLock.Lock()
	defer foreignLock.Unlock()
	foreign = pid
}

// KillForeign kills the Foreign child with its process group, for a program that exits without waiting for it.
func KillForeign() {
	foreignLock.Lock()
	defer foreignLock.Unlock()
	// Threat: none, it is this program's own child, and not reaped while the lock is held.
	kill(foreign)
}

// awaitZombie waits until the child has ended, without reaping it.
func awaitZombie(pid int) error {
	return waited(pid, func() error { return unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil) })
}

func reap(pid int) (ws syscall.WaitStatus, err error) {
	err = waited(pid, func() (err error) { _, err = syscall.Wait4(pid, &ws, 0, nil); return err })
	return ws, err
}

func waited(pid int, wait func() error) error {
	for {
		switch err := wait(); {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("wait for process %d: %w", pid, err)
		default:
			return nil
		}
	}
}
