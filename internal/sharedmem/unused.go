package sharedmem

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"bookend/internal/child"
	"bookend/internal/leftover"
)

// Search asks which files, of these inodes, no process uses.
type Search struct {
	Place  Place    `json:"place"`
	Device uint64   `json:"device"`
	Files  []uint64 `json:"files"` // sorted
}

// Unused returns the inodes of those of the files that no process has open or mapped, in whichever mount namespace, and
// no message between processes carries. A file that cannot be examined counts as used.
var Unused = child.NewOperation("shared-memory", Search.unused)

func (s Search) unused() (unused []uint64, err error) {
	dir, device, err := s.Place.open()
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	files, _, err := s.Place.files()
	for _, f := range files {
		_, is := slices.BinarySearch(s.Files, f.ID)
		if is && device == s.Device && s.isUnused(int(dir.Fd()), f) {
			unused = append(unused, f.ID)
		}
	}
	return unused, err
}

// isUnused asks the kernel for a lease to write the file. It grants one only if the file is not open anywhere else, and
// a mapping counts as open; before Linux 5.3 it grants none on a tmpfs. Meanwhile an open waits, some microseconds.
func (s Search) isUnused(dir int, f leftover.Item) bool {
	// Threat: another file, a pipe or a link under the name by now. Nothing but the very file is opened, through the
	// descriptor that shows which it is; a lease of the user's own refuses that instead of delaying it.
	path, err := unix.Openat(dir, f.Name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(path)
	var st unix.Stat_t
	err = unix.Fstat(path, &st)
	if err != nil || st.Ino != f.ID || st.Dev != s.Device || st.Mode&unix.S_IFMT != unix.S_IFREG ||
		st.Uid != s.Place.UID {
		return false
	}
	itself := fmt.Sprintf("%s/self/fd/%d", s.Place.Proc, path)
	fd, err := unix.Open(itself, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd) // ends the lease
	_, err = unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_WRLCK)
	return err == nil
}
