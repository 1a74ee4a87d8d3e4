package safefile

import (
	"errors"
	"io/fs"
	"path/filepath"
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
	w := way{fd: -1, check: check}
	if err = w.begin(path); err != nil {
		return -1, st, err
	}
	for rest := strings.Split(path, "/"); len(rest) > 0 && err == nil; {
		name := rest[0]
		rest = rest[1:]
		if name == "" || name == "." {
			continue
		}
		var target string
		if target, err = w.step(name); target != "" {
			rest = append(strings.Split(target, "/"), rest...)
		}
	}
	if err != nil {
		_ = unix.Close(w.fd)
		return -1, st, err
	}
	return w.fd, w.st, nil
}

// way is how far walk has come.
type way struct {
	fd    int
	at    string // its path, without links
	st    unix.Stat_t
	links int
	check func(string, unix.Stat_t) error
}

// begin goes to the root, or for a relative path to the working directory or where the way is already.
func (w *way) begin(path string) error {
	start := "/"
	if !filepath.IsAbs(path) {
		if start = "."; w.fd >= 0 {
			return nil
		}
	}
	fd, err := openAt(unix.AT_FDCWD, start, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	if w.fd >= 0 {
		_ = unix.Close(w.fd)
	}
	w.fd, w.at = fd, start
	if w.st, err = stat(fd); err == nil {
		err = w.check(start, w.st)
	}
	if err != nil {
		_ = unix.Close(fd)
		w.fd = -1
	}
	return err
}

// step goes on by one name, or returns where a link leads.
func (w *way) step(name string) (target string, err error) {
	next := filepath.Join(w.at, name)
	fd, err := openAt(w.fd, name, unix.O_PATH|unix.O_DIRECTORY, 0) // which has a file system mounted on demand
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		fd, err = openAt(w.fd, name, unix.O_PATH, 0)
	}
	if err != nil {
		return "", &fs.PathError{Op: "check", Path: next, Err: errors.Unwrap(err)}
	}
	st, err := stat(fd)
	if err == nil {
		err = w.check(next, st)
	}
	if err == nil && st.Mode&unix.S_IFMT != unix.S_IFLNK {
		_ = unix.Close(w.fd)
		w.fd, w.at, w.st = fd, next, st
		return "", nil
	}
	defer unix.Close(fd)
	if err != nil {
		return "", err
	}
	if w.links++; w.links > maxLinks {
		return "", &fs.PathError{Op: "check", Path: next, Err: unix.ELOOP}
	}
	buffer, n := make([]byte, unix.PathMax), 0
	err = retry(func() (err error) {
		n, err = unix.Readlinkat(fd, "", buffer) // the very link that was checked
		return err
	})
	if err != nil {
		return "", &fs.PathError{Op: "read link", Path: next, Err: err}
	}
	target = string(buffer[:n])
	return target, w.begin(target)
}
