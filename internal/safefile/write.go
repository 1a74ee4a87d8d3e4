package safefile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// TempPrefix begins the names of files being written. One that stays was left by a killed writer.
const TempPrefix = ".tmp-"

// attributes are what a written file gets, whatever the umask.
type attributes struct {
	mode    os.FileMode
	guest   *guest // a user who may use it too
	durable bool
}

// Replace writes a file of an own folder, meant for tmpfs: readers see the old content or the new one.
func Replace(dir, name string, data []byte, mode os.FileMode) error {
	return write(dir, name, data, attributes{mode: mode})
}

// ReplaceDurable survives a power cut. It waits for the disk and so belongs into children.
func ReplaceDurable(dir, name string, data []byte, mode os.FileMode) error {
	return write(dir, name, data, attributes{mode: mode, durable: true})
}

// ReplaceReadable is Replace for a file of root's that one other user may read, by an access control list: whoever
// owns a file may open it for writing, and fill the file system. unix.EOPNOTSUPP: that knows no such lists.
func ReplaceReadable(dir, name string, data []byte, reader uint32) error {
	return write(dir, name, data, attributes{mode: 0o600, guest: &guest{reader, mayRead}})
}

func write(dir, name string, data []byte, a attributes) error {
	return inOwnFolder("write", dir, name, func(dirfd int) error { return replace(dirfd, name, data, a) })
}

// replace puts a complete file in the place of what has the name.
func replace(dirfd int, name string, data []byte, a attributes) error {
	temp, err := writeTemp(dirfd, data, a)
	if err != nil {
		return err
	}
	if err := retry(func() error { return unix.Renameat(dirfd, temp, dirfd, name) }); err != nil {
		_ = unix.Unlinkat(dirfd, temp, 0)
		return fmt.Errorf("rename: %w", err)
	}
	if a.durable {
		return retry(func() error { return unix.Fsync(dirfd) })
	}
	return nil
}

// writeTemp makes a complete file under a name of its own, or none.
func writeTemp(dirfd int, data []byte, a attributes) (string, error) {
	temp := fmt.Sprintf("%s%016x", TempPrefix, rand.Uint64())
	// Threat: none from users, who cannot write here; O_EXCL keeps two writers out of one file.
	fd, err := openAt(dirfd, temp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	f := os.NewFile(uintptr(fd), temp)
	err = fill(f, data, a)
	if closing := f.Close(); err == nil {
		err = closing // network file systems report a full disk here
	}
	if err != nil {
		_ = unix.Unlinkat(dirfd, temp, 0)
		return "", err
	}
	return temp, nil
}

// fill lets another user read the file last: until then nobody else can open it.
func fill(f *os.File, data []byte, a attributes) error {
	if _, err := f.Write(data); err != nil {
		return err
	}
	if err := f.Chmod(a.mode); err != nil {
		return err
	}
	if a.guest != nil {
		if err := a.guest.admit(int(f.Fd()), mayRead|mayWrite); err != nil {
			return err
		}
	}
	if a.durable {
		return f.Sync()
	}
	return nil
}

// Create writes a file that somebody has asked for by a path of his, in whatever folder: readable by this process's
// user alone. One that is there already is left alone (fs.ErrExist), or with over replaced if it is a regular file.
//
// Threat: other users own folders on the way, or may write to them. Symbolic links count only if they are root's or
// this user's own; and the file is made anew, never opened.
func Create(path string, data []byte, over bool) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("write %q: %w", path, err)
		}
	}()
	folder, name := filepath.Split(path)
	if err := checkName(name); err != nil {
		return err
	}
	dirfd, _, err := walk(folder, ownLinks)
	if err != nil {
		return err
	}
	defer unix.Close(dirfd)
	var st unix.Stat_t
	err = retry(func() error { return unix.Fstatat(dirfd, name, &st, unix.AT_SYMLINK_NOFOLLOW) })
	switch {
	case errors.Is(err, unix.ENOENT):
	case err != nil:
		return err
	case !over:
		return fs.ErrExist
	case st.Mode&unix.S_IFMT != unix.S_IFREG: // a device or a link that root was told to overwrite by mistake
		return fmt.Errorf("%w: what is there is no regular file", ErrNotOurs)
	}
	return replace(dirfd, name, data, attributes{mode: 0o600})
}

// ownLinks refuses links that somebody else has put on the way.
func ownLinks(path string, st unix.Stat_t) error {
	if st.Mode&unix.S_IFMT == unix.S_IFLNK && !ours(st.Uid) {
		return fmt.Errorf("follow link %q: %w: it belongs to user %d", path, ErrUntrusted, st.Uid)
	}
	return nil
}

// MakeDir makes the folder name in the own folder parent. One that is there must be this user's (else ErrNotOurs).
func MakeDir(parent, name string, mode os.FileMode) error {
	return inOwnFolder("make directory", parent, name, func(dirfd int) error {
		err := retry(func() error { return unix.Mkdirat(dirfd, name, 0o700) })
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return err
		}
		// Threat: none from users, who cannot write here; a link or a mount that an admin put here is refused.
		fd, st, err := pin(dirfd, name)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if st.Mode&unix.S_IFMT != unix.S_IFDIR || st.Uid != uint32(os.Geteuid()) {
			return fmt.Errorf("%w: owner %d, mode %#o", ErrNotOurs, st.Uid, st.Mode)
		}
		if os.FileMode(st.Mode&0o7777) == mode {
			return nil
		}
		return retry(func() error { return unix.Fchmodat(dirfd, name, uint32(mode), 0) })
	})
}

// lockStep is the pause between two tries: locks are held for about a millisecond.
const lockStep = 2 * time.Millisecond

// Lock takes a lock on a file, made and never removed, within wait, else ErrLocked. It ends with the process.
func Lock(path string, wait time.Duration, exclusive bool) (release func(), err error) {
	over, end := context.WithTimeout(context.Background(), wait)
	defer end()
	return LockIn(over, path, exclusive)
}

// LockLong is an exclusive Lock for a process that holds it for long: held reports whether the path still names the
// locked file. If it was removed, another process may hold a lock on the next one.
func LockLong(path string, wait time.Duration) (held func() bool, release func(), err error) {
	over, end := context.WithTimeout(context.Background(), wait)
	defer end()
	fd, err := lock(over, path, func(fd int) error { return unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) })
	if err != nil {
		return nil, nil, err
	}
	own, err := stat(fd)
	if err != nil {
		_ = unix.Close(fd)
		return nil, nil, fmt.Errorf("lock %q: %w", path, err)
	}
	held = func() bool {
		var now unix.Stat_t
		return unix.Lstat(path, &now) == nil && now.Ino == own.Ino && now.Dev == own.Dev
	}
	return held, func() { _ = unix.Close(fd) }, nil
}

// LockIn is Lock for as long as the context is not over.
func LockIn(over context.Context, path string, exclusive bool) (release func(), err error) {
	how := unix.LOCK_SH
	if exclusive {
		how = unix.LOCK_EX
	}
	return releasing(lock(over, path, func(fd int) error { return unix.Flock(fd, how|unix.LOCK_NB) }))
}

// LockNumber takes a lock on one number of a file that never grows. The file is for that alone.
func LockNumber(path string, n uint32, wait time.Duration) (release func(), err error) {
	over, end := context.WithTimeout(context.Background(), wait)
	defer end()
	return releasing(lock(over, path, func(fd int) error {
		// Of the open file, not of the process: closing another descriptor of the file does not end it.
		one := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart, Start: int64(n), Len: 1}
		return unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &one)
	}))
}

func releasing(fd int, err error) (release func(), _ error) {
	if err != nil {
		return nil, err
	}
	return func() { _ = unix.Close(fd) }, nil
}

func lock(over context.Context, path string, try func(fd int) error) (fd int, err error) {
	fd = -1 // no os.File, which would be closed where release is forgotten
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
	return fd, err
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

// Append adds one entry to a log in a single write. A log that would grow beyond limit bytes becomes name.1. The caller
// holds a lock, so that a log that is full for two writers at once is not moved away twice.
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
