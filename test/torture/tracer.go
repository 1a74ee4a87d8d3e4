package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// tracer is the user's process that tries to get at the children that have become the user.
type tracer struct{ *servant }

// attack tries everything once, sends the signal unless it is 0, and goes on trying until the next attack. It returns
// how often anything was tried since the last, and what worked.
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
	var (
		mutex sync.Mutex
		prey  int
		tried int
		got   []string
	)
	try := func(attempts func(int) (int, []string)) {
		n, worked := attempts(prey)
		tried += n
		if len(worked) > 0 && len(got) < 4 && hasMemory(prey) {
			got = append(got, worked...)
		}
	}
	go func() { // in the meantime
		for {
			mutex.Lock()
			if prey != 0 && syscall.Kill(prey, 0) == nil {
				try(tryCalls)
			}
			mutex.Unlock()
			_ = unix.Nanosleep(&unix.Timespec{Nsec: 3_000_000}, nil)
		}
	}()
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		var signal syscall.Signal
		mutex.Lock()
		_, _ = fmt.Sscan(lines.Text(), &prey, &signal)
		try(tryCalls)
		try(tryFiles)
		if signal != 0 {
			_ = syscall.Kill(prey, signal)
		}
		fmt.Fprintln(out, tried, strings.Join(got, ", "))
		tried, got = 0, nil
		mutex.Unlock()
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

// tryCalls tries every system call that gets at another process.
func tryCalls(pid int) (int, []string) {
	var a attempts
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
	return a.tried, a.worked
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

// tryFiles tries the files of a process that its user must not read.
func tryFiles(pid int) (int, []string) {
	var a attempts
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
	return a.tried, a.worked
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
