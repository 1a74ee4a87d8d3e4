package child

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// SealDescriptors marks every descriptor above 2 close-on-exec: what the hook inherited (another daemon's
// socket, Slurm's pipe) must not reach a child that may never end. Mains call it first; Run calls it again.
func SealDescriptors() error {
	const allAbove = 1<<32 - 1 // the kernel's own bound: unsigned int
	err := unix.CloseRange(3, allAbove, unix.CLOSE_RANGE_CLOEXEC)
	if err == nil {
		return nil
	}
	// ENOSYS before Linux 5.9, EINVAL before 5.11 (no such flag), EPERM from old seccomp filters.
	return sealListed()
}

// sealListed does the same one by one. Go opens its own descriptors close-on-exec, so none can slip through
// between the listing and the marking.
func sealListed() error {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("seal descriptors: %w", err)
	}
	for _, e := range list {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd < 3 {
			continue
		}
		_, err = unix.FcntlInt(uintptr(fd), unix.F_SETFD, unix.FD_CLOEXEC)
		if err != nil && !errors.Is(err, unix.EBADF) { // EBADF: the listing's own descriptor, closed again
			return fmt.Errorf("seal descriptor %d: %w", fd, err)
		}
	}
	return nil
}
