package child

import "golang.org/x/sys/unix"

// SealDescriptors marks every descriptor above 2 close-on-exec: inherited ones (another daemon's socket, Slurm's pipe)
// must not reach a child that may never end. Go opens its own close-on-exec: none can slip through meanwhile.
func SealDescriptors() error {
	return eachDescriptor(func(fd int) error {
		_, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, unix.FD_CLOEXEC)
		return err
	})
}
