package safefile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// lockStep is the pause between two tries: locks are held for about a millisecond.
const lockStep = 2 * time.Millisecond

// Lock takes a lock on the file path, which lies in an own folder, is made when missing and never removed. It
// tries for at most wait, with wait 0 once, then gives ErrLocked. The lock ends with release, or with the
// process: children do not inherit it.
func Lock(path string, wait time.Duration, exclusive bool) (release func(), err error) {
	over, end := context.WithTimeout(context.Background(), wait)
	defer end()
	return LockIn(over, path, exclusive)
}

// LockIn is Lock for as long as the context is not over.
func LockIn(over context.Context, path string, exclusive bool) (release func(), err error) {
	how := unix.LOCK_SH
	if exclusive {
		how = unix.LOCK_EX
	}
	return lock(over, path, func(fd int) error { return unix.Flock(fd, how|unix.LOCK_NB) })
}

// LockNumber takes a lock on one number of the file path, exclusively, and otherwise as Lock does: as many locks as
// there are numbers, in one file that never grows. The two know nothing of each other: a file is for one of them.
func LockNumber(path string, n uint32, wait time.Duration) (release func(), err error) {
	over, end := context.WithTimeout(context.Background(), wait)
	defer end()
	return lock(over, path, func(fd int) error {
		// Of the open file, not of the process: closing another descriptor of the file does not end it.
		one := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart, Start: int64(n), Len: 1}
		return unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &one)
	})
}

func lock(over context.Context, path string, try func(fd int) error) (release func(), err error) {
	fd := -1 // no os.File, which would be closed where release is forgotten
	err = inOwnFolder("lock", filepath.Dir(path), filepath.Base(path), func(dirfd int) (err error) {
		// Threat: whoever can open the file can hold the lock for ever, hence mode 0600.
		fd, _, err = openOwn(dirfd, filepath.Base(path), unix.O_RDWR|unix.O_CREAT, 0o600)
		if err != nil {
			return err
		}
		if err = await(over, func() error { return try(fd) }); err != nil {
			_ = unix.Close(fd)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return func() { _ = unix.Close(fd) }, nil
}

func await(over context.Context, try func() error) error {
	for {
		err := retry(try)
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return err
		}
		select {
		case <-over.Done():
			return ErrLocked
		case <-time.After(lockStep):
		}
	}
}

// Append adds one entry to a log in an own folder, in a single write. A log that would grow beyond limit bytes becomes
// name.1, replacing an older one; an entry larger than limit is refused (ErrTooLarge). A new log has mode 0640. The
// caller holds a lock, so that a log that is full for two writers at once is not moved away twice.
func Append(dir, name string, entry []byte, limit int64) error {
	return inOwnFolder("append to", dir, name, func(dirfd int) error {
		if int64(len(entry)) > limit {
			return fmt.Errorf("%w: an entry of %d bytes", ErrTooLarge, len(entry))
		}
		open := func() (int, int64, error) {
			return openOwn(dirfd, name, unix.O_WRONLY|unix.O_APPEND|unix.O_CREAT, 0o640)
		}
		fd, size, err := open()
		if err == nil && size+int64(len(entry)) > limit {
			_ = unix.Close(fd)
			if err = retry(func() error { return unix.Renameat(dirfd, name, dirfd, name+".1") }); err == nil {
				fd, _, err = open()
			}
		}
		if err != nil {
			return err
		}
		f := os.NewFile(uintptr(fd), name)
		_, err = f.Write(entry)
		return errors.Join(err, f.Close())
	})
}
