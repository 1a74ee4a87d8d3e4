package joblog

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"bookend/test/refuse"
)

// Whatever the system refuses has a reason to count by and keeps the system's own error; the file is as it was.
func TestRefusedCalls(t *testing.T) {
	flags := uint32(unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC)
	writing := flags | unix.O_WRONLY | unix.O_APPEND
	opened := func(flags uint32, errno unix.Errno) refuse.Call {
		return refuse.Call{Number: unix.SYS_OPENAT, Errno: errno, When: []refuse.Arg{{Index: 2, Is: flags}}}
	}
	for name, test := range map[string]struct {
		call        refuse.Call
		why         string
		tail, write bool // which of the two meets it
	}{
		"look":                    {refuse.Call{Number: unix.SYS_FSTAT, Errno: unix.EIO}, other, true, true},
		"look at a file gone":     {refuse.Call{Number: unix.SYS_FSTAT, Errno: unix.ESTALE}, missing, true, true},
		"read":                    {refuse.Call{Number: unix.SYS_PREAD64, Errno: unix.EIO}, other, true, false},
		"read a file gone":        {refuse.Call{Number: unix.SYS_PREAD64, Errno: unix.ESTALE}, missing, true, false},
		"write":                   {refuse.Call{Number: unix.SYS_WRITE, Errno: unix.EIO}, other, false, true},
		"write beyond the quota":  {refuse.Call{Number: unix.SYS_WRITE, Errno: unix.EDQUOT}, full, false, true},
		"open to write":           {opened(writing, unix.EMFILE), other, false, true},
		"open on what is frozen":  {opened(writing, unix.EROFS), readonly, false, true},
		"open to read":            {opened(flags, unix.EIO), other, true, false},
		"root's rights are taken": {opened(flags, unix.EACCES), permission, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "out")
			must(t, os.WriteFile(path, []byte("text"), 0o600))
			var read, written error
			must(t, refuse.Run([]refuse.Call{test.call}, func() {
				s := Begin(Target{Path: path}, 0)
				s.Close()
				read = s.Err
				written = Append(Target{Path: path}, 0, []byte("new"))
			}))
			for _, meets := range []struct {
				is  bool
				err error
			}{{test.tail, read}, {test.write, written}} {
				why := Reason(meets.err)
				switch {
				case !meets.is && meets.err != nil:
					t.Errorf("%v, but nothing of it was refused", meets.err)
				case meets.is && (why != test.why || !IsReason(why) || !errors.Is(meets.err, test.call.Errno)):
					t.Errorf("%q of %v, want %q", why, meets.err, test.why)
				case meets.is && !strings.Contains(meets.err.Error(), why):
					t.Errorf("%v does not say %q", meets.err, why)
				}
			}
			if text, err := os.ReadFile(path); err != nil || test.write && string(text) != "text" {
				t.Errorf("the file holds %q, %v", text, err)
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
