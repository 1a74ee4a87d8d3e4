package safefile

import (
	"errors"
	"fmt"
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
	how := unix.LOCK_SH
	if exclusive {
		how = unix.LOCK_EX
	}
	var fd int
	err = inOwnFolder(filepath.Dir(path), filepath.Base(path), func(dirfd int) error {
		// Threat: whoever can open the file can hold the lock for ever, hence mode 0600.
		fd, err = openAt(dirfd, filepath.Base(path), unix.O_RDWR|unix.O_CREAT, 0o600)
		if err != nil {
			return err
		}
		_, err = checkOwnFile(fd)
		if err == nil {
			err = flock(fd, how, wait)
		}
		if err != nil {
			_ = unix.Close(fd)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("lock %q: %w", path, err)
	}
	return func() { _ = unix.Close(fd) }, nil
}

func flock(fd, how int, wait time.Duration) error {
	deadline := time.NewTimer(wait)
	defer deadline.Stop()
	for {
		err := retry(func() error { return unix.Flock(fd, how|unix.LOCK_NB) })
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return err
		}
		select {
		case <-deadline.C:
			return ErrLocked
		case <-time.After(lockStep):
		}
	}
}
