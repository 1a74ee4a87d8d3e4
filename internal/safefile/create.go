package safefile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Create writes a file that somebody has asked for by a path of his, in whatever folder: readable by this process's
// user alone. One that is there already is left alone (fs.ErrExist), or with over replaced if it is a regular file.
//
// Threat: other users own folders on the way, or may write to them. Each is opened in the one before it, so that none
// is changed between look and use; symbolic links count only if they are root's or this user's own; and the file is
// made anew, never opened.
func Create(path string, data []byte, over bool) error {
	if err := create(path, data, over); err != nil {
		return fmt.Errorf("write %q: %w", path, err)
	}
	return nil
}

func create(path string, data []byte, over bool) error {
	folder, name := filepath.Split(path)
	if err := checkName(name); err != nil {
		return err
	}
	dirfd, err := openFolder(folder)
	if err != nil {
		return err
	}
	defer unix.Close(dirfd)
	if over {
		return replaceRegular(dirfd, name, data)
	}
	fd, err := openAt(dirfd, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), name)
	err = fill(f, data, attributes{mode: 0o600})
	if closing := f.Close(); err == nil {
		err = closing
	}
	if err != nil {
		_ = unix.Unlinkat(dirfd, name, 0)
	}
	return err
}

// replaceRegular puts a file in the place of a regular one, or of none: not of a device or a link that root was told to
// overwrite by mistake.
func replaceRegular(dirfd int, name string, data []byte) error {
	var st unix.Stat_t
	err := retry(func() error { return unix.Fstatat(dirfd, name, &st, unix.AT_SYMLINK_NOFOLLOW) })
	switch {
	case errors.Is(err, unix.ENOENT):
	case err != nil:
		return err
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return fmt.Errorf("%w: what is there is no regular file", ErrNotOurs)
	}
	temp, err := writeTemp(dirfd, data, attributes{mode: 0o600})
	if err != nil {
		return err
	}
	if err := retry(func() error { return unix.Renameat(dirfd, temp, dirfd, name) }); err != nil {
		_ = unix.Unlinkat(dirfd, temp, 0)
		return fmt.Errorf("rename: %w", err)
	}
	return nil
}

// openFolder opens a folder, step by step from the root or the working directory; an empty path is the latter.
func openFolder(path string) (int, error) {
	fd, err := openStart(path)
	if err != nil {
		return -1, err
	}
	links := 0
	for rest := strings.Split(path, "/"); len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		if name == "" || name == "." {
			continue
		}
		next, target, err := step(fd, name)
		if err == nil && target != "" {
			if links++; links > maxLinks {
				err = unix.ELOOP
			} else {
				rest = append(strings.Split(target, "/"), rest...)
				next = fd
				if filepath.IsAbs(target) {
					next, err = openStart(target)
				}
			}
		}
		if err != nil {
			_ = unix.Close(fd)
			return -1, err
		}
		if next != fd {
			_ = unix.Close(fd)
			fd = next
		}
	}
	return fd, nil
}

func openStart(path string) (int, error) {
	start := "."
	if filepath.IsAbs(path) {
		start = "/"
	}
	return openAt(unix.AT_FDCWD, start, unix.O_PATH|unix.O_DIRECTORY, 0)
}

// step opens the next folder of a path, or returns where a link leads.
func step(dirfd int, name string) (fd int, target string, err error) {
	fd, err = openAt(dirfd, name, unix.O_PATH, 0)
	if err != nil {
		return -1, "", err
	}
	st, err := stat(fd)
	if err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return fd, "", nil
	}
	switch {
	case err != nil:
	case st.Mode&unix.S_IFMT != unix.S_IFLNK:
		err = &os.PathError{Op: "open folder", Path: name, Err: unix.ENOTDIR}
	case !ours(st.Uid):
		err = fmt.Errorf("follow link %q: %w: it belongs to user %d", name, ErrUntrusted, st.Uid)
	default:
		target, err = readLink(fd)
	}
	_ = unix.Close(fd)
	return -1, target, err
}

// readLink reads the very link that a descriptor names.
func readLink(fd int) (string, error) {
	buffer := make([]byte, unix.PathMax)
	n := 0
	err := retry(func() (err error) {
		n, err = unix.Readlinkat(fd, "", buffer)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("read link: %w", err)
	}
	return string(buffer[:n]), nil
}
