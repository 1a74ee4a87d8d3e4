package inventory

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// folder is a folder of the kernel's that is open: below it names are found sooner than by their paths, and of a node
// of many processes there are thousands.
type folder int

// open opens a folder.
// Threat: none by the name, /proc and /sys are the kernel's.
func open(parts ...string) (folder, error) {
	path := filepath.Join(parts...)
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return folder(fd), nil
}

func (f folder) close() { _ = unix.Close(int(f)) }

// names are those of what is in it.
func (f folder) names() (names []string, err error) {
	var some [maxFile]byte
	for {
		n, err := unix.ReadDirent(int(f), some[:])
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return nil, fmt.Errorf("list a directory: %w", err)
		case n == 0:
			return names, nil
		default:
			_, _, names = unix.ParseDirent(some[:n], -1, names)
		}
	}
}

// read reads a file of it, without the newline at its end.
// Threat: none by content, it is the kernel's; a driver in trouble may answer without end, and a configured path may
// lead to a pipe: opening waits for nothing and follows no link.
func (f folder) read(name string) (string, error) {
	fd, err := unix.Openat(int(f), name, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", &fs.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(fd)
	var text [maxFile]byte
	for size := 0; size < len(text); {
		n, err := unix.Read(fd, text[size:])
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return "", &fs.PathError{Op: "read", Path: name, Err: err}
		case n == 0:
			return strings.TrimSpace(string(text[:size])), nil
		default:
			size += n
		}
	}
	return "", fmt.Errorf("read %q: more than %d bytes", name, maxFile)
}

// leads reports whether a link of it leads to a file in a folder of this name.
func (f folder) leads(name, to string) bool {
	var target [256]byte // a longer one is no device node's
	n, err := unix.Readlinkat(int(f), name, target[:])
	if err != nil || n == len(target) {
		return false
	}
	return filepath.Base(filepath.Dir(string(target[:n]))) == to
}

// read reads a file by its path.
func read(parts ...string) (string, error) {
	return folder(unix.AT_FDCWD).read(filepath.Join(parts...))
}

// list names what is in a folder.
func list(parts ...string) ([]string, error) {
	f, err := open(parts...)
	if err != nil {
		return nil, err
	}
	defer f.close()
	return f.names()
}
