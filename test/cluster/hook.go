package cluster

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"

	"bookend/test/rig"
)

// HookFile returns the path of a hook in a cluster's folder. It may go into Options before the hook exists.
func HookFile(dir, name string) string { return paths{dir}.in("hooks", name) }

// WriteHook writes a hook of the given text to HookFile(dir, name), root's and executable by all, and returns
// its path. Slurm gives hooks neither arguments nor a PATH.
func WriteHook(dir, name, text string) (string, error) {
	file := HookFile(dir, name)
	if err := rig.Attempt(func() { makeFolder(filepath.Dir(file), 0o755) }); err != nil {
		return "", err
	}
	// A process that is forked meanwhile would have the file open for writing, and nobody could run it.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	// Replaced, not rewritten: a hook that just runs keeps its own file ("text file busy").
	if err := os.WriteFile(file+".new", []byte(text), 0o755); err != nil {
		return "", err
	}
	return file, errors.Join(os.Chmod(file+".new", 0o755), os.Rename(file+".new", file))
}
