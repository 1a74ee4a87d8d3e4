// Package refuse makes the kernel refuse system calls, so that a test sees what a program does with an error that the
// machine at hand would never give: a sandbox's refusal, an old kernel, a table that is full.
//
// It is a seccomp filter, of one thread or of a whole process. Nothing of the tested code is changed or replaced.
package refuse

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Call is a system call that is refused.
type Call struct {
	Number uintptr
	Errno  unix.Errno
	// When lists what its arguments must be to be refused; without any, it always is.
	When []Arg
}

// Arg is a condition on the lower 32 bits of an argument.
type Arg struct {
	Index int // from 0
	Is    uint32
	Not   bool // anything else than Is
	More  bool // Is or more
}

// Below is true of calls that name a file below an open folder, and not by a path of its own: argument index is the
// folder's descriptor.
func Below(index int) []Arg {
	cwd := unix.AT_FDCWD
	return []Arg{{Index: index, Is: uint32(int32(cwd)), Not: true}}
}

// Run calls f on a thread of its own, for which the calls are refused. What f starts on other threads is not concerned.
// It needs root.
func Run(calls []Call, f func()) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // for ever: the thread ends with this goroutine, and its filter with it
		if _, err := Install(calls, 0, fail); err != nil {
			done <- err
			return
		}
		defer close(done)
		f()
	}()
	return <-done
}

// All makes the calls refused for every thread of this process, and of its children, for good.
func All(calls ...Call) error {
	_, err := Install(calls, unix.SECCOMP_FILTER_FLAG_TSYNC, fail)
	return err
}

func fail(c Call) uint32 { return unix.SECCOMP_RET_ERRNO | uint32(c.Errno) }

// Offsets in struct seccomp_data: number, architecture, instruction pointer, six arguments of 8 bytes.
const (
	offsetNumber = 0
	offsetArgs   = 16
)

// Install puts a filter on the calling thread, by a BPF program: for each call its number and arguments are compared,
// and a mismatch goes on to the next one. A match is answered with an action of seccomp's, anything else is allowed. It
// needs CAP_SYS_ADMIN, for no_new_privs would change what is filtered, and returns what the kernel does for the flags.
func Install(calls []Call, flags uintptr, action func(Call) uint32) (result int, err error) {
	var code []unix.SockFilter
	add := func(how uint16, k uint32, hit, miss uint8) {
		code = append(code, unix.SockFilter{Code: how, K: k, Jt: hit, Jf: miss})
	}
	const load, answer, jump = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_RET | unix.BPF_K, unix.BPF_JMP | unix.BPF_K
	for _, c := range calls {
		left := uint8(2*len(c.When) + 1) // instructions behind the first comparison
		add(load, offsetNumber, 0, 0)
		add(jump|unix.BPF_JEQ, uint32(c.Number), 0, left)
		for _, a := range c.When {
			left -= 2
			how, hit, miss := uint16(unix.BPF_JEQ), uint8(0), left
			if a.More {
				how = unix.BPF_JGE
			}
			if a.Not {
				hit, miss = miss, hit
			}
			add(load, offsetArgs+8*uint32(a.Index), 0, 0)
			add(jump|how, a.Is, hit, miss)
		}
		add(answer, action(c), 0, 0)
	}
	add(answer, unix.SECCOMP_RET_ALLOW, 0, 0)
	program := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	fd, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&program)))
	runtime.KeepAlive(code)
	if errno != 0 {
		return -1, fmt.Errorf("install filter of system calls: %w", errno)
	}
	return int(fd), nil
}
