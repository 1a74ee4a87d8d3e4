package main

import (
	"path/filepath"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// minFDs is what a role may need: its nodes, one mapped, and the pipe on which it says that it is ready.
const minFDs = 8

// life is what a new process does: it opens, maps, closes, says so and waits for its end. It does that between fork
// and death without a Go runtime, so all is prepared here.
type life struct {
	ready  int     // where it says how it went
	fds    int     // descriptors to have in the end
	open   []*byte // paths
	mapped *byte   // a path, to be mapped and closed again
}

// What a process says once it has opened its files, or could not.
const (
	born   = '+'
	failed = '-'
)

func newLife(ready, fds int) *life { return &life{ready: ready, fds: fds} }

func (l *life) play(r role, dev string) {
	at := func(name string) *byte {
		if !filepath.IsAbs(name) {
			name = filepath.Join(dev, name)
		}
		return cString(name)
	}
	for _, name := range r.Open {
		l.open = append(l.open, at(name))
	}
	if r.Mapped != "" {
		l.mapped = at(r.Mapped)
	}
}

// fill adds other files until there are as many descriptors as there shall be, the one to answer on included.
func (l *life) fill(files []string) {
	var paths []*byte
	for _, name := range files {
		paths = append(paths, cString(name))
	}
	for i := 0; len(l.open) < l.fds-1; i++ {
		l.open = append(l.open, paths[i%len(paths)])
	}
}

func cString(s string) *byte {
	p, err := unix.BytePtrFromString(s)
	if err != nil {
		panic(err) // a path of our own
	}
	return p
}

// fork starts a process that lives l and dies with this thread. Whatever the child does must be a bare system call:
// it has a copy of one thread of a Go program, and no scheduler, collector or stack to grow.
//
//go:norace
//go:nosplit
func fork(l *life) (pid int, errno syscall.Errno) {
	r, _, errno := syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	if errno != 0 || r != 0 {
		return int(r), errno
	}
	syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_SET_PDEATHSIG, uintptr(syscall.SIGKILL), 0)
	syscall.RawSyscall(syscall.SYS_DUP3, uintptr(l.ready), 0, 0)
	syscall.RawSyscall(unix.SYS_CLOSE_RANGE, 1, 1<<31, 0)
	answer := [1]byte{born}
	const here = ^uintptr(99) // AT_FDCWD, -100
	if l.mapped != nil {
		fd, _, _ := syscall.RawSyscall6(syscall.SYS_OPENAT, here, uintptr(unsafe.Pointer(l.mapped)), syscall.O_RDONLY, 0, 0, 0)
		_, _, errno := syscall.RawSyscall6(syscall.SYS_MMAP, 0, 4096, syscall.PROT_READ, syscall.MAP_PRIVATE, fd, 0)
		if errno != 0 {
			answer[0] = failed
		}
		syscall.RawSyscall(syscall.SYS_CLOSE, fd, 0, 0)
	}
	for _, path := range l.open {
		_, _, errno := syscall.RawSyscall6(syscall.SYS_OPENAT, here, uintptr(unsafe.Pointer(path)), syscall.O_RDONLY, 0, 0, 0)
		if errno != 0 {
			answer[0] = failed
		}
	}
	syscall.RawSyscall(syscall.SYS_WRITE, 0, uintptr(unsafe.Pointer(&answer[0])), 1)
	for {
		syscall.RawSyscall6(unix.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
	}
}
