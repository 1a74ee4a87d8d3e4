package faultinject

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Filter selects system calls by number and arguments.
type Filter struct {
	Number uintptr
	// When lists what the arguments must be; without any, every call of this number is selected.
	When []Arg
	// Errno is the error that Refuse makes of a selected call.
	Errno unix.Errno
}

// Arg is a condition on the lower 32 bits of an argument.
type Arg struct {
	Index int // from 0
	Is    uint32
	Not   bool // anything else than Is
	More  bool // Is or more
}

// AtLeast selects calls whose argument has at least this value.
func AtLeast(index int, least uint32) Arg { return Arg{Index: index, Is: least, More: true} }

// Below selects calls that name a file relative to an open directory, whose descriptor is this argument.
func Below(index int) []Arg {
	cwd := unix.AT_FDCWD
	return []Arg{{Index: index, Is: uint32(int32(cwd)), Not: true}}
}

// Refuse calls f on a thread of its own, on which the kernel refuses the selected calls. Other threads that f starts are
// not affected. It shows what a program does with an error that this machine would never give: a sandbox's refusal, an
// old kernel, a full table. It needs root.
func Refuse(calls []Filter, f func()) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine, and its filter with it
		if _, err := install(calls, 0, refuse); err != nil {
			done <- err
			return
		}
		defer close(done)
		f()
	}()
	return <-done
}

// RefuseAll refuses the calls on every thread of this process and in its children, until they end.
func RefuseAll(calls ...Filter) error {
	_, err := install(calls, unix.SECCOMP_FILTER_FLAG_TSYNC, refuse)
	return err
}

func refuse(f Filter) uint32 { return unix.SECCOMP_RET_ERRNO | uint32(f.Errno) }

// Offsets in struct seccomp_data: number, architecture, instruction pointer, six arguments of 8 bytes.
const (
	offsetNumber = 0
	offsetArgs   = 16
)

// install puts a seccomp filter on the calling thread. Its BPF program compares the number and arguments of each call
// with one Filter after the other; the first match gets an action, and anything else is allowed. It needs CAP_SYS_ADMIN,
// because no_new_privs would change what is tested. The result is the kernel's for these flags.
func install(calls []Filter, flags uintptr, action func(Filter) uint32) (result int, err error) {
	var code []unix.SockFilter
	add := func(how uint16, k uint32, hit, miss uint8) {
		code = append(code, unix.SockFilter{Code: how, K: k, Jt: hit, Jf: miss})
	}
	const load, answer, jump = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_RET | unix.BPF_K, unix.BPF_JMP | unix.BPF_K
	for _, c := range calls {
		left := uint8(2*len(c.When) + 1) // instructions after the first comparison
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
		return -1, fmt.Errorf("install seccomp filter: %w", errno)
	}
	return int(fd), nil
}
