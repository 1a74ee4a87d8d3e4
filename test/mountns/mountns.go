// Package mountns gives a program a mount namespace of its own: what it mounts ends with it, and what it hides of this
// machine's files stays where it is for everybody else.
package mountns

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// entered marks the environment of a process that has a mount namespace of its own.
const entered = "BOOKEND_TEST_MOUNTNS"

// Enter returns nil where this process has a mount namespace of its own already. Otherwise it starts this program
// again, as this very process, in a new private one, and returns only where that fails: it needs root.
func Enter() error {
	if os.Getenv(entered) != "" {
		return nil
	}
	runtime.LockOSThread() // the namespace is this thread's until exec
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("new mount namespace, which needs root: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	err := unix.Exec("/proc/self/exe", os.Args, append(os.Environ(), entered+"=1"))
	return fmt.Errorf("start again in a new mount namespace: %w", err)
}

// Shadow puts empty folders over the default ones of the hooks, for all processes of the namespace: a hook that falls
// back to them meets none of this machine's files. dir, a scratch folder below one of them, and its neighbours stay.
func Shadow(dir string) error {
	base := filepath.Dir(dir)
	kept, err := os.Open(base)
	if err != nil {
		return fmt.Errorf("shadow directories: %w", err)
	}
	defer kept.Close()
	shadowed := []string{filepath.Dir(base), "/run", "/var/log"}
	for _, path := range []string{"/etc/bookend", "/usr/libexec/bookend"} {
		if _, err := os.Stat(path); err == nil {
			shadowed = append(shadowed, path)
		}
	}
	for _, path := range shadowed {
		if err := unix.Mount("none", path, "tmpfs", 0, "mode=0755"); err != nil {
			return fmt.Errorf("mount on %q: %w", path, err)
		}
	}
	if err := os.Mkdir(base, 0o755); err != nil {
		return fmt.Errorf("shadow directories: %w", err)
	}
	if err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", kept.Fd()), base, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %q: %w", base, err)
	}
	return nil
}
