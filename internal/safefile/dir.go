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

// Share lets everybody read and search a folder of this process's own in an own folder, where an umask or another
// program has kept them out. Anything else is left as it is: a link, another user's folder, one that others may write.
func Share(parent, name string) error {
	return inOwnFolder("share directory", parent, name, func(dirfd int) error {
		// Threat: a link to another folder of root's, which would be opened to all; none is followed.
		fd, err := openAt(dirfd, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		const shared = 0o755
		st, err := stat(fd)
		if err != nil || st.Uid != uint32(os.Geteuid()) || st.Mode&writableByOthers != 0 || st.Mode&shared == shared {
			return err
		}
		return retry(func() error { return unix.Fchmod(fd, st.Mode&0o7777|shared) })
	})
}
