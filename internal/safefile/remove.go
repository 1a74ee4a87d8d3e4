package safefile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ErrUnfinished: the caller wanted no more of it. What has been done stays done, and the next call goes on.
var ErrUnfinished = errors.New("not all is removed yet")

// RemoveTree removes the entry name of the own folder parent, with all that a user put below it, however deep. Nothing
// there is no error. Before each entry it asks more, and where that says no it gives ErrUnfinished. What cannot be
// removed, such as a mount point, stays and is told; the rest goes.
//
// Threat: a process that outlived its job fills the folders as fast as they are emptied, swaps them for links, nests
// them deeper than anybody can recurse, or mounts a file system in them. So each folder becomes root's alone before
// it is looked into, and what is not empty in it moves up to the top: only what he holds open further below can still
// grow.
func RemoveTree(parent, name string, more func() bool) error {
	err := inOwnFolder(parent, name, func(dirfd int) error {
		err := removeAt(dirfd, name)
		if !errors.Is(err, unix.ENOTEMPTY) {
			return err
		}
		top, err := take(dirfd, name)
		if err != nil {
			return err
		}
		defer top.Close()
		r := removal{top: top, more: more}
		if err := r.drain(top, r.removeBranch); err != nil {
			return err
		}
		return removeAt(dirfd, name)
	})
	if err != nil {
		return fmt.Errorf("remove %q: %w", filepath.Join(parent, name), err)
	}
	return nil
}

// removal empties a user's folder that has become root's.
type removal struct {
	top  *os.File
	more func() bool
}

// listed is how many names are read at a time.
const listed = 512

// drain removes each entry of a folder, until there is none or nothing of what is left can be removed.
func (r *removal) drain(folder *os.File, remove func(name string) error) error {
	for {
		if _, err := folder.Seek(0, io.SeekStart); err != nil {
			return err
		}
		removed, stays, err := r.pass(folder, remove)
		if err != nil {
			return err
		}
		if removed == 0 {
			return stays
		}
	}
}

// pass goes through a folder once, and counts what it removed; stays is why the first of the others is left.
func (r *removal) pass(folder *os.File, remove func(name string) error) (removed int, stays, err error) {
	for {
		names, err := folder.Readdirnames(listed)
		if errors.Is(err, io.EOF) {
			return removed, stays, nil
		}
		if err != nil {
			return removed, stays, err
		}
		for _, name := range names {
			if !r.more() {
				return removed, stays, ErrUnfinished
			}
			switch err := remove(name); {
			case errors.Is(err, ErrUnfinished):
				return removed, stays, err
			case err == nil:
				removed++
			case stays == nil:
				stays = err
			}
		}
	}
}

// removeBranch removes an entry of top. What is not empty in it comes into top, where its turn comes.
func (r *removal) removeBranch(name string) error {
	top := int(r.top.Fd())
	err := removeAt(top, name)
	if !errors.Is(err, unix.ENOTEMPTY) {
		return err
	}
	branch, err := take(top, name)
	if err != nil {
		return err
	}
	defer branch.Close()
	err = r.drain(branch, func(entry string) error {
		err := removeAt(int(branch.Fd()), entry)
		if errors.Is(err, unix.ENOTEMPTY) {
			return r.lift(int(branch.Fd()), entry)
		}
		return err
	})
	if err != nil {
		return err
	}
	return removeAt(top, name)
}

// lift moves a folder into top, under a name that no user can have chosen. Threat: none by links: both folders are
// root's, and what is moved is not opened.
func (r *removal) lift(from int, entry string) error {
	name, err := tempName()
	if err == nil {
		err = retry(func() error { return unix.Renameat(from, entry, int(r.top.Fd()), name) })
	}
	if err != nil {
		return &fs.PathError{Op: "move", Path: entry, Err: err}
	}
	return nil
}

// removeAt removes a file, a link or an empty folder; ENOTEMPTY says that it is a folder with something in it.
func removeAt(dirfd int, name string) error {
	err := retry(func() error { return unix.Unlinkat(dirfd, name, 0) })
	if errors.Is(err, unix.EISDIR) {
		err = retry(func() error { return unix.Unlinkat(dirfd, name, unix.AT_REMOVEDIR) })
	}
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	return &fs.PathError{Op: "remove", Path: name, Err: err}
}

// take opens a folder and makes it this process's alone. Threat: a user's file system is mounted there, which would
// answer when it likes; it is pinned first, and "." in what is pinned does not lead into a mount.
func take(dirfd int, name string) (*os.File, error) {
	pinned, _, err := pin(dirfd, name)
	if err != nil {
		return nil, err
	}
	defer unix.Close(pinned)
	fd, err := openAt(pinned, ".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	folder := os.NewFile(uintptr(fd), name)
	if err := errors.Join(folder.Chown(os.Geteuid(), os.Getegid()), folder.Chmod(0o700)); err != nil {
		folder.Close()
		return nil, err
	}
	return folder, nil
}
