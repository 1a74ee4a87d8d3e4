package refuse

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// Exactly the call that was named is refused, on that thread alone, and none once it has ended.
func TestRun(t *testing.T) {
	prctl := func(option int) error { return unix.Prctl(option, 0, 0, 0, 0) }
	calls := []Call{
		{Number: unix.SYS_SYNC_FILE_RANGE, Errno: unix.ENOTTY},
		{Number: unix.SYS_PRCTL, Errno: unix.EDOM, When: []Arg{{Index: 0, Is: unix.PR_GET_DUMPABLE}}},
		{Number: unix.SYS_MKDIRAT, Errno: unix.EXDEV, When: Below(0)},
	}
	here := errors.New("not called")
	err := Run(calls, func() {
		here = errors.Join(
			is("plain", unix.SyncFileRange(-1, 0, 0, 0), unix.ENOTTY), is("argument", prctl(unix.PR_GET_DUMPABLE), unix.EDOM),
			is("another argument", prctl(unix.PR_GET_KEEPCAPS), nil), is("below", unix.Mkdirat(5, "x", 0), unix.EXDEV),
			is("by path", unix.Mkdirat(unix.AT_FDCWD, "/", 0), unix.EEXIST), is("another call", unix.Fsync(-1), unix.EBADF))
	})
	if err != nil || here != nil {
		t.Fatal(err, here)
	}
	if err := unix.SyncFileRange(-1, 0, 0, 0); !errors.Is(err, unix.EBADF) {
		t.Errorf("another thread gets %v", err)
	}
}

func is(what string, got, want error) error {
	if errors.Is(got, want) || got == nil && want == nil {
		return nil
	}
	return errors.Join(errors.New(what), got)
}
