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

// Searches returns the searches for remains, first in /dev/shm, then in each of the other directories.
func (p Place) Searches(now leftover.Listing, left leftover.Remains) []Search {
	all := []Search{{Place: p, Device: now.Device, Files: left.Inodes()}}
	for i, o := range left.Others {
		all = append(all, Search{Place: p.other(i), Device: now.Others[i].Device, Files: o.Inodes()})
	}
	return all
}

// Unused returns, for each search, the inodes of those of the files that no process has open or mapped, in whichever
// mount namespace, and no message between processes carries. A file that cannot be examined counts as used.
var Unused = child.NewOperation("shared-memory", func(all []Search) (unused [][]uint64, err error) {
	for _, s := range all {
		var files []uint64
		if len(s.Files) > 0 && err == nil {
			files, err = s.unused()
		}
		unused = append(unused, files)
	}
	return unused, err
})

func (s Search) unused() ([]uint64, error) {
	return s.each(func(dir int, f leftover.Item) bool {
		release, is := s.lease(dir, f)
		release()
		return is
	})
}

// Removal asks to remove those of the files that no process uses.
type Removal struct {
	Search Search `json:"search"`
	GID    uint32 `json:"gid"`
}

// Remove removes files as their user, and returns their inodes. It starts as root and gives that up permanently.
var Remove = child.NewOperation("remove-shared-memory", func(r Removal) ([]uint64, error) {
	if err := child.Become(r.Search.Place.UID, r.GID, []uint32{r.GID}); err != nil {
		return nil, err
	}
	return r.Search.each(r.Search.remove)
})

// remove removes a file that has one name, while the lease keeps others from opening it.
func (s Search) remove(dir int, f leftover.Item) bool {
	release, is := s.lease(dir, f)
	defer release()
	// Threat: another file under the name by now. The second look refuses it, and what comes after that look can only
	// be the user's own: the kernel lets no user remove another's file from a sticky directory.
	var st unix.Stat_t
	return is && unix.Fstatat(dir, f.Name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Ino == f.ID &&
		st.Dev == s.Device && st.Nlink == 1 && unix.Unlinkat(dir, f.Name, 0) == nil
}

// each returns the inodes of those of the files for which do reports true.
func (s Search) each(do func(dir int, f leftover.Item) bool) (done []uint64, err error) {
	dir, device, err := s.Place.open()
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	files, _, err := s.Place.files(func(inode uint64) bool {
		_, is := slices.BinarySearch(s.Files, inode)
		return is
	})
	for _, f := range files {
		if device == s.Device && do(int(dir.Fd()), f) {
			done = append(done, f.ID)
		}
	}
	return done, err
}

// lease asks the kernel for a lease to write the file. It grants one only if the file is not open anywhere else, and a
// mapping counts as open; before Linux 5.3 it grants none on a tmpfs. Until release is called, an open waits.
func (s Search) lease(dir int, f leftover.Item) (release func(), is bool) {
	// Threat: another file, a pipe or a link under the name by now. Nothing but the very file is opened, through the
	// descriptor that shows which it is; a lease of the user's own refuses that instead of delaying it.
	release = func() {}
	path, err := unix.Openat(dir, f.Name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return release, false
	}
	defer unix.Close(path)
	var st unix.Stat_t
	err = unix.Fstat(path, &st)
	if err != nil || st.Ino != f.ID || st.Dev != s.Device || st.Mode&unix.S_IFMT != unix.S_IFREG ||
		st.Uid != s.Place.UID {
		return release, false
	}
	itself := fmt.Sprintf("%s/self/fd/%d", s.Place.Proc, path)
	fd, err := unix.Open(itself, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return release, false
	}
	_, err = unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_WRLCK)
	return func() { _ = unix.Close(fd) }, err == nil
}
