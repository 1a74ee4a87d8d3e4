package confine

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"bookend/test/refuse"
)

// Whatever cannot be given up is told.
func TestProcessRefused(t *testing.T) {
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
		"close": func(fd int) refuse.Call { return refuse.Call{Number: unix.SYS_CLOSE, Errno: unix.EIO, When: first(fd)} },
	} {
		t.Run(name, func(t *testing.T) {
			// As a program without close-on-exec leaves it. Process closes it, where nothing is refused before.
			inherited, err := unix.Open("/dev/null", unix.O_RDONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			c := call(inherited)
			if run := refuse.Run([]refuse.Call{c}, func() { err = Process() }); run != nil || !errors.Is(err, c.Errno) {
				t.Errorf("%v, %v: want %v", run, err, c.Errno)
			}
		})
	}
}

// A descriptor that goes while they are listed is none.
func TestDescriptorsGone(t *testing.T) {
	file, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var fds []int
	calls := []refuse.Call{{Number: unix.SYS_READLINKAT, Errno: unix.ENOENT}}
	if run := refuse.Run(calls, func() { fds, err = Descriptors() }); run != nil || err != nil || len(fds) != 0 {
		t.Errorf("%v, %v, %v", run, fds, err)
	}
}
