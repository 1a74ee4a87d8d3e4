package safefile

import (
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Trusted refuses (ErrUntrusted) a file or folder that anybody but root could have written or put there: it and
// every folder on the way, behind each symbolic link too, must be root's and writable by nobody else. A sticky
// world-writable folder such as /tmp is no exception. Relative paths are refused.
func Trusted(path string) error {
	fd, _, err := trusted(path)
	if err == nil {
		_ = unix.Close(fd)
	}
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
		// A link's own owner says nothing: only root could have put it into a trusted folder.
		if st.Mode&unix.S_IFMT == unix.S_IFLNK {
			return nil
		}
		return trustedMode(at, st)
	})
}

// Untrusted is what stops the way to a path: anybody but root could have written it, or put it there.
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
