// Package safefile is the one way in which privileged code touches files: descriptors instead of paths,
// O_NOFOLLOW on what is opened, and every promise checked on the descriptor that is used afterwards.
//
// Three kinds of places are told apart:
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

// What callers tell apart. Missing files match fs.ErrNotExist.
var (
	// ErrUntrusted: somebody other than root could have written the file, or a folder above it.
	ErrUntrusted = errors.New("not trusted")
	// ErrNotOurs: the file or folder is not what was agreed: type, owner, mode, links or mount.
	ErrNotOurs = errors.New("not as agreed")
	// ErrTooLarge: the file is larger than the caller reads or writes.
	ErrTooLarge = errors.New("too large")
	// ErrLocked: somebody else held the lock all the time.
	ErrLocked = errors.New("locked")
)

// writableByOthers are mode bits. An access control list shows in the group bits, which are its mask.
const writableByOthers = 0o022

// checkName refuses what is not the name of an entry of a folder.
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

// openAt opens name in dirfd. Threat: whatever is there: no link is followed, nothing blocks or becomes our terminal.
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

// ownFolder opens a folder that only this user, or root, can write. Threat: in others names change between two looks.
func ownFolder(path string) (int, error) {
	fd, err := openAt(unix.AT_FDCWD, path, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if errors.Is(err, unix.EACCES) { // a folder that users may search, not list
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

// inOwnFolder checks name, and calls f with the folder's descriptor. An error says what was done to which file.
func inOwnFolder(doing, dir, name string, f func(dirfd int) error) error {
	dirfd, err := -1, checkName(name)
	if err == nil {
		dirfd, err = ownFolder(dir)
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

// openOwn opens a file of an own folder, and refuses what no part of Bookend has made. Threat: none from users, who
// cannot write here; damage, mistakes, and a FIFO or link that an admin put here are refused all the same.
func openOwn(dirfd int, name string, flags int, perm uint32) (fd int, size int64, err error) {
	fd, err = openAt(dirfd, name, flags, perm)
	if err != nil {
		return -1, 0, err
	}
	st, err := stat(fd)
	if err == nil &&
		(st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink != 1 || !ours(st.Uid) || st.Mode&writableByOthers != 0) {
		err = fmt.Errorf("%w: owner %d, mode %#o, %d links", ErrNotOurs, st.Uid, st.Mode, st.Nlink)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, 0, err
	}
	return fd, st.Size, nil
}

// readAll reads a whole file, at most limit bytes; it may grow meanwhile.
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
