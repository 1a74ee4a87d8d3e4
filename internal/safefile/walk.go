package safefile

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// maxLinks bounds the symbolic links followed, as the kernel does (MAXSYMLINKS).
const maxLinks = 40

// walk finds a path step by step from the root or the working directory, and opens nothing (O_PATH). Everything on the
// way is checked, links too, which are followed where they pass.
//
// Threat: other users own folders on the way, or may write to them. Each is looked up in the one before it, so that
// none is changed between check and use.
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

// steps are the names on a path, the first of them "/" where it begins there.
func steps(path string) []string {
	names := slices.DeleteFunc(strings.Split(path, "/"), func(name string) bool { return name == "" || name == "." })
	if filepath.IsAbs(path) {
		names = append([]string{"/"}, names...)
	}
	return names
}

// step looks one name up, and reads where it leads if it is a link.
func step(dirfd int, name string) (fd int, st unix.Stat_t, target string, err error) {
	fd, err = openAt(dirfd, name, unix.O_PATH|unix.O_DIRECTORY, 0) // which has a file system mounted on demand
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
		n, err = unix.Readlinkat(fd, "", buffer) // the very link that was looked up
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
