package child

import (
	"fmt"
	"os"
	"strings"
	"syscall"
)

// Detach starts the running program again with these arguments, to outlive it: in a session of its own, with nothing of
// this process open, whatever started it waits for. It returns once the program runs.
func Detach(env []string, args ...string) error {
	if err := SealDescriptors(); err != nil {
		return fmt.Errorf("detach: %w", err)
	}
	// Threat: none, a device of the kernel's.
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("detach: %w", err)
	}
	defer null.Close()
	self := Self("")
	_, err = syscall.ForkExec(self.Path, append([]string{self.Name}, args...), &syscall.ProcAttr{
		Dir: "/", Env: env, Files: []uintptr{null.Fd(), null.Fd(), null.Fd()}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return fmt.Errorf("detach %q: %w", args[0], err)
	}
	return nil
}

// Replaced reports whether the running program's file was replaced or removed since it was started.
func Replaced() bool {
	path, err := os.Readlink("/proc/self/exe")
	return err == nil && strings.HasSuffix(path, " (deleted)")
}
