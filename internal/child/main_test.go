package child

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"bookend/test/must"
)

// The test binary started again by Self plays the children.
func TestMain(m *testing.M) {
	if len(os.Args) < 3 || os.Args[1] != "--child" {
		os.Exit(m.Run())
	}
	ops := map[string]func(arg string){
		"report": reportSelf, "unkillable": unkillable, "trace": trace, "headless": headless, "upgrade": upgrade,
	}
	arg := ""
	if len(os.Args) > 3 {
		arg = os.Args[3]
	}
	if op, ok := ops[os.Args[2]]; ok {
		op(arg)
	} else {
		orExit(becoming[os.Args[2]](arg))
	}
	os.Exit(0)
}

// becoming are the children that give rights up: an error is their failure.
var becoming = map[string]func(arg string) error{}

func orExit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(99)
	}
}

// reportSelf says what a child can see of itself.
func reportSelf(string) {
	sid, _ := unix.Getsid(0)
	cwd, _ := os.Getwd()
	fmt.Println("leader", sid == os.Getpid(), unix.Getpgrp() == os.Getpid())
	fmt.Println("cwd", cwd)
	fmt.Println("env", len(os.Environ()), os.Getenv("GIVEN"))
	fmt.Println("name", os.Args[0])
}

// scripts are children that any program can play; $1 is their argument.
var scripts = map[string]string{
	"echo": "exec /bin/cat", "flood": "exec /bin/cat /dev/zero", "lines": "while echo a line; do :; done",
	"diag": "/usr/bin/head -c 1048576 /dev/zero >&2; printf done", "exit": "exit $1",
	"killed": "kill -KILL $$", "stop": "kill -STOP $$", "sleep": "exec /bin/sleep 1000",
	"deaf":  "trap '' TERM INT HUP; exec /bin/sleep 1000",
	"early": "exec <&-; printf answer", // it closes its end of the request without reading it
	// It ends when nobody holds the request pipe any more, and leaves a mark.
	"untilhangup": "echo started; /bin/cat >/dev/null; : >$1",
	// It leaves a process behind that holds the answer's pipe: in the child's group, or out of reach.
	"heir": "$1 /bin/sleep 1000 & echo $!",
	// It fills the group with processes that ignore TERM, and then floods, so that Run kills it.
	"swarm": "trap '' TERM; for i in 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9; do /bin/sleep 1000 & echo $!; done; " +
		"exec /bin/cat /dev/zero",
}

// again starts this binary once more, with the given descriptors.
func again(session bool, files []uintptr, args ...string) int {
	pid, err := syscall.ForkExec("/proc/self/exe", append([]string{"again", "--child"}, args...),
		&syscall.ProcAttr{Dir: "/", Files: files, Sys: &syscall.SysProcAttr{Setsid: session}})
	orExit(err)
	return pid
}

// unkillable gets a tracer that holds it in its exit: like a process stuck in a driver it survives SIGKILL
// until the tracer goes. Then it floods, so that Run kills it. The FIFO's end tells when it is really gone.
func unkillable(fifo string) {
	runtime.LockOSThread()
	hold, err := unix.Open(fifo, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	orExit(err)
	var ready [2]int
	orExit(unix.Pipe2(ready[:], unix.O_CLOEXEC))
	tracer := again(true, []uintptr{0, uintptr(ready[1]), 2}, "trace", strconv.Itoa(os.Getpid()))
	_, err = unix.Read(ready[0], make([]byte, 1))
	orExit(err)
	fmt.Println(tracer)
	_, err = fmt.Fprintln(os.NewFile(uintptr(hold), fifo), tracer)
	orExit(err)
	for junk := make([]byte, 1<<16); err == nil; {
		_, err = os.Stdout.Write(junk)
	}
}

func sleepForever() {
	for {
		_ = unix.Pause()
	}
}

func trace(victim string) {
	runtime.LockOSThread()
	pid, err := strconv.Atoi(victim)
	orExit(err)
	_, _, errno := unix.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(pid), 0, unix.PTRACE_O_TRACEEXIT, 0, 0)
	if errno != 0 {
		orExit(errno)
	}
	_, err = os.Stdout.Write([]byte("r"))
	orExit(err)
	for { // Go's runtime signals its own threads: at each the victim waits for its tracer
		var status unix.WaitStatus
		_, err := unix.Wait4(pid, &status, unix.WALL, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		orExit(err)
		if status.TrapCause() == unix.PTRACE_EVENT_EXIT {
			sleepForever()
		}
		signal := 0
		if status.TrapCause() < 0 {
			signal = int(status.StopSignal())
		}
		orExit(unix.PtraceCont(pid, signal))
	}
}

// headless ends its first thread and lives on in another: from outside, a zombie.
func headless(string) {
	go func() {
		runtime.LockOSThread()
		for {
			if st, err := readStat("/proc", os.Getpid()); err == nil && st.State == 'Z' {
				fmt.Println("headless")
				sleepForever()
			}
		}
	}()
	runtime.LockOSThread() // main runs on the first thread: init locked it
	// not RawSyscall: on one processor no other goroutine would run again
	_, _, _ = unix.Syscall(unix.SYS_EXIT, 0, 0, 0)
}

// upgrade removes its own program's file and starts itself again.
func upgrade(string) {
	exe, err := os.Executable()
	orExit(err)
	orExit(os.Remove(exe))
	res := Run(self("exit", "0"))
	fmt.Printf("%s %.100s", res.Outcome, res.Stderr)
}

func init() { runtime.LockOSThread() }

func self(op string, args ...string) Spec {
	s := Self(op)
	if script, ok := scripts[op]; ok {
		s = Spec{Path: "/bin/sh", Args: []string{"-c", script, op}}
	}
	s.Args = append(s.Args, args...)
	s.MaxOutput = 1 << 20
	s.Timeout = longTimeout
	return s
}

func fifo(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fifo")
	must.Do(t, unix.Mkfifo(path, 0o600))
	return path
}
