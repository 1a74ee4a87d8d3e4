package cluster

import (
	"path/filepath"

	"bookend/test/rig"
)

// HookFile returns the path of a hook in a cluster's folder. It may go into Options before the hook exists.
func HookFile(dir, name string) string { return paths{dir}.in("hooks", name) }

// WriteHook writes a hook of the given text to HookFile(dir, name), root's and executable by all, and returns
// its path. Slurm gives hooks neither arguments nor a PATH.
func WriteHook(dir, name, text string) (file string, err error) {
	err = rig.Attempt(func() {
		file = HookFile(dir, name)
		makeFolder(filepath.Dir(file), 0o755)
		rig.Try(rig.Write(file, []byte(text), 0o755))
	})
	return file, err
}
