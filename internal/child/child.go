// Package child runs everything that can sleep uninterruptibly or crash in foreign code: vendor backends, and the
// hook's own binary started again for an Operation. It is the only package that starts processes and goroutines.
//
// A child gets its own session and process group, "/" as its working directory, the descriptors 0 to 2 (three pipes)
// and the variables of its Spec; umask and signal mask are the hook's. It is killed at its deadline, and abandoned if
// it cannot be killed: Run returns at most Spec.Grace after Spec.Timeout. A root process gives up rights permanently
// with Confine (those that no hook needs) and Become (all that are root's).
package child

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// grace is how long a killed child may take to die before it is abandoned, unless its Spec says more. Alive reports
// whether an abandoned child still exists.
const grace = 200 * time.Millisecond

// maxStderr is how much of a child's stderr is kept, unless its Spec says more: a message, or the start of a Go panic.
const maxStderr = 4 << 10

// Spec describes a child: what to run and what it may use.
type Spec struct {
	Path string   // absolute; the caller has checked that it can be trusted, unless it is Foreign
	Args []string // without argv[0]
	Env  []string // "NAME=value"; nil is the empty environment
	// Stdin is the request. With HoldStdin the pipe stays open; closing it tells the child to exit.
	Stdin     []byte
	HoldStdin bool
	MaxOutput int // bytes of stdout kept; a child that writes more is killed
	// OnLine, if set, gets each whole line of stdout in another goroutine, and no output is kept: MaxOutput then bounds
	// a line. The line is valid until OnLine returns. If it returns false, the child ends as Flooded.
	OnLine func(line []byte) (more bool)
	// Stop, when closed, ends the child as the deadline would, but with the outcome Stopped.
	Stop <-chan struct{}
	// OneLine means that the answer is one line. After it Run waits only for Grace: a thread may sleep for ever.
	OneLine   bool
	MaxStderr int // bytes of stderr kept, at least 4 KiB; the rest is dropped
	// Started, if set, is called once the child has been started; startTicks is as in Result.
	Started func(pid int, startTicks uint64)
	Timeout time.Duration // from the call of Run
	// Grace is how long the child may take to die once killed, at least 200 ms: a driver may hold it for a while.
	Grace time.Duration
	Name  string // argv[0]; Path if empty
	// Foreign is a program that does not watch its stdin: it is killed if this process ends. It is only started if root
	// alone can write it and each directory above it. If what it started stays, Run takes up to 200 ms more.
	Foreign bool
}

// Outcome is how a child ended.
type Outcome string

const (
	Exited     Outcome = "exited"      // by itself, with ExitCode
	Crashed    Outcome = "crashed"     // by a Signal that Run did not send (a backend's own alarm: SIGALRM)
	Hung       Outcome = "hung"        // killed at its deadline
	Stopped    Outcome = "stopped"     // killed, or ended, after Stop
	Abandoned  Outcome = "abandoned"   // killed, and still there after grace; it may end later. PID is what is there
	Flooded    Outcome = "flooded"     // killed or ended after more than MaxOutput bytes
	NotStarted Outcome = "not-started" // Err says why
)

// ErrNoExec means that exec did not answer in time. Whether the child starts is unknown; it is killed if it does.
var ErrNoExec = errors.New("no answer from exec")

// Result is the outcome of a child. Its output is untrusted.
type Result struct {
	Outcome    Outcome
	ExitCode   int            // for Exited
	Signal     syscall.Signal // the signal that ended it, 0 if none or unknown
	Stdout     []byte         // at most Spec.MaxOutput bytes
	Stderr     []byte         // its first bytes, see Spec.MaxStderr
	PID        int            // 0 if it was not started
	StartTicks uint64         // its start time, field 22 of /proc/PID/stat; 0 if it could not be read
	Took       time.Duration
	Err        error // why it was not started, could not be waited for, or a panic in Run's goroutines
}

// LastWords returns the first line of stderr behind ": ": a Go panic and the linker begin with the message.
func (r Result) LastWords() string {
	const most = 300
	first, _, _ := strings.Cut(strings.TrimSpace(string(r.Stderr)), "\n")
	if first == "" {
		return ""
	}
	return ": " + first[:min(len(first), most)]
}

// Self returns the Spec of the running program started again as "NAME --child OP", with an empty environment.
// /proc/self/exe is the running file itself: an upgrade or removal of the package changes nothing, and no path is
// looked up that could have been replaced.
func Self(op string) Spec {
	return Spec{Path: "/proc/self/exe", Args: []string{"--child", op}, Name: filepath.Base(os.Args[0])}
}

// Run starts a child, sends it the request, and waits for its end, at most Spec.Timeout plus Spec.Grace.
func Run(s Spec) (res Result) {
	began := boot()
	defer func() { res.Took = boot() - began }()
	if !filepath.IsAbs(s.Path) || s.Timeout <= 0 {
		return notStarted(fmt.Errorf("start %q: not an absolute path, or no time left", s.Path))
	}
	p, err := openPipes()
	if err != nil {
		return notStarted(err)
	}
	defer p.closeOurs()
	deadline := time.NewTimer(s.Timeout)
	defer deadline.Stop()
	c := launch(s, p)
	var b birth
	select {
	case b = <-c.born:
	case <-deadline.C: // it is killed as soon as it appears
		close(c.disown)
		b.err = fmt.Errorf("start %q: %w within %v", s.Path, ErrNoExec, s.Timeout)
	}
	if b.err != nil {
		return notStarted(b.err)
	}
	if s.Started != nil {
		s.Started(b.pid, b.ticks)
	}
	return c.supervise(s, p, b, deadline.C)
}

func notStarted(err error) Result { return Result{Outcome: NotStarted, Err: err} }

func (c *process) supervise(s Spec, p *pipes, b birth, deadline <-chan time.Time) Result {
	res := Result{PID: b.pid, StartTicks: b.ticks}
	flood := make(chan struct{})
	var answered chan struct{}
	if s.OneLine {
		answered = make(chan struct{})
	}
	fed := feed(p.stdin, s.Stdin, s.HoldStdin)
	out := gather(p.stdout, keeper{limit: s.MaxOutput, flood: flood, onLine: s.OnLine, answered: answered})
	diag := gather(p.stderr, keeper{limit: max(s.MaxStderr, maxStderr)})

	if s.Foreign {
		setForeign(b.pid)
	}
	outcome, err := c.end(b, ends{flood, answered, deadline, s.Stop}, max(s.Grace, grace))
	if s.Foreign {
		setForeign(0)
	}
	res.finish(outcome, err)
	if s.Foreign && res.Outcome != Abandoned {
		res.outlived()
	}

	p.hangUp()
	stdout, stderr := <-out, <-diag
	res.Stdout, res.Stderr = stdout.bytes, stderr.bytes
	if stdout.over && res.Outcome != Abandoned {
		res.Outcome = Flooded
	}
	res.Err = errors.Join(res.Err, stdout.err, stderr.err, <-fed)
	return res
}

// Detach starts the running program again with these arguments, to outlive this process: in its own session and with
// none of this process's descriptors. Its stdin has input. Detach returns once the program runs.
func Detach(env []string, input []byte, args ...string) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("detach %q: %w", args[0], err)
		}
	}()
	if err := SealDescriptors(); err != nil {
		return err
	}
	// Threat: none, a kernel device.
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	stdin := null
	if len(input) > 0 { // only then: some systems refuse files in memory, and the recorder has no input
		fd, err := unix.MemfdCreate("input", unix.MFD_CLOEXEC)
		if err != nil {
			return err
		}
		stdin = os.NewFile(uintptr(fd), "input")
		defer stdin.Close()
		if _, err := stdin.WriteAt(input, 0); err != nil { // leaves the child at its start
			return err
		}
	}
	self := Self("")
	_, err = syscall.ForkExec(self.Path, append([]string{self.Name}, args...), &syscall.ProcAttr{
		Dir: "/", Env: env, Files: []uintptr{stdin.Fd(), null.Fd(), null.Fd()}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	return err
}

// Replaced reports whether the running program's file has been replaced or removed since it was started.
func Replaced() bool {
	path, err := os.Readlink("/proc/self/exe")
	return err == nil && strings.HasSuffix(path, " (deleted)")
}
