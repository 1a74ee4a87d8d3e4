package safefile

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// maxLinks bounds the symbolic links followed, as the kernel does (MAXSYMLINKS).
const maxLinks = 40

// Trusted refuses (ErrUntrusted) a file or folder that anybody but root could have written or put there: it and
// every folder on the way, behind each symbolic link too, must be root's and writable by nobody else. A sticky
// world-writable folder such as /tmp is no exception. Relative paths are refused.
//
// Looking top down is no race: in a folder that has passed only root can change what is looked at next.
func Trusted(path string) error {
	_, err := resolve(path)
	return err
}

// ReadTrusted returns the content of a trusted regular file of at most limit bytes (else ErrTooLarge).
func ReadTrusted(path string, limit int64) ([]byte, error) {
	real, err := resolve(path)
	if err != nil {
		return nil, err
	}
	// Threat: a link or FIFO put in the place of the file; the checks are repeated on the descriptor.
	return readChecked(real, path, limit, func(st unix.Stat_t) error {
		if err := trustedMode(path, st); err != nil {
			return err
		}
		return regular(path, st, ErrUntrusted)
	})
}

// resolve returns path without symbolic links when all of it is trusted.
func resolve(path string) (string, error) {
	if !filepath.IsAbs(path) {
		return "", fmt.Errorf("check %q: %w: not an absolute path", path, ErrUntrusted)
	}
	if _, err := look("/"); err != nil {
		return "", err
	}
	real, links := "/", 0
	for rest := strings.Split(path, "/"); len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		if name == "" { // Join below does the rest: real has no links, so ".." is its text's parent
			continue
		}
		next := filepath.Join(real, name)
		target, err := look(next)
		if err != nil {
			return "", err
		}
		if target == "" {
			real = next
			continue
		}
		if links++; links > maxLinks {
			return "", fmt.Errorf("check %q: %w: too many symbolic links", path, ErrUntrusted)
		}
		if filepath.IsAbs(target) {
			real = "/"
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return real, nil
}

// look returns the target of a symbolic link, and "" for anything else that is trusted. A link's own owner says
// nothing: only root could have put it into a trusted folder.
func look(path string) (target string, err error) {
	var st unix.Stat_t
	if err := retry(func() error { return unix.Lstat(path, &st) }); err != nil {
		return "", &os.PathError{Op: "check", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFLNK {
		return "", trustedMode(path, st)
	}
	target, err = os.Readlink(path)
	if err != nil {
		return "", fmt.Errorf("check: %w", err)
	}
	return target, nil
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
		u.Why = "neither file nor folder"
	case st.Uid != 0:
		u.Why = fmt.Sprintf("owner is %d, not root", st.Uid)
	case st.Mode&writableByOthers != 0:
		u.Why = fmt.Sprintf("mode %#o lets others write", u.Mode)
	default:
		return nil
	}
	return &u
}
