package child

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// SealDescriptors marks every descriptor above 2 close-on-exec: what the hook inherited (another daemon's socket,
// Slurm's pipe) must not reach a child that may never end. Go opens its own descriptors so, and none can slip through
// between the listing and the marking.
func SealDescriptors() error {
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
