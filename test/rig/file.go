package rig

import (
	"errors"
	"os"
	"syscall"
)

// Write writes a file so that a reader sees the old content or the new, and what runs keeps the old one; umask or not,
// it has this mode.
func Write(path string, content []byte, mode os.FileMode) error {
	// A process that another test forks meanwhile would have the file open for writing, and nobody could run it.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	fresh := path + ".new"
	if err := os.WriteFile(fresh, content, mode); err != nil {
		return err
	}
	return errors.Join(os.Chmod(fresh, mode), os.Rename(fresh, path))
}
