package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// tracer is the user's process that tries to get at the children that have become the user.
type tracer struct{ *servant }

// attack tries everything once, and sends the signal unless it is 0. It returns how much was tried, and what worked.
func (t *tracer) attack(pid int, signal syscall.Signal) (tried int, got string, err error) {
	answer, err := t.ask(fmt.Sprintf("%d %d", pid, signal))
	if err != nil {
		return 0, "", err
	}
	count, got, _ := strings.Cut(answer, " ")
	_, err = fmt.Sscan(count, &tried)
	return tried, got, err
}

// trace is the tracer's life.
func trace(in io.Reader, out io.Writer) {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		var prey int
		var signal syscall.Signal
		_, _ = fmt.Sscan(lines.Text(), &prey, &signal)
		var a attempts
		a.calls(prey)
		a.files(prey)
		if !hasMemory(prey) {
			a.worked = nil
		}
		if signal != 0 {
			_ = syscall.Kill(prey, signal)
		}
		fmt.Fprintln(out, a.tried, strings.Join(a.worked, ", "))
	}
}

// attempts counts tries, and names those that worked.
type attempts struct {
	tried  int
	worked []string
}

func (a *attempts) note(what string, err error) {
	a.tried++
	if err == nil {
		a.worked = append(a.worked, what)
	}
}

// calls tries every system call that gets at another process.
func (a *attempts) calls(pid int) {
	a.note("PTRACE_SEIZE", seize(pid))
	word := make([]byte, 8)
	here, there := []unix.Iovec{{Base: &word[0], Len: 8}}, []unix.RemoteIovec{{Base: goText, Len: 8}}
	_, err := unix.ProcessVMReadv(pid, here, there, 0)
	a.note("process_vm_readv", err)
	_, err = unix.ProcessVMWritev(pid, here, there, 0)
	a.note("process_vm_writev", err)
	if pidfd, err := unix.PidfdOpen(pid, 0); err == nil {
		fd, err := unix.PidfdGetfd(pidfd, 1, 0)
		a.note("pidfd_getfd", err)
		if err == nil {
			_ = unix.Close(fd)
		}
		_ = unix.Close(pidfd)
	}
}

// seize begins to trace a process, and lets go of it: the thread that traces ends. The main thread would not.
func seize(pid int) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == os.Getpid() {
			done <- seize(pid)
			runtime.UnlockOSThread()
			return
		}
		_, _, errno := unix.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(pid), 0, 0, 0, 0)
		done <- failed(errno)
	}()
	return <-done
}

// goText is an address within every Go program for Linux on amd64 that is linked without cgo.
const goText = 0x400000

// files tries the files of a process that its user must not read.
func (a *attempts) files(pid int) {
	for _, name := range []string{"mem", "environ", "maps", "auxv", "fd", "cwd", "exe"} {
		path := fmt.Sprintf("/proc/%d/%s", pid, name)
		f, err := os.Open(path)
		if err == nil && name == "fd" {
			_, err = f.Readdirnames(1)
		}
		if f != nil {
			_ = f.Close()
		}
		a.note(path, err)
	}
}

// hasMemory is false for a process that is ending: who it was lets everybody of its user in then, to nothing.
func hasMemory(pid int) bool {
	size, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	return err == nil && !strings.HasPrefix(string(size), "0 ")
}

func failed(errno syscall.Errno) error {
	if errno == 0 {
		return nil
	}
	return errno
}
