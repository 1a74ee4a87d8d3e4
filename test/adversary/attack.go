package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// attack tries everything by which one process gets at another, as the job's user, and sends the process a signal unless
// that is 0. It returns how much it has tried and what of it has worked.
func attack(pid int, signal syscall.Signal) (tried int, worked []string, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine, and lets go of what it traces
		if err = becomeUser(); err != nil {
			return
		}
		tried, worked = enter(pid)
		if !hasMemory(pid) {
			worked = nil
		}
		if signal != 0 {
			_ = syscall.Kill(pid, signal)
		}
	}()
	<-done
	return tried, worked, err
}

// becomeUser gives this thread alone the rights of the job's user; Go's own functions do that for all threads.
func becomeUser() error {
	for _, call := range [][4]uintptr{{unix.SYS_SETGROUPS}, {unix.SYS_SETRESGID, user, user, user},
		{unix.SYS_SETRESUID, user, user, user}} {
		if _, _, errno := unix.RawSyscall(call[0], call[1], call[2], call[3]); errno != 0 {
			return fmt.Errorf("become user %d: %w", user, errno)
		}
	}
	return nil
}

// goText is an address in every Go program for Linux on amd64 that is linked without cgo.
const goText = 0x400000

// enter tries each system call that gets at another process, and each file of it that its user must not read.
func enter(pid int) (tried int, worked []string) {
	note := func(what string, err error) {
		if tried++; err == nil {
			worked = append(worked, what)
		}
	}
	_, _, errno := unix.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(pid), 0, 0, 0, 0)
	var err error
	if errno != 0 {
		err = errno
	}
	note("PTRACE_SEIZE", err)
	word := make([]byte, 8)
	here, there := []unix.Iovec{{Base: &word[0], Len: 8}}, []unix.RemoteIovec{{Base: goText, Len: 8}}
	_, err = unix.ProcessVMReadv(pid, here, there, 0)
	note("process_vm_readv", err)
	_, err = unix.ProcessVMWritev(pid, here, there, 0)
	note("process_vm_writev", err)
	if pidfd, err := unix.PidfdOpen(pid, 0); err == nil {
		fd, err := unix.PidfdGetfd(pidfd, 1, 0)
		note("pidfd_getfd", err)
		_, _ = unix.Close(fd), unix.Close(pidfd)
	}
	for _, name := range []string{"mem", "environ", "maps", "auxv", "fd", "cwd", "exe"} {
		path := fmt.Sprintf("/proc/%d/%s", pid, name)
		f, err := os.Open(path)
		if err == nil && name == "fd" {
			_, err = f.Readdirnames(1)
		}
		_ = f.Close()
		note(path, err)
	}
	return tried, worked
}

// hasMemory is false for a process that is ending: the kernel then lets every process of its user in, to nothing.
func hasMemory(pid int) bool {
	size, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	return err == nil && !strings.HasPrefix(string(size), "0 ")
}
