package safefile

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// guest is what one user may do with a file or directory that root owns.
type guest struct {
	uid uint32
	may uint16 // permission bits
}

// Permission bits in an access control list.
const (
	mayRead  = 4
	mayWrite = 2
	mayPass  = 1
)

// admit sets the access control list of fd: the owner's rights, and those of one user.
func (g guest) admit(fd int, owner uint16) error {
	err := retry(func() error { return unix.Fsetxattr(fd, "system.posix_acl_access", g.list(owner), 0) })
	if err != nil {
		return fmt.Errorf("let user %d use it: %w", g.uid, err)
	}
	return nil
}

// list returns the access control list in the format of linux/posix_acl_xattr.h.
func (g guest) list(owner uint16) []byte {
	const none = ^uint32(0)
	acl := binary.LittleEndian.AppendUint32(nil, 2) // its version
	for _, e := range []struct {
		tag, may uint16
		id       uint32
	}{
		{0x01, owner, none},
		{0x02, g.may, g.uid}, // a user
		{0x04, 0, none},      // the group
		{0x10, g.may, none},  // the mask: the most that anyone but the owner may get
		{0x20, 0, none},      // all others
	} {
		acl = binary.LittleEndian.AppendUint16(acl, e.tag)
		acl = binary.LittleEndian.AppendUint16(acl, e.may)
		acl = binary.LittleEndian.AppendUint32(acl, e.id)
	}
	return acl
}

// Share makes an empty file, owned by root, in an own directory, in place of what is there. One user may read and write
// it, but cannot lease it, open it to others or replace it. The reserved space stays available even if the file system
// fills up.
func Share(dir, name string, user uint32, reserved int64) error {
	return inOwnDir("make", dir, name, func(dirfd int) error {
		// Threat: an earlier user may hold the old file open, so a new one is made; a mount point cannot be removed.
		err := retry(func() error { return unix.Unlinkat(dirfd, name, 0) })
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("remove: %w", err)
		}
		fd, err := openAt(dirfd, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		err = retry(func() error { return unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, 0, reserved) })
		if errors.Is(err, unix.EOPNOTSUPP) { // this file system cannot reserve space
			err = nil
		}
		if err == nil {
			err = guest{user, mayRead | mayWrite}.admit(fd, mayRead|mayWrite)
		}
		if err != nil {
			_ = unix.Unlinkat(dirfd, name, 0)
		}
		return err
	})
}

// MakeDirFor makes the directory name in the own directory parent. Only root and this user can pass through it.
func MakeDirFor(parent, name string, user uint32) error {
	if err := MakeDir(parent, name, 0o700); err != nil {
		return err
	}
	return inOwnDir("make directory", parent, name, func(dirfd int) error {
		// Threat: none from users, who cannot write here; MakeDir refused anything but an own directory.
		fd, err := openAt(dirfd, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return guest{user, mayPass}.admit(fd, mayRead|mayWrite|mayPass)
	})
}

// Edit replaces the content of a file that Share made for this user, under a lock for which it waits at most wait. It
// writes once, within the reserved space, and never truncates the file first: on a full file system that would lose the
// content. Shorter content is padded with blanks.
func Edit(dir, name string, wait time.Duration, limit int64, edit func(old []byte) ([]byte, error)) error {
	return inOwnDir("edit", dir, name, func(dirfd int) error {
		// Threat: none but from this user: only root and this user can write to the file.
		fd, _, err := openMade(dirfd, name, unix.O_RDWR, 0, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		over, end := context.WithTimeout(context.Background(), wait)
		defer end()
		if err := await(over, func() error { return unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) }); err != nil {
			return err
		}
		old, err := readAll(descriptor(fd), limit)
		if err != nil && !errors.Is(err, ErrTooLarge) {
			return err
		}
		next, err := edit(old)
		if err != nil {
			return err
		}
		for len(next) < len(old) {
			next = append(next, ' ')
		}
		return retry(func() error { _, err := unix.Pwrite(fd, next, 0); return err })
	})
}

// Clear empties a shared file that takes up more than limit bytes, even while its user has it open.
func Clear(dir, name string, limit int64) error {
	return inOwnDir("clear", dir, name, func(dirfd int) error {
		// Threat: the user's own mount, as for ReadShared. A lease is none: only the file's owner could take one.
		pinned, st, err := pin(dirfd, name)
		if err != nil {
			return err
		}
		defer unix.Close(pinned)
		if err := checkMade(st, 0); err != nil || st.Blocks*512 <= limit {
			return err
		}
		fd, err := openPinned(pinned, unix.O_WRONLY)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return retry(func() error { return unix.Ftruncate(fd, 0) })
	})
}
