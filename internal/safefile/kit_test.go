package safefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"bookend/test/faultinject"
	"bookend/test/must"
)

const user = 65534 // stands for any unprivileged user

func put(t *testing.T, path, content string, mode os.FileMode) {
	t.Helper()
	must.Do(t, os.WriteFile(path, []byte(content), 0o600))
	must.Do(t, os.Chmod(path, mode))
}

// smallTmpfs mounts a file system with room for one page.
func smallTmpfs(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	must.Tmpfs(t, dir, "mode=0755,size="+size)
	return dir
}

func entries(t *testing.T, dir string) string {
	t.Helper()
	list := must.Have(os.ReadDir(dir))(t)
	var names []string
	for _, e := range list {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

func TestTrusted(t *testing.T) {
	dir := arranged(t, "file:good file:group file:world file:users others:users fifo:fifo link:../good>sub/relative "+
		"link:DIR/good>absolute link:DIR/sub>folderlink link:DIR/home/file>outward link:loop>loop link:/dev/null>device")
	at := func(name string) string { return filepath.Join(dir, name) }
	must.Do(t, errors.Join(os.Mkdir(at("sticky"), 0o755), os.Mkdir(at("home"), 0o755)))
	put(t, at("sticky/file"), "", 0o644)
	put(t, at("home/file"), "", 0o644)
	must.Do(t, errors.Join(os.Chmod(at("group"), 0o664), os.Chmod(at("world"), 0o646),
		os.Chmod(at("sticky"), 0o1777|os.ModeSticky), os.Chown(at("home"), user, 0)))
	for name, tt := range map[string]struct {
		path string
		want error
	}{
		"file":                           {at("good"), nil},
		"folder":                         {dir, nil},
		"root":                           {"/", nil},
		"dots":                           {dir + "/./sub//../good", nil},
		"relative link":                  {at("sub/relative"), nil},
		"absolute link":                  {at("absolute"), nil},
		"linked directory":               {at("folderlink/relative"), nil},
		"dots behind a linked directory": {at("folderlink") + "/../good", nil},
		"group may write":                {at("group"), ErrUntrusted},
		"world may write":                {at("world"), ErrUntrusted},
		"user's file":                    {at("users"), ErrUntrusted},
		"in a sticky directory":          {at("sticky/file"), ErrUntrusted},
		"in a user's directory":          {at("home/file"), ErrUntrusted},
		"link into a user's directory":   {at("outward"), ErrUntrusted},
		"endless link":                   {at("loop"), unix.ELOOP},
		"FIFO":                           {at("fifo"), ErrUntrusted},
		"device":                         {at("device"), ErrUntrusted},
		"relative":                       {"etc/passwd", ErrUntrusted},
		"empty":                          {"", ErrUntrusted},
		"missing":                        {at("missing"), fs.ErrNotExist},
	} {
		must.Fail(t, name, Trusted(tt.path), tt.want)
	}
}

// A path is passable if every user can pass each directory on it, behind links too.
func TestPassable(t *testing.T) {
	dir := arranged(t, "file:file folder:closed folder:closed/in link:closed/in>link")
	must.Do(t, os.Chmod(filepath.Join(dir, "closed"), 0o750))
	must.Do(t, Passable(filepath.Join(dir, "file")))
	for _, name := range []string{"closed", "closed/in", "link"} {
		var closed *ClosedDir
		err := Passable(filepath.Join(dir, name))
		must.Not(t, !errors.As(err, &closed) || closed.Mode != 0o750 || closed.Path != filepath.Join(dir, "closed") ||
			!strings.Contains(err.Error(), "keeps users out"), "%s: %v", name, err)
	}
}

func TestReadTrusted(t *testing.T) {
	dir := arranged(t, "file:file link:file>link")
	for _, path := range []string{"file", "link"} {
		must.Be(t, path, string(must.Have(ReadTrusted(filepath.Join(dir, path), 6))(t)), "before")
	}
	must.Fail(t, "larger than allowed", must.Err(ReadTrusted(dir+"/file", 5)), ErrTooLarge)
	must.Fail(t, "directory", must.Err(ReadTrusted(dir, 100)), ErrUntrusted)
}

func TestReplaceAndRead(t *testing.T) {
	old := unix.Umask(0o077)
	defer unix.Umask(old)
	for name, replace := range map[string]func(string, string, []byte, os.FileMode) error{
		"plain": Replace, "durable": ReplaceDurable,
	} {
		dir := t.TempDir()
		must.Do(t, errors.Join(replace(dir, "f", []byte("one"), 0o644), replace(dir, "f", []byte("two"), 0o640)))
		must.Be(t, name, string(must.Have(Read(dir, "f", 3))(t)), "two")
		must.Be(t, name+", its mode", must.Have(os.Stat(filepath.Join(dir, "f")))(t).Mode(), 0o640)
		must.Be(t, name+", beside it", entries(t, dir), "f")
	}
}

// A symbolic link in the file's place is replaced, never followed.
func TestWritersReplaceLinks(t *testing.T) {
	dir := arranged(t, "file:victim link:victim>a link:victim>b")
	must.Do(t, errors.Join(Replace(dir, "a", []byte("new"), 0o600), ReplaceReadable(dir, "b", []byte("new"), user)))
	must.Be(t, "what is linked", must.Read(t, dir+"/victim"), "before")
	must.Be(t, "what was a link", must.Read(t, dir+"/a")+must.Read(t, dir+"/b"), "newnew")
}

func TestFullDiskKeepsTheOldFile(t *testing.T) {
	dir := smallTmpfs(t, "4k")
	must.Do(t, Replace(dir, "f", []byte("old"), 0o600))
	err := Replace(dir, "f", make([]byte, 1<<16), 0o600)
	must.Fail(t, "a full disk", err, unix.ENOSPC)
	must.Not(t, must.Read(t, filepath.Join(dir, "f")) != "old" || entries(t, dir) != "f",
		"directory holds %q", entries(t, dir))
}

// A file that a user may read stays root's: he can neither change it nor let others at it.
func TestReplaceReadable(t *testing.T) {
	dir := t.TempDir()
	must.Do(t, os.Chmod(dir, 0o755))
	must.Do(t, os.Chmod(filepath.Dir(dir), 0o755))
	path := filepath.Join(dir, "7")
	for _, text := range []string{"first", "second"} {
		must.Do(t, ReplaceReadable(dir, "7", []byte(text), user))
		var st unix.Stat_t
		must.Do(t, unix.Lstat(path, &st))
		must.Not(t, st.Uid != 0 || st.Mode&0o027 != 0 || must.Read(t, path) != text,
			"owner %d:%d, mode %#o", st.Uid, st.Gid, st.Mode)
	}
	for command, may := range map[string]bool{
		`test "$(cat ` + path + `)" = second`: true, "chmod 666 " + path: false, "echo x >> " + path: false, "rm -f " + path: false,
	} {
		must.Be(t, command, asUser(user, command), may)
		must.Be(t, "another user: "+command, asUser(user-1, command), false)
	}
	must.Be(t, "root reads", string(must.Have(Read(dir, "7", 100))(t)), "second")
}

func TestReadRefuses(t *testing.T) {
	dir := arranged(t, "file:file open:open file:linked hard:linked>hardlink link:file>link fifo:fifo folder:folder null:null")
	for name, want := range map[string]error{
		"file": ErrTooLarge, "open": ErrNotOurs, "hardlink": ErrNotOurs, "link": unix.ELOOP, "fifo": ErrNotOurs,
		"folder": ErrNotOurs, "null": ErrNotOurs, "missing": fs.ErrNotExist, "../x": unix.EINVAL, "": unix.EINVAL,
		"..": unix.EINVAL, "a\x00b": unix.EINVAL, strings.Repeat("x", 256): unix.EINVAL,
		".": unix.EINVAL, "a/b": unix.EINVAL, "/etc/passwd": unix.EINVAL,
	} {
		must.Fail(t, "read "+name, must.Err(Read(dir, name, 4)), want)
		if want != unix.EINVAL {
			continue
		}
		must.Fail(t, "replace "+name, Replace(dir, name, nil, 0o600), want)
	}
}

func TestFolderOfOthersIsRefused(t *testing.T) {
	for name, spoil := range map[string]func(dir string) error{
		"user's":         func(dir string) error { return os.Chown(dir, user, user) },
		"world-writable": func(dir string) error { return os.Chmod(dir, 0o777) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			put(t, filepath.Join(dir, "f"), "", 0o600)
			must.Do(t, spoil(dir))
			_, read := Read(dir, "f", 10)
			_, lock := Lock(filepath.Join(dir, "f"), 0, true)
			for call, err := range map[string]error{
				"Read": read, "Lock": lock, "Replace": Replace(dir, "f", nil, 0o600),
				"Append": Append(dir, "f", nil, 10), "MakeDir": MakeDir(dir, "d", 0o700),
				"Share": Share(dir, "f", user, 1), "Clear": Clear(dir, "f", 0), "MakeDirFor": MakeDirFor(dir, "d", user),
				"Edit": Edit(dir, "f", 0, 1, func(b []byte) ([]byte, error) { return b, nil }),
			} {
				must.Fail(t, call, err, ErrNotOurs)
			}
		})
	}
	dir := t.TempDir()
	must.Do(t, os.Symlink(dir, dir+"-link"))
	must.Fail(t, "linked directory", Replace(dir+"-link", "f", nil, 0o600), unix.ENOTDIR)
}

const guarded = unix.O_NOFOLLOW | unix.O_CLOEXEC | unix.O_NOCTTY | unix.O_NONBLOCK

// opening is an open in a folder with these flags.
func opening(flags int) faultinject.Filter {
	return faultinject.Filter{
		Number: unix.SYS_OPENAT, Errno: unix.EMFILE, When: append(faultinject.Below(0),
			faultinject.Arg{Index: 2, Is: uint32(flags | guarded)}),
	}
}

func call(number uintptr, errno unix.Errno, when ...faultinject.Arg) faultinject.Filter {
	return faultinject.Filter{Number: number, Errno: errno, When: when}
}

// byPath is an open by path as package os does it.
func byPath() faultinject.Filter {
	cwd := unix.AT_FDCWD
	return call(unix.SYS_OPENAT, unix.ENFILE, faultinject.Arg{Index: 0, Is: uint32(int32(cwd))},
		faultinject.Arg{Index: 2, Is: unix.O_CLOEXEC})
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
		_, err := ReadShared(dir, "f", 10)
		return err
	}
	shared := func(dir string) error { return Share(dir, "none", user, 4096) }
	writing := unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL
	for name, test := range map[string]struct {
		call faultinject.Filter
		do   func(dir string) error
		want error // nil: the call's own
	}{
		"open a new file":     {call: opening(writing), do: replace},
		"write":               {call: call(unix.SYS_WRITE, unix.EIO), do: replace},
		"let a user read":     {call: call(unix.SYS_FSETXATTR, unix.EOPNOTSUPP), do: readable},
		"sync":                {call: call(unix.SYS_FSYNC, unix.EIO), do: durable},
		"rename":              {call: call(unix.SYS_RENAMEAT, unix.ENOSPC, faultinject.Below(0)...), do: replace},
		"rotate a log":        {call: call(unix.SYS_RENAMEAT, unix.ENOSPC, faultinject.Below(0)...), do: rotated},
		"read":                {call: call(unix.SYS_READ, unix.EIO), do: read},
		"find a user's mount": {call: byPath(), do: foreign},
		"let a user write":    {call: call(unix.SYS_FSETXATTR, unix.EOPNOTSUPP), do: shared},
		"reserve":             {call: call(unix.SYS_FALLOCATE, unix.ENOSPC), do: shared},
		"open a user's directory": {call: opening(unix.O_RDONLY | unix.O_DIRECTORY),
			do: func(dir string) error { return MakeDirFor(dir, "sub", user) }},
		"make a directory": {call: call(unix.SYS_MKDIRAT, unix.ENOSPC),
			do: func(dir string) error { return MakeDir(dir, "d", 0o755) }},
		"a log that others write": {do: func(dir string) error { return Append(dir, "open", nil, 10) },
			want: ErrNotOurs},
	} {
		t.Run(name, func(t *testing.T) {
			dir := must.RootsDir(t)
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
			must.Do(t, faultinject.Refuse([]faultinject.Filter{test.call}, func() { err = test.do(dir) }))
			must.Fail(t, "error", err, test.want)
			must.Be(t, "open descriptors", descriptors(t), before)
			if now := entries(t, dir); now != files || must.Read(t, at("f")) != "old" {
				t.Errorf("there is %q with %q, and was %q", now, must.Read(t, at("f")), files)
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
	dir := must.RootsDir(t)
	put(t, filepath.Join(dir, "f"), "text", 0o600)
	must.Have(ReadShared(dir, "f", 10))(t)
	var err error
	nothing := call(unix.SYS_READ, 0) // what it says of a descriptor is empty
	must.Do(t, faultinject.Refuse([]faultinject.Filter{nothing}, func() { _, err = ReadShared(dir, "f", 10) }))
	must.Not(t, err == nil, "it was read")
}
