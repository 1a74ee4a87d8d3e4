package asuser

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// umask makes the modes that files are created with the modes they get: slurmd's own umask may be 0 or 077, and both
// would be wrong. What only root may read is created so.
const umask = 0o022

// Confine makes a process of root's give up, for good, what slurmd's environment left it with and what no hook needs:
// descriptors above 2; memory that others may read, trace or find in a core file; files writable by others. What it
// keeps, the children that are started later have too: so nothing is given up that a vendor's driver may need. An error
// says what could not be given up; the rest is. It is called first in a process.
func Confine() error {
	unix.Umask(umask)
	return errors.Join(
		wrap("set undumpable", unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)),
		wrap("limit core files", unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})),
		closeInherited(),
	)
}

func wrap(what string, err error) error {
	if err != nil {
		return fmt.Errorf("confine: %s: %w", what, err)
	}
	return nil
}

// closeInherited closes what whoever started the process left open beyond its three: with Slurm up to 21.08 that is
// all that slurmd has open. What Go's runtime or this process has opened is close-on-exec, and so not inherited.
func closeInherited() error {
	fds, err := descriptors()
	if err != nil {
		return wrap("close descriptors", err)
	}
	for _, fd := range fds {
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err == nil && flags&unix.FD_CLOEXEC == 0 {
			err = unix.Close(fd)
		}
		if err != nil && !errors.Is(err, unix.EBADF) {
			return wrap(fmt.Sprintf("close descriptor %d", fd), err)
		}
	}
	return nil
}

// poller is what /proc calls the descriptors of Go's poller: epoll, and an eventfd to wake it.
const poller = "anon_inode:[event"

// descriptors lists the process's open descriptors above 2, but for Go's poller. Go keeps no others open: go.mod
// switches off the settings by which its runtime would watch the files of its cgroup.
func descriptors() ([]int, error) {
	// Threat: none, the kernel's own list about this very process.
	folder, err := os.Open("/proc/self/fd")
	if err != nil {
		return nil, fmt.Errorf("list descriptors: %w", err)
	}
	defer folder.Close()
	names, err := folder.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list descriptors: %w", err)
	}
	var fds []int
	for _, name := range names {
		fd, err := strconv.Atoi(name)
		if err != nil || fd <= 2 || fd == int(folder.Fd()) {
			continue
		}
		open, err := os.Readlink("/proc/self/fd/" + name)
		if errors.Is(err, fs.ErrNotExist) || strings.HasPrefix(open, poller) {
			continue
		}
		fds = append(fds, fd)
	}
	return fds, nil
}
