package faultinject

import (
	"bytes"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Call is a system call that a watched thread is about to make. What its methods return is true until it is answered.
type Call struct {
	TID    int // the calling thread
	Number uintptr
	Args   [6]uint64
}

// PID returns the process of the calling thread, 0 if it has ended.
func (c Call) PID() (pid int) {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.TID))
	if _, id, ok := strings.Cut(string(status), "\nTgid:"); ok {
		_, _ = fmt.Sscan(id, &pid)
	}
	return pid
}

// Command returns the command line of the calling process, as words.
func (c Call) Command() []string {
	line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", c.TID))
	return strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")
}

// Text returns the string, a path, that argument n points to; empty if it cannot be read.
func (c Call) Text(n int) string {
	var text []byte
	for addr := uintptr(c.Args[n]); len(text) < unix.PathMax; {
		buf := make([]byte, 64-addr%64) // never across the end of a page: the next one may not exist
		got, err := unix.ProcessVMReadv(c.TID, []unix.Iovec{{Base: &buf[0], Len: uint64(len(buf))}},
			[]unix.RemoteIovec{{Base: addr, Len: len(buf)}}, 0)
		if err != nil || got == 0 {
			return ""
		}
		if end := bytes.IndexByte(buf[:got], 0); end >= 0 {
			return string(append(text, buf[:end]...))
		}
		text, addr = append(text, buf[:got]...), addr+uintptr(got)
	}
	return ""
}

// File returns the path of the descriptor in argument n, as /proc has it; empty if it is not open.
func (c Call) File(n int) string {
	name, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", c.TID, int32(c.Args[n])))
	return name
}

// shorten does the first n bytes of the caller's write or read on the caller's own open file.
func (c Call) shorten(n int) (int, error) {
	data := make([]byte, min(uint64(n), c.Args[2]))
	if len(data) == 0 {
		return 0, nil
	}
	ours := []unix.Iovec{{Base: &data[0], Len: uint64(len(data))}}
	theirs := []unix.RemoteIovec{{Base: uintptr(c.Args[1]), Len: len(data)}}
	pidfd, err := unix.PidfdOpen(c.PID(), 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(pidfd)
	fd, err := unix.PidfdGetfd(pidfd, int(int32(c.Args[0])), 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	if c.Number == unix.SYS_READ {
		got, err := unix.Read(fd, data)
		if err != nil || got == 0 {
			return got, err
		}
		ours[0].SetLen(got)
		theirs[0].Len = got
		return unix.ProcessVMWritev(c.TID, ours, theirs, 0)
	}
	if _, err := unix.ProcessVMReadv(c.TID, ours, theirs, 0); err != nil {
		return 0, err
	}
	return unix.Write(fd, data)
}
