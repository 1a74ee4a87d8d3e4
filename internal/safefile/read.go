package safefile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// maxLinks bounds the number of symbolic links followed, as the kernel does (MAXSYMLINKS).
const maxLinks = 40

// walk resolves a path one component at a time, from the root or the working directory, and opens nothing (O_PATH). It
// calls check for each component, including symbolic links, and follows the links that pass.
//
// Threat: other users own directories on the path, or may write to them. Each name is looked up in the descriptor of
// the directory before it, so nothing can be exchanged between check and use.
func walk(path string, check func(path string, st unix.Stat_t) error) (fd int, st unix.Stat_t, err error) {
	fd, at, links := unix.AT_FDCWD, "", 0
	rest := steps(path)
	if !filepath.IsAbs(path) {
		rest = append([]string{"."}, rest...)
	}
	for len(rest) > 0 {
		name, next := rest[0], filepath.Join(at, rest[0])
		rest = rest[1:]
		if name == "/" {
			next = name
		}
		found, now, target, err := step(fd, name)
		if err == nil {
			err = check(next, now)
		}
		if target != "" {
			links++
		}
		if err == nil && links > maxLinks {
			err = &fs.PathError{Op: "check", Path: next, Err: unix.ELOOP}
		}
		if path := new(fs.PathError); errors.As(err, &path) {
			path.Op, path.Path = "check", next
		}
		switch {
		case err != nil:
			closeAll(found, fd)
			return -1, st, err
		case target != "":
			closeAll(found)
			rest = append(steps(target), rest...)
		default:
			closeAll(fd)
			fd, at, st = found, next, now
		}
	}
	return fd, st, nil
}

// steps returns the names in a path; the first is "/" if the path is absolute.
func steps(path string) []string {
	names := slices.DeleteFunc(strings.Split(path, "/"), func(name string) bool { return name == "" || name == "." })
	if filepath.IsAbs(path) {
		names = append([]string{"/"}, names...)
	}
	return names
}

// step looks up one name, and reads the target if the name is a symbolic link.
func step(dirfd int, name string) (fd int, st unix.Stat_t, target string, err error) {
	fd, err = openAt(dirfd, name, unix.O_PATH|unix.O_DIRECTORY, 0) // O_DIRECTORY triggers an automount
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		fd, err = openAt(dirfd, name, unix.O_PATH, 0)
	}
	if err == nil {
		st, err = stat(fd)
	}
	if err != nil || st.Mode&unix.S_IFMT != unix.S_IFLNK {
		return fd, st, "", err
	}
	buffer, n := make([]byte, unix.PathMax), 0
	err = retry(func() (err error) {
		n, err = unix.Readlinkat(fd, "", buffer) // the link that was looked up
		return err
	})
	return fd, st, string(buffer[:max(n, 0)]), err
}

func closeAll(fds ...int) {
	for _, fd := range fds {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

// Trusted returns ErrUntrusted unless path, which is absolute, and every directory on it, behind symbolic links too, is
// owned by root and writable only by root: no other user could have written the file or put it there.
func Trusted(path string) error {
	fd, _, err := trusted(path)
	closeAll(fd)
	return err
}

// ReadTrusted returns the content of a trusted regular file of at most limit bytes (else ErrTooLarge).
func ReadTrusted(path string, limit int64) (content []byte, err error) {
	fd, st, err := trusted(path)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, fmt.Errorf("read %q: %w: not a regular file", path, ErrUntrusted)
	}
	if content, err = readPinned(fd, limit); err != nil {
		return nil, fmt.Errorf("read %q: %w", path, err)
	}
	return content, nil
}

func trusted(path string) (fd int, st unix.Stat_t, err error) {
	if !filepath.IsAbs(path) {
		return -1, st, fmt.Errorf("check %q: %w: not an absolute path", path, ErrUntrusted)
	}
	return walk(path, func(at string, st unix.Stat_t) error {
		// A link's own owner does not matter: only root could have put it into a trusted directory.
		if st.Mode&unix.S_IFMT == unix.S_IFLNK {
			return nil
		}
		return trustedMode(at, st)
	})
}

// Untrusted is the file or directory on a path that a user other than root could have written or put there.
type Untrusted struct {
	Path string
	UID  uint32
	Mode uint32 // permission bits
	Why  string
}

func (u *Untrusted) Error() string {
	return fmt.Sprintf("check %q: %v: %s", u.Path, ErrUntrusted, u.Why)
}
func (u *Untrusted) Unwrap() error { return ErrUntrusted }

func trustedMode(path string, st unix.Stat_t) error {
	u := Untrusted{Path: path, UID: st.Uid, Mode: st.Mode & 0o7777}
	switch kind := st.Mode & unix.S_IFMT; {
	case kind != unix.S_IFREG && kind != unix.S_IFDIR:
		u.Why = "neither file nor directory"
	case st.Uid != 0:
		u.Why = fmt.Sprintf("owner is %d, not root", st.Uid)
	case st.Mode&writableByOthers != 0:
		u.Why = fmt.Sprintf("mode %#o lets others write", u.Mode)
	default:
		return nil
	}
	return &u
}

// ClosedDir is a directory on a path that users cannot pass unless they are its owner or in its group.
type ClosedDir struct {
	Path string
	Mode uint32 // permission bits
	GID  uint32
}

func (c *ClosedDir) Error() string {
	return fmt.Sprintf("check %q: mode %#o keeps users out", c.Path, c.Mode)
}

// Passable returns *ClosedDir if a directory on the path, behind symbolic links too, keeps users out.
func Passable(path string) error {
	fd, _, err := walk(path, func(at string, st unix.Stat_t) error {
		if st.Mode&unix.S_IFMT == unix.S_IFDIR && st.Mode&0o001 == 0 {
			return &ClosedDir{Path: at, Mode: st.Mode & 0o7777, GID: st.Gid}
		}
		return nil
	})
	closeAll(fd)
	return err
}

// Read returns a file in an own directory: regular, one link, owned by this user or root, at most limit bytes.
func Read(dir, name string, limit int64) (content []byte, err error) {
	err = inOwnDir("read", dir, name, func(dirfd int) error {
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

// ReadShared returns a file that Share made for a user: regular, with one link, owned by root or this process's user,
// of at most limit bytes (else ErrTooLarge); anything else is ErrNotOurs. The content is the user's claim.
//
// Threat: the user mounts a FUSE file system over the file, whose server delays its answers or makes the file grow.
// Nothing is opened for reading, or even asked for its attributes, before its mount is known to be the directory's.
func ReadShared(dir, name string, limit int64) (content []byte, err error) {
	err = inOwnDir("read", dir, name, func(dirfd int) error {
		fd, st, err := pin(dirfd, name)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err := checkMade(st, 0); err != nil {
			return err
		}
		content, err = readPinned(fd, limit)
		return err
	})
	return content, err
}

// pin returns a descriptor of an entry without opening it (O_PATH); one on another mount than its directory is refused.
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

func readPinned(pinned int, limit int64) ([]byte, error) {
	fd, err := openPinned(pinned, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	return readAll(descriptor(fd), limit)
}

// openPinned opens the file that pin found: the link in /proc leads to that file, not to a path.
func openPinned(pinned, flags int) (int, error) {
	// O_NOFOLLOW would refuse the link in /proc, so openAt cannot be used.
	path := "/proc/self/fd/" + strconv.Itoa(pinned)
	fd := -1
	err := retry(func() (err error) {
		fd, err = unix.Open(path, flags|unix.O_CLOEXEC|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
		return err
	})
	switch {
	case errors.Is(err, unix.EWOULDBLOCK): // a regular file has no other reason; this is not a system error
		return -1, fmt.Errorf("open: %w: its owner holds a lease on it", ErrNotOurs)
	case err != nil:
		return -1, fmt.Errorf("open: %w", err)
	}
	return fd, nil
}

// descriptor is an io.Reader without Go's poller, which costs three more system calls for each file.
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

// sameMount compares the mounts of two descriptors without a request to the file system.
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

// mountID returns the mnt_id of a descriptor (proc(5), since Linux 3.15; statx has it only since 5.8).
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

// ReadGiven returns the content of a regular file at a given path, not of a symbolic link: its owner's claim.
func ReadGiven(path string, limit int64) ([]byte, error) {
	// Threat: a FIFO or a device put there, or a link to another user's secret: openAt neither waits nor follows links.
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
