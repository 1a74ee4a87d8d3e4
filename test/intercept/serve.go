package intercept

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

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

// serve answers until the last watched process has ended.
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
		if err := w.answerOne(decide); err != nil {
			return err
		}
	}
}

// answerOne asks decide about one call. A caller that was killed meanwhile needs no answer.
func (w *Watch) answerOne(decide func(Call) Answer) error {
	var n notification
	err := control(w.listener, unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&n))
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINTR) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("receive a call: %w", err)
	}
	call := Call{TID: int(n.pid), Number: uintptr(n.number), Args: n.args}
	r := call.carryOut(decide(call))
	if r == nil {
		return nil
	}
	r.id = n.id
	err = control(w.listener, unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(r))
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("answer a call: %w", err)
	}
	return nil
}

// carryOut does what the answer wants done, and returns the kernel's response, nil for none.
func (c Call) carryOut(a Answer) *response {
	switch {
	case a.kill:
		_ = unix.Kill(c.TID, unix.SIGKILL) // a thread's id serves too: the signal is the process's
		return nil
	case a.short:
		n, err := c.shorten(a.bytes)
		var errno unix.Errno
		if errors.As(err, &errno) {
			return &response{errno: -int32(errno)}
		}
		return &response{value: int64(n)}
	case a.errno != 0:
		return &response{errno: -int32(a.errno)}
	}
	return &response{flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
}

func control(fd int, request uintptr, arg unsafe.Pointer) error {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(arg))
	if errno != 0 {
		return errno
	}
	return nil
}
