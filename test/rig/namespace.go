package rig

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// ownMounts marks the environment of a process that has a mount namespace of its own.
const ownMounts = "BOOKEND_TEST_MOUNTNS"

// OwnMounts returns nil if this process has a mount namespace of its own: what it mounts ends with it, and other
// processes do not see it. Otherwise it executes this program again in a new one, and returns only if that fails. It
// needs root.
func OwnMounts() error {
	if os.Getenv(ownMounts) != "" {
		return nil
	}
	runtime.LockOSThread() // the namespace is this thread's until exec
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("new mount namespace, which needs root: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	err := unix.Exec("/proc/self/exe", os.Args, append(os.Environ(), ownMounts+"=1"))
	return fmt.Errorf("start again in a new mount namespace: %w", err)
}

// HideDefaults mounts empty directories over the default ones of the hooks, in this mount namespace: a hook that falls
// back to them finds none of this machine's files. dir, a scratch directory below one of them, and its siblings stay.
func HideDefaults(dir string) error {
	base := filepath.Dir(dir)
	kept, err := os.Open(base)
	if err != nil {
		return fmt.Errorf("hide default directories: %w", err)
	}
	defer kept.Close()
	hidden := []string{filepath.Dir(base), "/run", "/var/log"}
	for _, path := range []string{"/etc/bookend", "/usr/libexec/bookend"} {
		if _, err := os.Stat(path); err == nil {
			hidden = append(hidden, path)
		}
	}
	for _, path := range hidden {
		if err := unix.Mount("none", path, "tmpfs", 0, "mode=0755"); err != nil {
			return fmt.Errorf("mount on %q: %w", path, err)
		}
	}
	if err := os.Mkdir(base, 0o755); err != nil {
		return fmt.Errorf("hide default directories: %w", err)
	}
	if err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", kept.Fd()), base, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %q: %w", base, err)
	}
	return nil
}
