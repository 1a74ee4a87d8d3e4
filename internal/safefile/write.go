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
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// TempPrefix begins the names of files that are being written. A file that keeps its name was left by a killed writer.
const TempPrefix = ".tmp-"

// attributes are set on each file that is written, whatever the umask is.
type attributes struct {
	mode    os.FileMode
	guest   *guest // another user with access
	durable bool
}

// Replace writes a file in an own directory, meant for tmpfs: readers see either the old content or the new.
func Replace(dir, name string, data []byte, mode os.FileMode) error {
	return write(dir, name, data, attributes{mode: mode})
}

// ReplaceDurable is Replace that survives a power cut. It waits for the disk, so only a child may call it.
func ReplaceDurable(dir, name string, data []byte, mode os.FileMode) error {
	return write(dir, name, data, attributes{mode: mode, durable: true})
}

// ReplaceReadable is Replace for a root file that one other user may read, through an access control list: an owner
// could open it for writing and fill the file system. Without such lists it returns unix.EOPNOTSUPP.
func ReplaceReadable(dir, name string, data []byte, reader uint32) error {
	return write(dir, name, data, attributes{mode: 0o600, guest: &guest{reader, mayRead}})
}

func write(dir, name string, data []byte, a attributes) error {
	return inOwnDir("write", dir, name, func(dirfd int) error { return replace(dirfd, name, data, a) })
}

// replace writes a complete file and renames it to name.
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

// writeTemp writes a complete file under a new temporary name, or leaves none.
func writeTemp(dirfd int, data []byte, a attributes) (string, error) {
	temp := fmt.Sprintf("%s%016x", TempPrefix, rand.Uint64())
	// Threat: none from users, who cannot write here; O_EXCL keeps two writers from sharing a file.
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

// fill gives the other user access last: until then no other user can open the file.
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

// Create writes a file at a path that a user gave, in any directory; only this process's user can read it. An existing
// file is left alone (fs.ErrExist) unless over is set and it is a regular file, which is replaced.
//
// Threat: other users own directories on the path, or may write to them. Symbolic links are followed only if root or
// this user owns them, and a new file is created: the old one is never opened.
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
	case st.Mode&unix.S_IFMT != unix.S_IFREG: // root named a device or a link by mistake
		return fmt.Errorf("%w: what is there is no regular file", ErrNotOurs)
	}
	return replace(dirfd, name, data, attributes{mode: 0o600})
}

// ownLinks refuses symbolic links that another user owns.
func ownLinks(path string, st unix.Stat_t) error {
	if st.Mode&unix.S_IFMT == unix.S_IFLNK && !ours(st.Uid) {
		return fmt.Errorf("follow link %q: %w: it belongs to user %d", path, ErrUntrusted, st.Uid)
	}
	return nil
}

// MakeDir makes the directory name in the own directory parent. An existing one must be this user's (else ErrNotOurs).
func MakeDir(parent, name string, mode os.FileMode) error {
	return inOwnDir("make directory", parent, name, func(dirfd int) error {
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

// lockStep is the pause between two attempts: locks are held for about a millisecond.
const lockStep = 2 * time.Millisecond

// Lock locks a file, which it makes but never removes, within wait (else ErrLocked). The lock ends with the process.
func Lock(path string, wait time.Duration, exclusive bool) (release func(), err error) {
	over, end := context.WithTimeout(context.Background(), wait)
	defer end()
	return LockIn(over, path, exclusive)
}

// LockLong is an exclusive Lock for a process that holds it for long. held reports whether path still names the locked
// file: if that was removed, another process may hold a lock on a new file.
func LockLong(path string, wait time.Duration) (held func() bool, release func(), err error) {
	over, end := context.WithTimeout(context.Background(), wait)
	defer end()
	var own, now unix.Stat_t
	release, err = lock(over, path, func(fd int) error {
		own, _ = stat(fd)
		return unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
	})
	held = func() bool { return unix.Lstat(path, &now) == nil && now.Ino == own.Ino && now.Dev == own.Dev }
	return held, release, err
}

// TakeOver locks the file of a LockLong, whose holder sees that it has gone and has until wait to give up its lock.
func TakeOver(path string, wait time.Duration) (release func(), err error) {
	// Threat: none from users, who cannot write to the directory of a lock.
	former := path + "-former"
	if err := os.Rename(path, former); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if release, err = Lock(path, 0, true); err != nil { // another was faster
		return nil, err
	}
	over, err := Lock(former, wait, true)
	if err != nil {
		release()
		return nil, err
	}
	over()
	return release, nil
}

// LockIn is Lock with a context instead of a wait.
func LockIn(over context.Context, path string, exclusive bool) (release func(), err error) {
	how := unix.LOCK_SH
	if exclusive {
		how = unix.LOCK_EX
	}
	return lock(over, path, func(fd int) error { return unix.Flock(fd, how|unix.LOCK_NB) })
}

// LockNumber locks byte n of a file that always stays empty. The file must have no other use.
func LockNumber(path string, n uint32, wait time.Duration) (release func(), err error) {
	over, end := context.WithTimeout(context.Background(), wait)
	defer end()
	return lock(over, path, func(fd int) error {
		// The lock belongs to the open file, not to the process: closing another descriptor does not end it.
		one := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart, Start: int64(n), Len: 1}
		return unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &one)
	})
}

func lock(over context.Context, path string, try func(fd int) error) (release func(), err error) {
	err = inOwnDir("lock", filepath.Dir(path), filepath.Base(path), func(dirfd int) error {
		// Threat: any process that can open the file can hold the lock for ever, hence mode 0600.
		fd, _, err := openOwn(dirfd, filepath.Base(path), unix.O_RDWR|unix.O_CREAT, 0o600)
		if err != nil {
			return err
		}
		if err := await(over, func() error { return try(fd) }); err != nil {
			_ = unix.Close(fd)
			return err
		}
		release = func() { _ = unix.Close(fd) } // not an os.File: garbage collection would close it if this is not kept
		return nil
	})
	return release, err
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

// Append adds one entry to a log in a single write. A log that would grow beyond limit bytes is first renamed to
// name.1. The caller holds a lock, so that two writers do not both rename a full log.
func Append(dir, name string, entry []byte, limit int64) error {
	return inOwnDir("append to", dir, name, func(dirfd int) error {
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

// AddLine appends a line to a text file of the calling user's unless the file has it, and makes the file if there is
// none. Processes on several nodes may do so at the same time.
func AddLine(path, line string) error {
	// Threat: a link that another user made would have this user, or root, append to another file.
	f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o644)
	if err != nil {
		return err
	}
	_ = unix.Flock(int(f.Fd()), unix.LOCK_EX) // where there are no locks, two nodes at once may lose a line
	text, err := io.ReadAll(io.LimitReader(f, 1<<20))
	if lines := strings.Split(string(text), "\n"); err == nil && !slices.Contains(lines, line) {
		if lines[len(lines)-1] != "" {
			line = "\n" + line
		}
		_, err = f.WriteString(line + "\n")
	}
	err = errors.Join(err, f.Close())
	if err != nil {
		return fmt.Errorf("add a line to %q: %w", path, err)
	}
	return nil
}
