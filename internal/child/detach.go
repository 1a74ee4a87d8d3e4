package child

import (
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Detach starts the running program again with these arguments, to outlive it: in a session of its own, with nothing of
// this process open, whatever started it waits for. It reads the input on its stdin, which needs nobody to write it. It
// returns once the program runs.
func Detach(env []string, input []byte, args ...string) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("detach %q: %w", args[0], err)
		}
	}()
	if err := SealDescriptors(); err != nil {
		return err
	}
	// Threat: none, a device of the kernel's.
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	stdin := null
	if len(input) > 0 {
		fd, err := unix.MemfdCreate("input", unix.MFD_CLOEXEC)
		if err != nil {
			return err
		}
		stdin = os.NewFile(uintptr(fd), "input")
		defer stdin.Close()
		if _, err := stdin.Write(input); err != nil {
			return err
		}
		if _, err := stdin.Seek(0, io.SeekStart); err != nil {
			return err
		}
	}
	self := Self("")
	_, err = syscall.ForkExec(self.Path, append([]string{self.Name}, args...), &syscall.ProcAttr{
		Dir: "/", Env: env, Files: []uintptr{stdin.Fd(), null.Fd(), null.Fd()}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	return err
}

// Replaced reports whether the running program's file was replaced or removed since it was started.
func Replaced() bool {
	path, err := os.Readlink("/proc/self/exe")
	return err == nil && strings.HasSuffix(path, " (deleted)")
}
