package joblog

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// ErrNotFile: the process's output goes to no file that has a name: a pipe, a device, a removed file.
var ErrNotFile = errors.New("output is no file")

// Locate finds the file behind a descriptor of a process under proc ("/proc"). It asks the file system, which
// may hang, so it belongs into a child.
func Locate(proc string, pid, fd int) (Target, error) {
	link := filepath.Join(proc, strconv.Itoa(pid), "fd", strconv.Itoa(fd))
	path, err := os.Readlink(link)
	if err != nil {
		return Target{}, fmt.Errorf("locate output of process %d: %w", pid, err)
	}
	// A name with a line feed or of another character set would not survive its way through JSON unchanged.
	if !filepath.IsAbs(path) || strings.HasSuffix(path, " (deleted)") || !utf8.ValidString(path) {
		return Target{}, fmt.Errorf("locate output of process %d: %w: %.100q", pid, ErrNotFile, path)
	}
	var st unix.Stat_t
	if err := unix.Stat(link, &st); err != nil { // through the descriptor: the file itself, whatever its name
		return Target{}, fmt.Errorf("locate output of process %d: %w", pid, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink == 0 {
		return Target{}, fmt.Errorf("locate output of process %d: %w: mode %#o", pid, ErrNotFile, st.Mode)
	}
	t := Target{Path: path, Dev: st.Dev, Ino: st.Ino}
	if err := t.check(); err != nil {
		return Target{}, fmt.Errorf("locate output of process %d: %w", pid, err)
	}
	return t, nil
}
