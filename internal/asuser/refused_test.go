//go:build !race

package asuser

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"bookend/internal/child"
	"bookend/test/refuse"
)

// role tells this test binary, started again for one test, that it is the process of that name.
const role = "BOOKEND_REFUSED_ROLE"

// here is an operation of package prctl, or a call with one first argument.
func here(number uintptr, errno unix.Errno, first uint32) refuse.Call {
	return refuse.Call{Number: number, Errno: errno, When: []refuse.Arg{{Index: 0, Is: first}}}
}

func always(number uintptr, errno unix.Errno) refuse.Call {
	return refuse.Call{Number: number, Errno: errno}
}

// opening is an open of a file, or of a folder, as package os does it.
func opening(errno unix.Errno, flags uint32) refuse.Call {
	return refuse.Call{Number: unix.SYS_OPENAT, Errno: errno,
		When: []refuse.Arg{{Index: 2, Is: unix.O_CLOEXEC | flags}}}
}

func limiting(what uint32) refuse.Call {
	return refuse.Call{Number: unix.SYS_PRLIMIT64, Errno: unix.EPERM, When: []refuse.Arg{{Index: 1, Is: what}}}
}

// steps are what the kernel, or a sandbox around the process, can refuse on the way to the user.
var steps = map[string]refuse.Call{
	"descriptors":       opening(unix.ENFILE, 0),
	"process limit":     limiting(unix.RLIMIT_NPROC),
	"core files":        limiting(unix.RLIMIT_CORE),
	"open files":        limiting(unix.RLIMIT_NOFILE),
	"no_new_privs":      here(unix.SYS_PRCTL, unix.EINVAL, unix.PR_SET_NO_NEW_PRIVS),
	"bounding set":      here(unix.SYS_PRCTL, unix.EPERM, unix.PR_CAPBSET_DROP),
	"groups":            always(unix.SYS_SETGROUPS, unix.EPERM),
	"gid":               always(unix.SYS_SETRESGID, unix.EAGAIN),
	"uid":               always(unix.SYS_SETRESUID, unix.EAGAIN), // the user has as many processes as he may
	"capabilities":      always(unix.SYS_CAPSET, unix.EPERM),
	"undumpable":        here(unix.SYS_PRCTL, unix.EINVAL, unix.PR_SET_DUMPABLE),
	"proof of threads":  opening(unix.EACCES, unix.O_DIRECTORY),
	"proof of dumpable": here(unix.SYS_PRCTL, unix.EINVAL, unix.PR_GET_DUMPABLE),
}

// A step that fails is an error: a half user is never taken for one.
func TestEveryStepCounts(t *testing.T) {
	switch name := os.Getenv(role); name {
	case "":
		for name := range steps {
			again(t, "TestEveryStepCounts", name)
		}
	default:
		err := refuse.All(steps[name])
		if err == nil {
			err = Become(uid, gid, []uint32{gid})
			if want := steps[name].Errno; errors.Is(err, want) || err != nil &&
				strings.Contains(err.Error(), want.Error()) {
				os.Exit(0)
			}
		}
		fmt.Println("Become says", err)
		os.Exit(1)
	}
}

// again runs one test in a process of its own, which plays a role in it.
func again(t *testing.T, test, name string) {
	t.Helper()
	if err := child.SealDescriptors(); err != nil { // whoever runs the tests may have left some open
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+test+"$")
	cmd.Env = append(os.Environ(), role+"="+name)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s: %v: %s", name, err, out)
	}
}

// The proof fails for a process that is still root, that could be root again, or that says nothing of itself.
func TestProofFails(t *testing.T) {
	if os.Getenv(role) != "" {
		if err := proveOneWay(); err == nil || !strings.Contains(err.Error(), "taking back") {
			fmt.Println("the way back is open, and the proof says", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	again(t, "TestProofFails", "root")
	if err := prove(uid, gid, []uint32{gid}); err == nil || !strings.Contains(err.Error(), "thread") {
		t.Errorf("root passes for user %d: %v", uid, err)
	}
	// ENOENT: each thread has ended
	for errno, want := range map[unix.Errno]string{unix.EIO: "input/output error", unix.ENOENT: "taking back"} {
		var err error
		run := refuse.Run([]refuse.Call{opening(errno, 0)}, func() { err = prove(uid, gid, []uint32{gid}) })
		if run != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, %v: want %q", run, err, want)
		}
	}
}

// Root without the right to raise limits gets as much as its hard limit allows.
func TestRaiseWithoutTheRight(t *testing.T) {
	if os.Getenv(role) == "" {
		again(t, "TestRaiseWithoutTheRight", "weak root")
		return
	}
	runtime.LockOSThread()
	if err := weaken(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	var now unix.Rlimit
	err := errors.Join(raise(unix.RLIMIT_NPROC), unix.Getrlimit(unix.RLIMIT_NPROC, &now))
	if err != nil || now.Cur != 5000 || now.Max != 5000 {
		fmt.Println(now, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// weaken sets a limit of processes and gives up the right to raise it, for this thread.
func weaken() error {
	if err := unix.Setrlimit(unix.RLIMIT_NPROC, &unix.Rlimit{Cur: 4000, Max: 5000}); err != nil {
		return err
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	if err := unix.Capget(&header, &caps[0]); err != nil {
		return err
	}
	caps[0].Effective &^= 1 << unix.CAP_SYS_RESOURCE
	if err := unix.Capset(&header, &caps[0]); err != nil {
		return err
	}
	if err := unix.Setrlimit(unix.RLIMIT_NPROC, &unix.Rlimit{Cur: unix.RLIM_INFINITY,
		Max: unix.RLIM_INFINITY}); !errors.Is(err, syscall.EPERM) {
		return fmt.Errorf("the limit can still be raised: %w", err)
	}
	return nil
}
