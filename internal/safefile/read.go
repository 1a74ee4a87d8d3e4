package safefile

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// Read returns a file of an own folder: regular, one link, of at most limit bytes (else ErrTooLarge), and
// written by this user or root (else ErrNotOurs).
func Read(dir, name string, limit int64) (content []byte, err error) {
	err = inOwnFolder(dir, name, func(dirfd int) error {
		// Threat: none from users, who cannot write here; damage and mistakes are refused all the same.
		fd, err := openAt(dirfd, name, unix.O_RDONLY, 0)
		if err != nil {
			return err
		}
		f := os.NewFile(uintptr(fd), name)
		defer f.Close()
		if _, err := checkOwnFile(fd); err != nil {
			return err
		}
		content, err = readAll(f, limit)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read %q: %w", filepath.Join(dir, name), err)
	}
	return content, nil
}

// ReadForeign returns the file name of a folder that belongs to a user, or was never handed to him: regular,
// one link, the user's own, of at most limit bytes (else ErrTooLarge); anything else is ErrNotOurs. The folder
// above dir must be an own one. The content is the user's claim.
//
// Threat: the user puts a link, a FIFO, a device, another's file there, or mounts a FUSE file system over
// folder or file, whose server answers when it likes. Nothing is opened for reading, or even asked for its
// attributes, before its mount is known to be the parent's.
func ReadForeign(dir, name string, uid uint32, limit int64) (content []byte, err error) {
	err = inOwnFolder(filepath.Dir(dir), filepath.Base(dir), func(parent int) error {
		content, err = readForeign(parent, filepath.Base(dir), name, uid, limit)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read %q: %w", filepath.Join(dir, name), err)
	}
	return content, nil
}

func readForeign(parent int, folder, name string, uid uint32, limit int64) ([]byte, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	dirfd, st, err := pin(parent, folder)
	if err != nil {
		return nil, err
	}
	defer unix.Close(dirfd)
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || st.Uid != uid && st.Uid != 0 {
		return nil, fmt.Errorf("%w: folder's owner %d, mode %#o", ErrNotOurs, st.Uid, st.Mode)
	}
	fd, st, err := pin(dirfd, name)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink != 1 || st.Uid != uid {
		return nil, fmt.Errorf("%w: owner %d, mode %#o, %d links", ErrNotOurs, st.Uid, st.Mode, st.Nlink)
	}
	return readPinned(fd, limit)
}

// pin gets hold of an entry without opening it (O_PATH), and refuses one on another mount than its folder.
func pin(dirfd int, name string) (fd int, st unix.Stat_t, err error) {
	fd, err = openAt(dirfd, name, unix.O_PATH, 0)
	if err != nil {
		return -1, st, err
	}
	err = sameMount(dirfd, fd)
	if err == nil {
		st, err = stat(fd)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, st, err
	}
	return fd, st, nil
}

// readPinned opens for reading the very file that pin has found: the link in /proc names a file, not a path.
func readPinned(pinned int, limit int64) ([]byte, error) {
	// O_NOFOLLOW would refuse the link in /proc, so openAt cannot be used. A leased file gives EWOULDBLOCK.
	path := "/proc/self/fd/" + strconv.Itoa(pinned)
	fd := -1
	err := retry(func() (err error) {
		fd, err = unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	return readAll(f, limit)
}

// sameMount compares mounts without asking the file system anything.
func sameMount(a, b int) error {
	ma, err := mountID(a)
	if err != nil {
		return err
	}
	mb, err := mountID(b)
	if err != nil {
		return err
	}
	if ma != mb {
		return fmt.Errorf("%w: another file system is mounted there", ErrNotOurs)
	}
	return nil
}

// mountID is the mnt_id of a descriptor (proc(5), since Linux 3.15; statx has it since 5.8 only).
func mountID(fd int) (int, error) {
	info, err := os.ReadFile("/proc/self/fdinfo/" + strconv.Itoa(fd))
	if err != nil {
		return 0, fmt.Errorf("find mount: %w", err)
	}
	for line := range bytes.Lines(info) {
		if id, ok := bytes.CutPrefix(line, []byte("mnt_id:")); ok {
			return strconv.Atoi(string(bytes.TrimSpace(id)))
		}
	}
	return 0, errors.New("find mount: no mnt_id in fdinfo")
}

// ReadGiven returns a file that somebody has asked for, in whatever folder: regular, of at most limit bytes (else
// ErrTooLarge), no link. Its content is its owner's claim.
func ReadGiven(path string, limit int64) ([]byte, error) {
	return readChecked(path, path, limit, func(st unix.Stat_t) error { return regular(path, st, ErrNotOurs) })
}

// readChecked opens a file, and reads what passes the check: the very file that was checked. In errors it is shown as
// asked for.
func readChecked(path, asked string, limit int64, check func(unix.Stat_t) error) ([]byte, error) {
	// Threat: a FIFO or a device put there, or a link to another's secret: openAt neither waits nor follows.
	fd, err := openAt(unix.AT_FDCWD, path, unix.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), asked)
	defer f.Close()
	st, err := stat(fd)
	if err == nil {
		err = check(st)
	}
	if err != nil {
		return nil, err
	}
	b, err := readAll(f, limit)
	if err != nil {
		return nil, fmt.Errorf("read %q: %w", asked, err)
	}
	return b, nil
}

// regular gives the error otherwise for what is no regular file.
func regular(path string, st unix.Stat_t, otherwise error) error {
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return fmt.Errorf("read %q: %w: not a regular file", path, otherwise)
	}
	return nil
}
