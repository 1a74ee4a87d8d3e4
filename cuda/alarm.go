package main

/*
#include <pthread.h>
#include <signal.h>
#include <string.h>

// default_alarm gives SIGALRM its default action back: Go's runtime catches and drops it.
static int default_alarm(void) {
	struct sigaction sa;
	memset(&sa, 0, sizeof sa);
	sa.sa_handler = SIG_DFL;
	return sigaction(SIGALRM, &sa, NULL);
}

static int unblock_alarm(void) {
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGALRM);
	return pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}
*/
import "C"

import (
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// setAlarm makes the kernel end this process after d, whatever the vendor's code or Go's runtime does then.
func setAlarm(d time.Duration) error {
	if _, err := C.default_alarm(); err != nil {
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

// unblockAlarm lets the calling thread take the alarm: a mask inherited from slurmd may block it.
func unblockAlarm() error {
	if rc := C.unblock_alarm(); rc != 0 {
		return fmt.Errorf("unblock alarm: %w", syscall.Errno(rc))
	}
	return nil
}
