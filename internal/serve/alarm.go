package serve

import (
	"fmt"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Alarm makes the kernel end this process after d, whatever the vendor's code or Go's runtime does then.
func Alarm(d time.Duration) error {
	if err := defaultAlarm(); err != nil {
		return fmt.Errorf("set alarm: %w", err)
	}
	if err := unblockAlarm(); err != nil {
		return err
	}
	once := unix.Itimerval{Value: unix.NsecToTimeval(int64(max(d, time.Millisecond)))}
	if _, err := unix.Setitimer(unix.ITIMER_REAL, once); err != nil {
		return fmt.Errorf("set alarm: %w", err)
	}
	return nil
}

// defaultAlarm gives SIGALRM its default action back: Go's runtime catches and drops it. All of the kernel's struct
// sigaction is zero: SIG_DFL, no flags, an empty mask.
func defaultAlarm() error {
	var action [4]uint64
	const maskBytes = 8
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(unix.SIGALRM), uintptr(unsafe.Pointer(&action)), 0,
		maskBytes, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// unblockAlarm lets the calling thread take the alarm: a mask inherited from slurmd may block it.
func unblockAlarm() error {
	var set unix.Sigset_t
	set.Val[0] = 1 << (uint(unix.SIGALRM) - 1)
	if err := unix.PthreadSigmask(unix.SIG_UNBLOCK, &set, nil); err != nil {
		return fmt.Errorf("unblock alarm: %w", err)
	}
	return nil
}
