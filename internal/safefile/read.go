package safefile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Read returns a file of an own folder: regular, one link, of at most limit bytes (else ErrTooLarge), and
// written by this user or root (else ErrNotOurs).
func Read(dir, name string, limit int64) (content []byte, err error) {
	err = inOwnFolder("read", dir, name, func(dirfd int) error {
		fd, _, err := openOwn(dirfd, name, unix.O_RDONLY, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		content, err = readAll(descriptor(fd), limit)
		return err
	})
	return content, err
}

// ReadForeign returns the file name of an own folder that belongs to a user: regular, one link, the user's own, of at
// most limit bytes (else ErrTooLarge); anything else is ErrNotOurs. The content is the user's claim.
//
// Threat: the user mounts a FUSE file system over the file, whose server answers when it likes, takes a lease on it,
// or makes it grow. Nothing is opened for reading, or even asked for its attributes, before its mount is known to be
// the folder's.
func ReadForeign(dir, name string, uid uint32, limit int64) (content []byte, err error) {
	err = inOwnFolder("read", dir, name, func(dirfd int) error {
		fd, st, err := pin(dirfd, name)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink != 1 || st.Uid != uid {
			return fmt.Errorf("%w: owner %d, mode %#o, %d links", ErrNotOurs, st.Uid, st.Mode, st.Nlink)
		}
		content, err = readPinned(fd, limit)
		return err
	})
	return content, err
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
	defer unix.Close(fd)
	return readAll(descriptor(fd), limit)
}

// descriptor reads without Go's poller, which takes three more system calls for each file.
type descriptor int

func (d descriptor) Read(b []byte) (n int, err error) {
	err = retry(func() (err error) {
		n, err = unix.Read(int(d), b)
		return err
	})
	if n == 0 && err == nil {
		err = io.EOF
	}
	return max(n, 0), err
}

// sameMount compares mounts without asking the file system anything.
func sameMount(a, b int) error {
	ma, errA := mountID(a)
	mb, errB := mountID(b)
	if err := errors.Join(errA, errB); err != nil {
		return err
	}
	if ma != mb {
		return fmt.Errorf("%w: another file system is mounted there", ErrNotOurs)
	}
	return nil
}

// mountID is the mnt_id of a descriptor (proc(5), since Linux 3.15; statx has it since 5.8 only).
func mountID(fd int) (id int, err error) {
	info, err := os.ReadFile("/proc/self/fdinfo/" + strconv.Itoa(fd))
	if err == nil {
		_, after, _ := strings.Cut(string(info), "\nmnt_id:")
		_, err = fmt.Sscan(after, &id)
	}
	if err != nil {
		return 0, fmt.Errorf("find mount: %w", err)
	}
	return id, nil
}

// ReadGiven returns a file that somebody has asked for, in whatever folder: regular, of at most limit bytes (else
// ErrTooLarge), no link. Its content is its owner's claim.
func ReadGiven(path string, limit int64) ([]byte, error) {
	// Threat: a FIFO or a device put there, or a link to another's secret: openAt neither waits nor follows.
	fd, err := openAt(unix.AT_FDCWD, path, unix.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	st, err := stat(fd)
	if err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
		err = fmt.Errorf("%w: not a regular file", ErrNotOurs)
	}
	var content []byte
	if err == nil {
		content, err = readAll(descriptor(fd), limit)
	}
	if err != nil {
		return nil, fmt.Errorf("read %q: %w", path, err)
	}
	return content, nil
}
