package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
)

// inside is the first process of a PID namespace that the daemon made as container daemons do: it mounts a /proc of
// that namespace's own, without which CUDA does not start there, becomes the user and then the program.
func inside(uid, gid string, argv []string) error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := syscall.Mount("proc", "/proc", "proc", syscall.MS_NOSUID|syscall.MS_NODEV|syscall.MS_NOEXEC,
		""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	u, errU := strconv.Atoi(uid)
	g, errG := strconv.Atoi(gid)
	if err := errors.Join(errU, errG); err != nil {
		return err
	}
	if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(g), syscall.Setuid(u)); err != nil {
		return fmt.Errorf("become user %d: %w", u, err)
	}
	return syscall.Exec(argv[0], argv, os.Environ())
}
