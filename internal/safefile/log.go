package safefile

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Append adds one entry to a log in an own folder, in a single write, so that entries of hooks running at once
// do not mix. A log that would grow beyond limit bytes becomes name.1, replacing an older one; an entry larger than
// limit is refused (ErrTooLarge). A new log has mode 0640.
func Append(dir, name string, entry []byte, limit int64) error {
	return inOwnFolder("append to", dir, name, func(dirfd int) error {
		if int64(len(entry)) > limit {
			return fmt.Errorf("%w: an entry of %d bytes", ErrTooLarge, len(entry))
		}
		f, size, err := openLog(dirfd, name)
		if err != nil {
			return err
		}
		if size+int64(len(entry)) > limit {
			if f, err = rotate(dirfd, name, f); err != nil {
				return err
			}
		}
		_, err = f.Write(entry)
		return errors.Join(err, f.Close())
	})
}

func openLog(dirfd int, name string) (*os.File, int64, error) {
	// Threat: none from users, who cannot write here; a FIFO or link an admin put here is refused, not followed.
	fd, err := openAt(dirfd, name, unix.O_WRONLY|unix.O_APPEND|unix.O_CREAT, 0o640)
	if err != nil {
		return nil, 0, err
	}
	st, err := checkOwnFile(fd)
	if err != nil {
		_ = unix.Close(fd)
		return nil, 0, err
	}
	return os.NewFile(uintptr(fd), name), st.Size, nil
}

// rotate moves the full log away and opens a new one. Of several hooks that find it full one does so; the
// others write to whichever file has the name then. Without the lock the second would move the new, nearly
// empty log over the old.
func rotate(dirfd int, name string, full *os.File) (*os.File, error) {
	err := retry(func() error { return unix.Flock(int(full.Fd()), unix.LOCK_EX|unix.LOCK_NB) })
	if errors.Is(err, unix.EWOULDBLOCK) {
		return full, nil
	}
	defer full.Close() // after the new one is open: closing releases the lock
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	if stillNamed(dirfd, name, int(full.Fd())) {
		if err := retry(func() error { return unix.Renameat(dirfd, name, dirfd, name+".1") }); err != nil {
			return nil, fmt.Errorf("rotate: %w", err)
		}
	}
	f, _, err := openLog(dirfd, name)
	return f, err
}

func stillNamed(dirfd int, name string, fd int) bool {
	var named unix.Stat_t
	err := retry(func() error { return unix.Fstatat(dirfd, name, &named, unix.AT_SYMLINK_NOFOLLOW) })
	if err != nil {
		return false
	}
	st, err := stat(fd)
	return err == nil && st.Dev == named.Dev && st.Ino == named.Ino
}
