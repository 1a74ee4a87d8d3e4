package child

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// umask makes the modes that files are created with the modes they get: slurmd's own umask may be 0 or 077, and both
// would be wrong. What only root may read is created so.
const umask = 0o022

// Confine makes a process of root's give up, for good, what slurmd's environment left it with and what no hook needs:
// descriptors above 2 (with Slurm up to 21.08 all that slurmd has open); memory that others may read, trace or find in
// a core file; files writable by others. What it keeps, the children that are started later have too: so nothing is
// given up that a vendor's driver may need. An error says what could not be given up; the rest is. It is called first
// in a process.
func Confine() error {
	unix.Umask(umask)
	err := errors.Join(
		unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0),
		unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}),
		eachDescriptor(func(fd int) error {
			// What Go's runtime or this process has opened is close-on-exec, and so not inherited.
			flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
			if err == nil && flags&unix.FD_CLOEXEC == 0 {
				err = unix.Close(fd)
			}
			return err
		}))
	if err != nil {
		return fmt.Errorf("confine: %w", err)
	}
	return nil
}

// eachDescriptor does something with each of the process's open descriptors above 2.
func eachDescriptor(do func(fd int) error) error {
	fds, err := descriptors()
	for _, fd := range fds {
		if wrong := do(fd); wrong != nil && !errors.Is(wrong, unix.EBADF) { // EBADF: closed meanwhile
			err = errors.Join(err, fmt.Errorf("descriptor %d: %w", fd, wrong))
		}
	}
	return err
}

// poller is what /proc calls the descriptors of Go's poller: epoll, and an eventfd to wake it.
const poller = "anon_inode:[event"

// descriptors lists the process's open descriptors above 2, but for Go's poller. Go keeps no others open: go.mod
// switches off the settings by which its runtime would watch the files of its cgroup.
func descriptors() (fds []int, err error) {
	// Threat: none, the kernel's own list about this very process.
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil, fmt.Errorf("list descriptors: %w", err)
	}
	for _, e := range list {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd <= 2 {
			continue
		}
		// The listing's own is closed again.
		if open, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && !strings.HasPrefix(open, poller) {
			fds = append(fds, fd)
		}
	}
	return fds, nil
}
