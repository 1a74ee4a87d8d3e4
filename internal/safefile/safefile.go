// Package safefile is the only way in which privileged code touches files: it uses descriptors instead of paths and
// O_NOFOLLOW, and checks each property on the descriptor that is used afterwards.
//
// It distinguishes three kinds of places:
//
//	trusted  /etc/bookend, programs    root's all the way up              Trusted, ReadTrusted, Passable
//	own      /run/bookend, /var/lib/*  only this uid (or root) can write  Read, Replace, Append, Lock, MakeDir
//	shared   /run/bookend/drop/UID/*   one user may write to a file, too  Share, Edit, ReadShared, Clear
package safefile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Errors that callers distinguish. A missing file matches fs.ErrNotExist.
var (
	// ErrUntrusted means that a user other than root could have written the file, or a directory above it.
	ErrUntrusted = errors.New("not trusted")
	// ErrNotOurs means that the type, owner, mode, links or mount of a file or directory are not as agreed.
	ErrNotOurs = errors.New("not as agreed")
	// ErrTooLarge means that the file is larger than the caller reads or writes.
	ErrTooLarge = errors.New("too large")
	// ErrLocked means that another process held the lock for the whole wait.
	ErrLocked = errors.New("locked")
)

// writableByOthers has the mode bits for writes by group and others. The group bits are also the mask of an ACL.
const writableByOthers = 0o022

// checkName returns EINVAL unless name can be an entry of a directory.
func checkName(name string) error {
	if name == "" || name == "." || name == ".." || len(name) > unix.NAME_MAX || strings.ContainsAny(name, "/\x00") {
		return fmt.Errorf("file name %q: %w", name, unix.EINVAL)
	}
	return nil
}

// retry repeats a system call that a signal interrupted.
func retry(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// openAt opens name in dirfd. Threat: any kind of file: no link is followed, nothing blocks or becomes the terminal.
func openAt(dirfd int, name string, flags int, perm uint32) (int, error) {
	flags |= unix.O_NOFOLLOW | unix.O_CLOEXEC | unix.O_NOCTTY | unix.O_NONBLOCK
	fd := -1
	err := retry(func() (err error) {
		fd, err = unix.Openat(dirfd, name, flags, perm)
		return err
	})
	if err != nil {
		return -1, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return fd, nil
}

func stat(fd int) (st unix.Stat_t, err error) {
	err = retry(func() error { return unix.Fstat(fd, &st) })
	if err != nil {
		err = fmt.Errorf("stat: %w", err)
	}
	return st, err
}

// ownDir opens a directory that only this user or root can write to. Threat: elsewhere, names change between uses.
func ownDir(path string) (int, error) {
	fd, err := openAt(unix.AT_FDCWD, path, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if errors.Is(err, unix.EACCES) { // a directory that users may search but not list
		fd, err = openAt(unix.AT_FDCWD, path, unix.O_PATH|unix.O_DIRECTORY, 0)
	}
	if err != nil {
		return -1, err
	}
	st, err := stat(fd)
	if err == nil && (!ours(st.Uid) || st.Mode&writableByOthers != 0) {
		err = fmt.Errorf("open directory %q: %w: owner %d, mode %#o", path, ErrNotOurs, st.Uid, st.Mode&0o7777)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func ours(uid uint32) bool { return uid == 0 || uid == uint32(os.Geteuid()) }

// inOwnDir checks name and calls f with the directory's descriptor. Errors name the operation and the file.
func inOwnDir(doing, dir, name string, f func(dirfd int) error) error {
	dirfd, err := -1, checkName(name)
	if err == nil {
		dirfd, err = ownDir(dir)
	}
	if err == nil {
		err = f(dirfd)
		_ = unix.Close(dirfd)
	}
	if err != nil {
		return fmt.Errorf("%s %q: %w", doing, filepath.Join(dir, name), err)
	}
	return nil
}

// openOwn opens a file in an own directory, and refuses what Bookend cannot have made. Threat: none from users, who
// cannot write here; damage, mistakes, and a FIFO or link that an admin put here are refused as well.
func openOwn(dirfd int, name string, flags int, perm uint32) (fd int, size int64, err error) {
	return openMade(dirfd, name, flags, perm, writableByOthers)
}

// openMade opens a file as Bookend makes them: regular, with one link, of this user or root, and no mode bit of not.
func openMade(dirfd int, name string, flags int, perm, not uint32) (fd int, size int64, err error) {
	fd, err = openAt(dirfd, name, flags, perm)
	if err != nil {
		return -1, 0, err
	}
	st, err := stat(fd)
	if err == nil {
		err = checkMade(st, not)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, 0, err
	}
	return fd, st.Size, nil
}

func checkMade(st unix.Stat_t, not uint32) error {
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink != 1 || !ours(st.Uid) || st.Mode&not != 0 {
		return fmt.Errorf("%w: owner %d, mode %#o, %d links", ErrNotOurs, st.Uid, st.Mode, st.Nlink)
	}
	return nil
}

// readAll reads a whole file of at most limit bytes (else ErrTooLarge); it may grow meanwhile.
func readAll(f io.Reader, limit int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > limit {
		return nil, fmt.Errorf("%w: more than %d bytes", ErrTooLarge, limit)
	}
	return b, nil
}
