// Package joblog reaches the file that holds a job's own output: it finds out where it is, carries that from
// the job's start to its end, reads its end, and adds a text to it.
//
// Paths, devices and inodes are the user's claims. Append and Tail are safe because their process has become that
// user before; what they check beyond that only keeps them from the wrong file.
package joblog

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// MaxText is the largest text Append writes: a start and an end report of 20 lines of 80 columns, with room.
	MaxText = 8 << 10
	maxPath = unix.PathMax - 1 // without its NUL
)

// Target is the file a job writes to.
type Target struct {
	Path string `json:"path"`
	// Dev and Ino are those of the file when the job began; both 0 when nobody looked.
	Dev uint64 `json:"dev,omitempty"`
	Ino uint64 `json:"ino,omitempty"`
}

// Why a text was not appended, or an output not read, short enough to count by.
const (
	missing    = "missing"     // no such file, as for srun, salloc and private temporary folders
	notRegular = "not-regular" // /dev/null, a pipe, a symbolic link
	notOwner   = "not-owner"
	links      = "links"   // more than one name
	changed    = "changed" // another file than the one the job wrote to
	readonly   = "readonly"
	full       = "full"
	permission = "permission"
	other      = "error"
)

// Refused says why a text was not appended, or an output not read. None of the reasons is a fault of the node.
type Refused struct {
	Why string // one of the reasons above
	Err error
}

func (r *Refused) Error() string { return fmt.Sprintf("job's output: %s: %v", r.Why, r.Err) }

// Unwrap gives the system's error.
func (r *Refused) Unwrap() error { return r.Err }

// Reason is the counter's name for an error of Append or Tail: missing, not-regular, not-owner, links, changed,
// readonly, full, permission or error; "" for nil.
func Reason(err error) string {
	var r *Refused
	switch {
	case err == nil:
		return ""
	case errors.As(err, &r):
		return r.Why
	}
	return other
}

// IsReason reports whether a text is one that Reason can return for an error.
func IsReason(text string) bool {
	all := []string{missing, notRegular, notOwner, links, changed, readonly, full, permission, other}
	return slices.Contains(all, text)
}

// Append adds text to the target, which must be an existing regular file of uid's with one name. The process
// must have become that user (child.Become). An error is a *Refused; after "full" a part may be written.
func Append(t Target, uid uint32, text []byte) error {
	if len(text) > MaxText {
		return &Refused{other, fmt.Errorf("%d bytes of text", len(text))}
	}
	f, _, err := t.open(uid, unix.O_WRONLY|unix.O_APPEND)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return refusal(errors.Join(err, f.Close())) // network file systems report a full disk on closing
}

// open opens the target, if it is what a job's output can be. An error is a *Refused.
func (t Target) open(uid uint32, access int) (f *os.File, st unix.Stat_t, err error) {
	if err := t.check(); err != nil {
		return nil, st, &Refused{other, err}
	}
	// Threat: the user names any file, and swaps it for a link, a FIFO or a device meanwhile. Only files that he could
	// read or write himself can be opened; none is made, followed, waited for, or becomes our terminal, and only one
	// that he owns, under no other name, is used.
	const flags = unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC
	fd, err := -1, error(unix.EINTR)
	for errors.Is(err, unix.EINTR) {
		fd, err = unix.Open(t.Path, access|flags, 0)
	}
	if err != nil {
		return nil, st, refusal(err)
	}
	f = os.NewFile(uintptr(fd), t.Path)
	if err = unix.Fstat(fd, &st); err == nil {
		if why := t.differs(st, uid); why != "" {
			err = &Refused{why, fmt.Errorf("owner %d, mode %#o, %d links, device %d, inode %d",
				st.Uid, st.Mode, st.Nlink, st.Dev, st.Ino)}
		}
	}
	if err != nil {
		f.Close()
		return nil, st, refusal(err)
	}
	return f, st, nil
}

// refusal is an error as a *Refused, nil for none.
func refusal(err error) error {
	if r := (*Refused)(nil); err == nil || errors.As(err, &r) {
		return err
	}
	var errno unix.Errno
	errors.As(err, &errno)
	return &Refused{cmp.Or(reasons[errno], other), err}
}

// differs names what the opened file has against it, "" for nothing.
func (t Target) differs(st unix.Stat_t, uid uint32) string {
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return notRegular
	case st.Uid != uid:
		return notOwner
	case st.Nlink != 1:
		return links
	case t.Ino != 0 && (t.Ino != st.Ino || t.Dev != st.Dev):
		return changed
	}
	return ""
}

func (t Target) check() error {
	switch {
	case !filepath.IsAbs(t.Path):
		return fmt.Errorf("path %.100q is not absolute", t.Path)
	case len(t.Path) > maxPath:
		return fmt.Errorf("path of %d bytes", len(t.Path))
	case strings.ContainsRune(t.Path, 0):
		return errors.New("path with a NUL")
	}
	return nil
}

// reasons are the system's errors that have a reason of their own.
var reasons = map[unix.Errno]string{
	unix.ENOENT: missing, unix.ENOTDIR: missing, unix.ESTALE: missing, unix.ENAMETOOLONG: missing,
	// ELOOP: a symbolic link. ENXIO: a FIFO that nobody reads, a socket, a device that is not there.
	unix.ELOOP: notRegular, unix.EISDIR: notRegular, unix.ENXIO: notRegular, unix.ENODEV: notRegular,
	unix.EROFS: readonly, unix.EACCES: permission, unix.EPERM: permission,
	unix.ENOSPC: full, unix.EDQUOT: full, unix.EFBIG: full,
}
