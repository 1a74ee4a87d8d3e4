package safefile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// MakeDir makes the folder name in the own folder parent, with this mode and owner. One that is there already
// must be just so (else ErrNotOurs), unless it is still this process's own: then an earlier run was
// interrupted, and it is completed. What is to become another user's is completed only while it is empty.
func MakeDir(parent, name string, mode os.FileMode, uid, gid uint32) error {
	err := inOwnFolder(parent, name, func(dirfd int) error {
		err := retry(func() error { return unix.Mkdirat(dirfd, name, 0o700) })
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return err
		}
		// Threat: a folder that a user owns already may have a FUSE file system on it, so it is pinned first.
		fd, st, err := pin(dirfd, name)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return complete(dirfd, name, st, mode, uid, gid)
	})
	if err != nil {
		return fmt.Errorf("make folder %q: %w", filepath.Join(parent, name), err)
	}
	return nil
}

// Share lets everybody read and search a folder of this process's own in an own folder, where an umask or another
// program has kept them out. Anything else is left as it is: a link, another user's folder, one that others may
// write.
func Share(parent, name string) error {
	err := inOwnFolder(parent, name, func(dirfd int) error {
		// Threat: a link to another folder of root's, which would be opened to all; none is followed.
		fd, err := openAt(dirfd, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		const shared = 0o755
		st, err := stat(fd)
		if err != nil || st.Uid != uint32(os.Geteuid()) || st.Mode&writableByOthers != 0 || st.Mode&shared == shared {
			return err
		}
		return retry(func() error { return unix.Fchmod(fd, st.Mode&0o7777|shared) })
	})
	if err != nil {
		return fmt.Errorf("share folder %q: %w", filepath.Join(parent, name), err)
	}
	return nil
}

func complete(dirfd int, name string, st unix.Stat_t, mode os.FileMode, uid, gid uint32) error {
	isFolder := st.Mode&unix.S_IFMT == unix.S_IFDIR
	if isFolder && st.Uid == uid && st.Gid == gid && os.FileMode(st.Mode&0o7777) == mode {
		return nil
	}
	if !isFolder || st.Uid != uint32(os.Geteuid()) {
		return fmt.Errorf("%w: owner %d:%d, mode %#o", ErrNotOurs, st.Uid, st.Gid, st.Mode)
	}
	fd, err := openAt(dirfd, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	if uid != st.Uid {
		// Threat: what was put into it was an earlier user's, who may hold it open; nobody else may find it there.
		if _, err := f.Readdirnames(1); err == nil {
			return fmt.Errorf("%w: root's, and not empty", ErrNotOurs)
		} else if !errors.Is(err, io.EOF) {
			return err
		}
	}
	if err := f.Chmod(mode); err != nil {
		return err
	}
	return f.Chown(int(uid), int(gid)) // last: from here on it is the user's
}
