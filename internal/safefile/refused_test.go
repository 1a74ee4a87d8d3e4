package safefile

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"bookend/test/must"
	"bookend/test/refuse"
)

// guarded are the flags of every openAt.
const guarded = unix.O_NOFOLLOW | unix.O_CLOEXEC | unix.O_NOCTTY | unix.O_NONBLOCK

// opening is an open in a folder with these flags.
func opening(flags int) refuse.Call {
	return refuse.Call{
		Number: unix.SYS_OPENAT, Errno: unix.EMFILE, When: append(refuse.Below(0),
			refuse.Arg{Index: 2, Is: uint32(flags | guarded)}),
	}
}

func call(number uintptr, errno unix.Errno, when ...refuse.Arg) refuse.Call {
	return refuse.Call{Number: number, Errno: errno, When: when}
}

// byPath is an open by path as package os does it.
func byPath() refuse.Call {
	cwd := unix.AT_FDCWD
	return call(unix.SYS_OPENAT, unix.ENFILE, refuse.Arg{Index: 0, Is: uint32(int32(cwd))},
		refuse.Arg{Index: 2, Is: unix.O_CLOEXEC})
}

// Whatever the kernel refuses is told, with the kernel's reason; the old file stays as it was, nothing half written
// lies beside it and no descriptor stays open.
func TestRefusedCalls(t *testing.T) {
	replace := func(dir string) error { return Replace(dir, "f", []byte("new"), 0o600) }
	durable := func(dir string) error { return ReplaceDurable(dir, "f", []byte("new"), 0o600) }
	readable := func(dir string) error { return ReplaceReadable(dir, "f", []byte("new"), user) }
	rotated := func(dir string) error { return Append(dir, "f", []byte("new"), 4) }
	read := func(dir string) error { _, err := Read(dir, "f", 10); return err }
	foreign := func(dir string) error {
		_, err := ReadForeign(dir, "f", uint32(os.Getuid()), 10)
		return err
	}
	given := func(dir string) error { return Give(dir, "none", user, user) }
	writing := unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL
	for name, test := range map[string]struct {
		call refuse.Call
		do   func(dir string) error
		want error // nil: the call's own
	}{
		"open a new file":     {call: opening(writing), do: replace},
		"write":               {call: call(unix.SYS_WRITE, unix.EIO), do: replace},
		"let a user read":     {call: call(unix.SYS_FSETXATTR, unix.EOPNOTSUPP), do: readable},
		"sync":                {call: call(unix.SYS_FSYNC, unix.EIO), do: durable},
		"rename":              {call: call(unix.SYS_RENAMEAT, unix.ENOSPC, refuse.Below(0)...), do: replace},
		"rotate a log":        {call: call(unix.SYS_RENAMEAT, unix.ENOSPC, refuse.Below(0)...), do: rotated},
		"read":                {call: call(unix.SYS_READ, unix.EIO), do: read},
		"find a user's mount": {call: byPath(), do: foreign},
		"give a file away":    {call: call(unix.SYS_FCHOWN, unix.EPERM), do: given},
		"make a directory": {call: call(unix.SYS_MKDIRAT, unix.ENOSPC),
			do: func(dir string) error { return MakeDir(dir, "d", 0o755) }},
		"a log that others write": {do: func(dir string) error { return Append(dir, "open", nil, 10) },
			want: ErrNotOurs},
	} {
		t.Run(name, func(t *testing.T) {
			dir := rootsFolder(t)
			at := func(name string) string { return filepath.Join(dir, name) }
			put(t, at("f"), "old", 0o600)
			put(t, at("open"), "", 0o666)
			must.Do(t, os.Symlink("f", at("link")))
			must.Do(t, os.Mkdir(at("sub"), 0o700))
			before, files := descriptors(t), entries(t, dir)
			if test.want == nil {
				test.want = test.call.Errno
			}
			var err error
			must.Do(t, refuse.Run([]refuse.Call{test.call}, func() { err = test.do(dir) }))
			must.Fail(t, "error", err, test.want)
			must.Be(t, "open descriptors", descriptors(t), before)
			if now := entries(t, dir); now != files || content(t, at("f")) != "old" {
				t.Errorf("there is %q with %q, and was %q", now, content(t, at("f")), files)
			}
		})
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	list := must.Have(os.ReadDir("/proc/self/fd"))(t)
	return len(list)
}

// A kernel that does not say on which mount a user's file is gets no answer taken for one.
func TestUnknownMount(t *testing.T) {
	dir := rootsFolder(t)
	put(t, filepath.Join(dir, "f"), "text", 0o600)
	must.Have(ReadForeign(dir, "f", 0, 10))(t)
	var err error
	nothing := call(unix.SYS_READ, 0) // what it says of a descriptor is empty
	must.Do(t, refuse.Run([]refuse.Call{nothing}, func() { _, err = ReadForeign(dir, "f", 0, 10) }))
	must.Not(t, err == nil, "it was read")
}
