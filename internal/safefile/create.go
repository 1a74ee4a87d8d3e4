package safefile

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Create writes a file that somebody has asked for by a path of his, in whatever folder: readable by this process's
// user alone. One that is there already is left alone (fs.ErrExist), or with over replaced if it is a regular file.
//
// Threat: other users own folders on the way, or may write to them. Symbolic links count only if they are root's or
// this user's own; and the file is made anew, never opened.
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
	dirfd, _, err := walk(folder, ownLinks)
	if err != nil {
		return err
	}
	defer unix.Close(dirfd)
	var st unix.Stat_t
	err = retry(func() error { return unix.Fstatat(dirfd, name, &st, unix.AT_SYMLINK_NOFOLLOW) })
	switch {
	case errors.Is(err, unix.ENOENT):
	case err != nil:
		return err
	case !over:
		return fs.ErrExist
	case st.Mode&unix.S_IFMT != unix.S_IFREG: // a device or a link that root was told to overwrite by mistake
		return fmt.Errorf("%w: what is there is no regular file", ErrNotOurs)
	}
	return replace(dirfd, name, data, attributes{mode: 0o600})
}

// ownLinks refuses links that somebody else has put on the way.
func ownLinks(path string, st unix.Stat_t) error {
	if st.Mode&unix.S_IFMT == unix.S_IFLNK && !ours(st.Uid) {
		return fmt.Errorf("follow link %q: %w: it belongs to user %d", path, ErrUntrusted, st.Uid)
	}
	return nil
}
