package main

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"bookend/test/rig"
)

// foe is this program started again as the user: it tries to get at the children that have become the user. It is told
// a line, and answers with a line.
type foe struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	answers *bufio.Reader
}

// asUser marks the environment of this program started again as the user.
const asUser = "BOOKEND_TORTURE_AS_USER"

func startAsUser() (*foe, error) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Stderr, cmd.Dir, cmd.Env = os.Stderr, "/", []string{asUser + "=1"}
	cmd.SysProcAttr = rig.As(user)
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	in, noIn := cmd.StdinPipe()
	out, noOut := cmd.StdoutPipe()
	return &foe{cmd, in, bufio.NewReader(out)}, cmp.Or(noIn, noOut, cmd.Start())
}

func (f *foe) close() {
	_ = f.in.Close()
	_ = f.cmd.Wait()
}

// attack tries everything once, and sends the signal unless it is 0. It returns how much was tried, and what worked.
func (f *foe) attack(pid int, signal syscall.Signal) (tried int, got string, err error) {
	fmt.Fprintf(f.in, "%d %d\n", pid, signal)
	answer, err := f.answers.ReadString('\n')
	if err != nil {
		return 0, "", err
	}
	count, got, _ := strings.Cut(strings.TrimSpace(answer), " ")
	_, err = fmt.Sscan(count, &tried)
	return tried, got, err
}

// serveAsUser does not return where this process was started as the user.
func serveAsUser() {
	if os.Getenv(asUser) == "" {
		return
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var prey int
		var signal syscall.Signal
		_, _ = fmt.Sscan(lines.Text(), &prey, &signal)
		tried, worked := try(prey)
		if !hasMemory(prey) {
			worked = nil
		}
		if signal != 0 {
			_ = syscall.Kill(prey, signal)
		}
		fmt.Println(tried, strings.Join(worked, ", "))
	}
	os.Exit(0)
}

// goText is an address within every Go program for Linux on amd64 that is linked without cgo.
const goText = 0x400000

// try tries every system call that gets at another process, and the files of it that its user must not read.
func try(pid int) (tried int, worked []string) {
	note := func(what string, err error) {
		if tried++; err == nil {
			worked = append(worked, what)
		}
	}
	note("PTRACE_SEIZE", seize(pid))
	word := make([]byte, 8)
	here, there := []unix.Iovec{{Base: &word[0], Len: 8}}, []unix.RemoteIovec{{Base: goText, Len: 8}}
	_, err := unix.ProcessVMReadv(pid, here, there, 0)
	note("process_vm_readv", err)
	_, err = unix.ProcessVMWritev(pid, here, there, 0)
	note("process_vm_writev", err)
	if pidfd, err := unix.PidfdOpen(pid, 0); err == nil {
		fd, err := unix.PidfdGetfd(pidfd, 1, 0)
		note("pidfd_getfd", err)
		_, _ = unix.Close(fd), unix.Close(pidfd)
	}
	for _, name := range []string{"mem", "environ", "maps", "auxv", "fd", "cwd", "exe"} {
		path := fmt.Sprintf("/proc/%d/%s", pid, name)
		f, err := os.Open(path)
		if err == nil && name == "fd" {
			_, err = f.Readdirnames(1)
		}
		_ = f.Close()
		note(path, err)
	}
	return tried, worked
}

// seize begins to trace a process, and lets go of it: the thread that traces ends. The main thread would not.
func seize(pid int) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == os.Getpid() {
			done <- seize(pid)
			runtime.UnlockOSThread()
			return
		}
		_, _, errno := unix.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(pid), 0, 0, 0, 0)
		if errno != 0 {
			done <- errno
		}
		close(done)
	}()
	return <-done
}

// hasMemory is false for a process that is ending: who it was lets everybody of its user in then, to nothing.
func hasMemory(pid int) bool {
	size, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	return err == nil && !strings.HasPrefix(string(size), "0 ")
}
