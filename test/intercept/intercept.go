// Package intercept runs an unmodified program and is asked before each system call of chosen kinds that it, or a
// process it starts, makes: let it pass, fail it, cut a write or read short, kill the caller, or do something first,
// while the caller stands still. It is how tests put a fault, or a swap, between two given steps of a program.
//
// It uses seccomp's user notifications (Linux 5.19 for SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV) and needs root. The
// program that uses it calls Serve first of all: it starts itself once more to put the filter on.
package intercept

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"bookend/test/refuse"
)

// Kind is a kind of system call to be asked about.
type Kind struct {
	Number uintptr
	// FromFD, where it is not 0, asks only about calls whose first argument is a descriptor of at least this number.
	FromFD uint32
	// FromBytes, where it is not 0, asks only about calls whose third argument is at least this. Go's runtime writes 8
	// bytes to wake itself, and interrupts a thread that stands still there with signal after signal: leave those
	// alone.
	FromBytes uint32
}

// Answer is what becomes of a call. The zero Answer lets it pass.
type Answer struct {
	errno unix.Errno
	short int
	kill  bool
}

// Pass lets the call happen.
func Pass() Answer { return Answer{} }

// Fail makes the call end with errno; nothing happens.
func Fail(errno unix.Errno) Answer { return Answer{errno: errno} }

// Short makes a write, pwrite64 or read do only its first n bytes, really, and return how many it did.
func Short(n int) Answer { return Answer{short: n} }

// Kill ends the calling process by SIGKILL before the call happens.
func Kill() Answer { return Answer{kill: true} }

// launcher is argv[0] of this program started again to put the filter on and become the watched one; channel is the
// descriptor over which it hands the listener back.
const (
	launcher = "intercept-launcher"
	channel  = 3
)

// Watch is a running program that is being asked about.
type Watch struct {
	cmd      *exec.Cmd
	listener int
	done     chan error
}

// Start starts cmd so that decide is asked about each call of these kinds, one after another, by one goroutine; the
// calling thread stands still meanwhile. Processes that cmd starts are asked about too. cmd must not have been
// started, and its Path must be absolute; its ExtraFiles are not passed on.
func Start(cmd *exec.Cmd, kinds []Kind, decide func(Call) Answer) (*Watch, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("make socket pair: %w", err)
	}
	theirs := os.NewFile(uintptr(fds[1]), "intercept")
	defer unix.Close(fds[0])
	wanted, err := json.Marshal(kinds)
	cmd.Args = append([]string{launcher, string(wanted), cmd.Path}, cmd.Args...)
	cmd.Path, cmd.ExtraFiles, cmd.Env = "/proc/self/exe", []*os.File{theirs}, cmd.Environ()
	if err = errors.Join(err, cmd.Start(), theirs.Close()); err != nil {
		return nil, fmt.Errorf("start %q: %w", cmd.Args[2], err)
	}
	listener, err := receive(fds[0])
	if err != nil {
		_ = cmd.Process.Kill()
		return nil, fmt.Errorf("start %q: %w", cmd.Args[2], errors.Join(err, cmd.Wait()))
	}
	w := &Watch{cmd: cmd, listener: listener, done: make(chan error, 1)}
	go func() { w.done <- w.serve(decide) }()
	return w, nil
}

func receive(from int) (listener int, err error) {
	rights := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(from, make([]byte, 1), rights, unix.MSG_CMSG_CLOEXEC)
	if err != nil || n == 0 {
		return -1, errors.Join(errors.New("no listener came from the launcher"), err)
	}
	messages, err := unix.ParseSocketControlMessage(rights[:n])
	if err != nil {
		return -1, err
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return -1, err
	}
	return fds[0], nil
}

// Serve serves as the launcher, and does not return, where this process was started as one.
func Serve() {
	if len(os.Args) > 0 && os.Args[0] == launcher {
		fmt.Fprintln(os.Stderr, launch(os.Args[1:]))
		os.Exit(127)
	}
}

// launch is the launcher: kinds, path, argv. All kinds are numbers of the native architecture; no watched program makes
// calls of another.
func launch(args []string) error {
	var kinds []Kind
	if err := json.Unmarshal([]byte(args[0]), &kinds); err != nil {
		return fmt.Errorf("read kinds: %w", err)
	}
	var calls []refuse.Call
	for _, k := range kinds {
		calls = append(calls, refuse.Call{Number: k.Number, When: []refuse.Arg{
			{Index: 0, Is: k.FromFD, More: true}, {Index: 2, Is: k.FromBytes, More: true},
		}})
	}
	runtime.LockOSThread() // the filter is this thread's, and survives exec with it
	const flags = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
	listener, err := refuse.Install(calls, flags, func(refuse.Call) uint32 { return unix.SECCOMP_RET_USER_NOTIF })
	if err != nil {
		return err
	}
	if err := unix.Sendmsg(channel, []byte{0}, unix.UnixRights(listener), nil, 0); err != nil {
		return fmt.Errorf("hand over listener: %w", err)
	}
	unix.CloseOnExec(channel)
	return fmt.Errorf("execute %q: %w", args[1], unix.Exec(args[1], args[2:], os.Environ()))
}

// Run starts a program as Start does, in a process group of its own as slurmd does, and waits for its end and for that of all
// it has started; after too long it kills the group. How the program ended is in cmd.ProcessState.
func Run(cmd *exec.Cmd, limit time.Duration, kinds []Kind, decide func(Call) Answer) (late bool, err error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	watch, err := Start(cmd, kinds, decide)
	if err != nil {
		return false, err
	}
	over := time.AfterFunc(limit, func() { _ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) })
	err = watch.Wait()
	if ended := new(exec.ExitError); errors.As(err, &ended) {
		err = nil
	}
	return !over.Stop(), err
}

// Wait waits for the program's end, then for that of all it started: while one of them lives decide may be asked.
// It returns the program's own error, as exec.Cmd.Wait does, joined with one of the watching.
func (w *Watch) Wait() error {
	ended := w.cmd.Wait()
	watched := <-w.done
	_ = unix.Close(w.listener)
	return errors.Join(ended, watched)
}

// The structures of linux/seccomp.h.
type (
	notification struct {
		id           uint64
		pid          uint32
		flags        uint32
		number       int32
		arch         uint32
		instructions uint64
		args         [6]uint64
	}
	response struct {
		id    uint64
		value int64
		errno int32
		flags uint32
	}
)

// serve answers until the last watched process has ended. A caller that was killed meanwhile needs no answer.
func (w *Watch) serve(decide func(Call) Answer) error {
	for {
		fds := []unix.PollFd{{Fd: int32(w.listener), Events: unix.POLLIN}}
		if _, err := unix.Poll(fds, -1); errors.Is(err, unix.EINTR) {
			continue
		} else if err != nil {
			return fmt.Errorf("wait for a call: %w", err)
		}
		if fds[0].Revents&unix.POLLIN == 0 {
			return nil // hung up: nobody has the filter any more
		}
		var n notification
		err := w.control(unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&n))
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("receive a call: %w", err)
		}
		call := Call{TID: int(n.pid), Number: uintptr(n.number), Args: n.args}
		r := call.carryOut(decide(call))
		if r.id = n.id; r.flags == killed {
			continue
		}
		err = w.control(unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&r))
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("answer a call: %w", err)
		}
	}
}

func (w *Watch) control(request uintptr, arg unsafe.Pointer) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(w.listener), request, uintptr(arg)); errno != 0 {
		return errno
	}
	return nil
}

// killed is a flag of ours: nobody waits for the response.
const killed = 1 << 31

// carryOut does what the answer wants done, and returns the kernel's response.
func (c Call) carryOut(a Answer) response {
	switch {
	case a.kill:
		_ = unix.Kill(c.TID, unix.SIGKILL) // a thread's id serves too: the signal is the process's
		return response{flags: killed}
	case a.short > 0:
		n, err := c.shorten(a.short)
		if errno := unix.Errno(0); errors.As(err, &errno) {
			return response{errno: -int32(errno)}
		}
		return response{value: int64(n)}
	case a.errno != 0:
		return response{errno: -int32(a.errno)}
	}
	return response{flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
}
