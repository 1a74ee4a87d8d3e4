//go:build !race

package asuser

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"bookend/test/refuse"
)

// confined starts with what nobody should have, and looks at what is left of it.
func confined() error {
	unix.Umask(0)
	if fds, err := descriptors(); err != nil || len(fds) < 3 ||
		!slices.Equal(slices.Sorted(slices.Values(fds))[:3], []int{3, 4, 5}) {
		return fmt.Errorf("it began with descriptors %v, %v", fds, err)
	}
	kept, err := os.Open("/proc/self/stat") // close-on-exec: its own
	if err != nil {
		return err
	}
	if err := Confine(); err != nil {
		return err
	}
	var core unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &core); err != nil || core.Cur != 0 || core.Max != 0 {
		return fmt.Errorf("core files of %d bytes, %v", core.Cur, err)
	}
	if dumpable, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0); err != nil || dumpable != 0 {
		return fmt.Errorf("dumpable is %d, %v", dumpable, err)
	}
	if mask := unix.Umask(0); mask != 0o022 {
		return fmt.Errorf("umask %#o", mask)
	}
	if fds, err := descriptors(); err != nil || len(fds) != 1 || fds[0] != int(kept.Fd()) {
		return fmt.Errorf("descriptors %v are open, %v", fds, err)
	}
	fmt.Println("done") // what it is to keep works
	return nil
}

func TestConfine(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "another daemon's"))
	ok(t, err)
	r, w, err := os.Pipe()
	ok(t, err)
	cmd := exec.Command("/proc/self/exe", "--child", "confined")
	cmd.ExtraFiles = []*os.File{file, r, w}
	out, err := cmd.CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "done" {
		t.Errorf("%v: %s", err, out)
	}
}

// Go's own descriptors are none to be closed: reads that wait for somebody still work afterwards.
func TestDescriptorsLeaveTheRuntimeItsOwn(t *testing.T) {
	r, w, err := os.Pipe()
	ok(t, err)
	defer r.Close()
	defer w.Close()
	fds, err := descriptors()
	if err != nil || !slices.Contains(fds, int(r.Fd())) {
		t.Errorf("%v, %v", fds, err)
	}
	for _, fd := range fds {
		if name, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd)); strings.HasPrefix(name, "anon_inode:[event") {
			t.Errorf("%d is %s", fd, name)
		}
	}
}

// Whatever cannot be given up is told.
func TestConfineRefused(t *testing.T) {
	first := func(fd int) []refuse.Arg { return []refuse.Arg{{Index: 0, Is: uint32(fd)}} }
	for name, call := range map[string]func(inherited int) refuse.Call{
		"undumpable": func(int) refuse.Call {
			return refuse.Call{Number: unix.SYS_PRCTL, Errno: unix.EINVAL, When: first(unix.PR_SET_DUMPABLE)}
		},
		"core files":    func(int) refuse.Call { return refuse.Call{Number: unix.SYS_PRLIMIT64, Errno: unix.EPERM} },
		"open the list": func(int) refuse.Call { return refuse.Call{Number: unix.SYS_OPENAT, Errno: unix.ENFILE} },
		"read the list": func(int) refuse.Call { return refuse.Call{Number: unix.SYS_GETDENTS64, Errno: unix.EIO} },
		"ask for flags": func(fd int) refuse.Call {
			return refuse.Call{Number: unix.SYS_FCNTL, Errno: unix.EPERM, When: first(fd)}
		},
		"close": func(fd int) refuse.Call {
			return refuse.Call{Number: unix.SYS_CLOSE, Errno: unix.EIO,
				When: first(fd)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			// As a program without close-on-exec leaves it. Process closes it, where nothing is refused before.
			inherited, err := unix.Open("/dev/null", unix.O_RDONLY, 0)
			ok(t, err)
			c := call(inherited)
			if run := refuse.Run([]refuse.Call{c}, func() { err = Confine() }); run != nil || !errors.Is(err, c.Errno) {
				t.Errorf("%v, %v: want %v", run, err, c.Errno)
			}
		})
	}
}

// A descriptor that goes while they are listed is none.
func TestDescriptorsGone(t *testing.T) {
	file, err := os.Open("/dev/null")
	ok(t, err)
	defer file.Close()
	var fds []int
	calls := []refuse.Call{{Number: unix.SYS_READLINKAT, Errno: unix.ENOENT}}
	if run := refuse.Run(calls, func() { fds, err = descriptors() }); run != nil || err != nil || len(fds) != 0 {
		t.Errorf("%v, %v, %v", run, fds, err)
	}
}
