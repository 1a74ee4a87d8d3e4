package safefile

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// MakeDir makes the folder name in the own folder parent, with this mode, for this process's user. One that is there
// already must be just so (else ErrNotOurs), unless an earlier run was interrupted before it had its mode.
func MakeDir(parent, name string, mode os.FileMode) error {
	return inOwnFolder("make directory", parent, name, func(dirfd int) error {
		err := retry(func() error { return unix.Mkdirat(dirfd, name, 0o700) })
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return err
		}
		// Threat: none from users, who cannot write here; a link or a mount that an admin put here is refused.
		fd, st, err := pin(dirfd, name)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if st.Mode&unix.S_IFMT != unix.S_IFDIR || st.Uid != uint32(os.Geteuid()) {
			return fmt.Errorf("%w: owner %d, mode %#o", ErrNotOurs, st.Uid, st.Mode)
		}
		if os.FileMode(st.Mode&0o7777) == mode {
			return nil
		}
		open, err := openAt(dirfd, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			return err
		}
		defer unix.Close(open)
		return retry(func() error { return unix.Fchmod(open, uint32(mode)) })
	})
}
