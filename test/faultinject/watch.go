// Package faultinject puts faults around and into unmodified programs: a watcher decides what becomes of each of their
// system calls, the kernel refuses calls, a file system stops answering, and go build plants a mistake in the sources.
package faultinject

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
)

// Answer decides what becomes of a call. The zero Answer lets it pass.
type Answer struct {
	Errno unix.Errno // the call fails with this error and has no effect
	Short int        // a write or read does only so many bytes, and returns how many it did
	Kill  bool       // SIGKILL ends the calling process before the call happens
}

// launcher is argv[0] of this program when it is started again to install the filter and execute the watched program;
// channel is the descriptor over which it sends the filter's listener back.
const (
	launcher = "faultinject-launcher"
	channel  = 3
)

// Watch is a running program whose system calls are being decided.
type Watch struct {
	cmd      *exec.Cmd
	listener int
	done     chan error
}

// Start starts cmd. One goroutine then calls decide before each selected call of cmd and of the processes that it
// starts; the calling thread stands still meanwhile. Bytes that Go's runtime writes to wake itself, 8 at a time, must not
// be selected: it interrupts a thread that stands still there with signal after signal. cmd.Path must be absolute, and
// cmd.ExtraFiles are not passed on.
//
// It uses seccomp's user notifications (Linux 5.19 for SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV), needs root, and the
// calling program must call Serve first of all.
func Start(cmd *exec.Cmd, calls []Filter, decide func(Call) Answer) (*Watch, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("make socket pair: %w", err)
	}
	theirs := os.NewFile(uintptr(fds[1]), "listener")
	defer unix.Close(fds[0])
	wanted, err := json.Marshal(calls)
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
		return -1, errors.Join(errors.New("the launcher sent no listener"), err)
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

// Serve does not return in a process that Start has started as its launcher.
func Serve() {
	if len(os.Args) > 0 && os.Args[0] == launcher {
		fmt.Fprintln(os.Stderr, launch(os.Args[1:]))
		os.Exit(127)
	}
}

// launch takes the filters, the program's path and its argv.
func launch(args []string) error {
	var calls []Filter
	if err := json.Unmarshal([]byte(args[0]), &calls); err != nil {
		return fmt.Errorf("read filters: %w", err)
	}
	runtime.LockOSThread() // the filter is on this thread, and stays after exec
	const flags = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
	listener, err := install(calls, flags, func(Filter) uint32 { return unix.SECCOMP_RET_USER_NOTIF })
	if err != nil {
		return err
	}
	if err := unix.Sendmsg(channel, []byte{0}, unix.UnixRights(listener), nil, 0); err != nil {
		return fmt.Errorf("send listener: %w", err)
	}
	unix.CloseOnExec(channel)
	return fmt.Errorf("execute %q: %w", args[1], unix.Exec(args[1], args[2:], os.Environ()))
}

// Run starts a program as Start does, in a process group of its own as slurmd does, and waits until it and all that it
// has started have ended. At the limit it kills the group. cmd.ProcessState has the program's exit status.
func Run(cmd *exec.Cmd, limit time.Duration, calls []Filter, decide func(Call) Answer) (late bool, err error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	watch, err := Start(cmd, calls, decide)
	if err != nil {
		return false, err
	}
	limiter := time.AfterFunc(limit, func() { _ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) })
	err = watch.Wait()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		err = nil
	}
	return !limiter.Stop(), err
}

// Wait waits until the program and all that it has started have ended: while one of them lives, decide may be called.
// It returns the error of exec.Cmd.Wait joined with that of the watching.
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

// serve answers until the last watched process has ended. A caller that has been killed meanwhile needs no answer.
func (w *Watch) serve(decide func(Call) Answer) error {
	for {
		fds := []unix.PollFd{{Fd: int32(w.listener), Events: unix.POLLIN}}
		if _, err := unix.Poll(fds, -1); errors.Is(err, unix.EINTR) {
			continue
		} else if err != nil {
			return fmt.Errorf("wait for a call: %w", err)
		}
		if fds[0].Revents&unix.POLLIN == 0 {
			return nil // no process has the filter any more
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
		answer := decide(call)
		if answer.Kill {
			_ = unix.Kill(call.TID, unix.SIGKILL) // the signal is for the whole process of this thread
			continue
		}
		r := call.carryOut(answer)
		r.id = n.id
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

// carryOut does what the answer asks for and returns the kernel's response.
func (c Call) carryOut(a Answer) response {
	switch {
	case a.Short > 0:
		n, err := c.shorten(a.Short)
		if errno := unix.Errno(0); errors.As(err, &errno) {
			return response{errno: -int32(errno)}
		}
		return response{value: int64(n)}
	case a.Errno != 0:
		return response{errno: -int32(a.Errno)}
	}
	return response{flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
}
