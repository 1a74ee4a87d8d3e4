package safefile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bookend/test/must"
)

func TestReadShared(t *testing.T) {
	for name, tt := range map[string]struct {
		there string
		want  error
	}{
		"root's":              {"file:record", nil},
		"missing":             {"", fs.ErrNotExist},
		"too large":           {"long:record", ErrTooLarge},
		"a user's":            {"file:record others:record", ErrNotOurs},
		"symbolic link":       {"file:other link:other>record", ErrNotOurs},
		"hard link":           {"file:record hard:record>other", ErrNotOurs},
		"FIFO":                {"fifo:record", ErrNotOurs},
		"device":              {"null:record", ErrNotOurs},
		"folder":              {"folder:record", ErrNotOurs},
		"mount":               {"file:record file:other mount:other>record", ErrNotOurs},
		"lease":               {"file:record lease:record", ErrNotOurs},
		"another's directory": {"file:record others:.", ErrNotOurs},
	} {
		b, err := ReadShared(arranged(t, tt.there), "record", 6)
		must.Not(t, !errors.Is(err, tt.want) || err == nil && string(b) != "before",
			"%s: got %q, %v, want %v", name, b, err, tt.want)
	}
}

// asUser runs a shell command as a user, and reports whether it succeeded.
func asUser(uid uint32, command string) bool {
	cmd := exec.Command("/bin/sh", "-c", command)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	return cmd.Run() == nil
}

// A file that is shared with a user is a new one, whatever process holds the old one, and stays root's.
func TestShare(t *testing.T) {
	dir := arranged(t, "file:7 others:7 folder:folder")
	path := filepath.Join(dir, "7")
	old := must.Have(os.OpenFile(path, os.O_RDWR, 0))(t)
	defer old.Close()
	must.Do(t, Share(dir, "7", user, 4096))
	must.Have(old.WriteString("again"))(t)
	var st unix.Stat_t
	must.Do(t, unix.Lstat(path, &st))
	must.Not(t, st.Uid != 0 || st.Mode != unix.S_IFREG|0o660 || st.Size != 0 || st.Blocks == 0, "got %+v", st)
	must.Fail(t, "a directory", Share(dir, "folder", user, 1), unix.EISDIR)
	for command, may := range map[string]bool{"echo x >>" + path: true, "cat " + path: true, "rm -f " + path: false,
		"chmod 666 " + path: false, "setfacl -m u:1:rw " + path: false} {
		must.Be(t, command, asUser(user, command), may)
		must.Be(t, "another user: "+command, asUser(user-1, command), false)
	}
}

// Nothing of a user's directory shows to others, whatever happens in it.
func TestMakeDirFor(t *testing.T) {
	parent := arranged(t, "file:file link:d>link folder:users others:users")
	for range 2 {
		must.Do(t, MakeDirFor(parent, "d", user))
		must.Do(t, MakeDir(filepath.Join(parent, "d"), "jobs", 0o711))
		put(t, filepath.Join(parent, "d/jobs/f"), "text", 0o644)
		read := "cat " + filepath.Join(parent, "d/jobs/f")
		must.Be(t, "its user", asUser(user, read), true)
		for _, command := range []string{read, "stat " + parent + "/d/jobs", "ls " + parent + "/d"} {
			must.Be(t, command, asUser(user-1, command), false)
		}
		must.Be(t, "its user writes", asUser(user, "touch "+parent+"/d/jobs/g || touch "+parent+"/d/g"), false)
	}
	for _, name := range []string{"file", "link", "users"} {
		must.Fail(t, name, MakeDirFor(parent, name, user), ErrNotOurs)
	}
}

func TestEdit(t *testing.T) {
	dir := arranged(t, "file:f file:theirs others:theirs file:linked link:linked>link hard:f>second long:long")
	to := func(text string) func([]byte) ([]byte, error) {
		return func([]byte) ([]byte, error) { return []byte(text), nil }
	}
	for name, want := range map[string]error{"theirs": ErrNotOurs, "link": unix.ELOOP, "none": fs.ErrNotExist,
		"f": ErrNotOurs} {
		must.Fail(t, name, Edit(dir, name, 0, 100, to("x")), want)
	}
	must.Do(t, os.Remove(filepath.Join(dir, "second")))
	for _, tt := range []struct{ text, want string }{{"short", "short "}, {"a longer one", "a longer one"}} {
		must.Do(t, Edit(dir, "f", 0, 100, to(tt.text)))
		must.Be(t, "content", must.Read(t, filepath.Join(dir, "f")), tt.want)
	}
	must.Fail(t, "refused", Edit(dir, "f", 0, 100, func([]byte) ([]byte, error) { return nil, fs.ErrInvalid }), fs.ErrInvalid)
	must.Do(t, Edit(dir, "long", 0, 6, func(old []byte) ([]byte, error) { return []byte("not " + string(old)), nil }))
	must.Be(t, "what was too large", must.Read(t, filepath.Join(dir, "long")), "not re and more")
	held := must.Have(Lock(filepath.Join(dir, "f"), 0, true))(t)
	must.Fail(t, "held", Edit(dir, "f", 0, 100, to("x")), ErrLocked)
	held()
}

// What another user writes takes nothing of what is reserved for a file, and root can take it back.
func TestReservedSpace(t *testing.T) {
	dir := smallTmpfs(t, "64k")
	must.Do(t, errors.Join(Share(dir, "f", user, 4096), Share(dir, "foe", user-1, 4096)))
	foe := must.Have(os.OpenFile(filepath.Join(dir, "foe"), os.O_RDWR, 0))(t)
	defer foe.Close()
	_, err := foe.Write(make([]byte, 1<<20))
	must.Fail(t, "the file system is full", err, unix.ENOSPC)
	must.Fail(t, "without room", Share(dir, "late", user, 4096), unix.ENOSPC)
	for _, text := range []string{strings.Repeat("x", 4096), "short"} {
		must.Do(t, Edit(dir, "f", 0, 4096, func([]byte) ([]byte, error) { return []byte(text), nil }))
		must.Be(t, "content", strings.TrimRight(string(must.Have(ReadShared(dir, "f", 4096))(t)), " "), text)
	}
	must.Do(t, Clear(dir, "foe", 4096))
	must.Do(t, Share(dir, "late", user, 4096))
	must.Fail(t, "nothing to clear", Clear(dir, "none", 0), fs.ErrNotExist)
}

func TestMakeDir(t *testing.T) {
	old := unix.Umask(0o077)
	defer unix.Umask(old)
	parent := arranged(t, "file:file link:d>link folder:users others:users folder:mount mount:sub>mount")
	for _, mode := range []os.FileMode{0o755, 0o711, 0o711} { // as if the first maker had been interrupted
		must.Do(t, MakeDir(parent, "d", mode))
		info, err := os.Lstat(filepath.Join(parent, "d"))
		must.Not(t, err != nil || info.Mode() != os.ModeDir|mode, "got %v, %v, want %v", info, err, mode)
	}
	for _, name := range []string{"file", "link", "users", "mount"} {
		must.Fail(t, name, MakeDir(parent, name, 0o700), ErrNotOurs)
	}
}

func TestAppend(t *testing.T) {
	dir := arranged(t, "fifo:fifo link:log>link")
	for _, line := range []string{"one\n", "two\n", "three\n", "four"} {
		must.Do(t, Append(dir, "log", []byte(line), 10))
	}
	a, b := must.Read(t, filepath.Join(dir, "log.1")), must.Read(t, filepath.Join(dir, "log"))
	must.Not(t, a != "one\ntwo\n" || b != "three\nfour", "log.1 %q, log %q", a, b)
	must.Fail(t, "large entry", Append(dir, "log", make([]byte, 11), 10), ErrTooLarge)
	must.Fail(t, "FIFO", Append(dir, "fifo", nil, 10), unix.ENXIO)
	must.Fail(t, "link", Append(dir, "link", nil, 10), unix.ELOOP)
}

func TestLockNumber(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	const most = 1<<32 - 1
	release := must.Have(LockNumber(path, most, 0))(t)
	must.Fail(t, "held", must.Err(LockNumber(path, most, 5*time.Millisecond)), ErrLocked)
	for _, n := range []uint32{0, 7, most - 1} {
		other := must.Have(LockNumber(path, n, 0))(t)
		other() // which ends no other's
	}
	must.Fail(t, "after another number", must.Err(LockNumber(path, most, 0)), ErrLocked)
	release()
	again := must.Have(LockNumber(path, most, 0))(t)
	again()
	st, err := os.Stat(path)
	must.Not(t, err != nil || st.Size() != 0 || st.Mode().Perm() != 0o600, "got %v, %v", st, err)
}

func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	release := must.Have(Lock(path, 0, true))(t)
	must.Fail(t, "held", must.Err(Lock(path, 5*time.Millisecond, false)), ErrLocked)
	waiting := make(chan error)
	go func() {
		again, err := Lock(path, time.Minute, true)
		if err == nil {
			again()
		}
		waiting <- err
	}()
	release()
	must.Do(t, <-waiting)

	one := must.Have(Lock(path, 0, false))(t)
	two := must.Have(Lock(path, 0, false))(t)
	must.Fail(t, "shared and exclusive at once", must.Err(Lock(path, 0, true)), ErrLocked)
	_, _, err := LockLong(path, 0)
	must.Fail(t, "shared, and exclusive for long", err, ErrLocked)
	one()
	two()
	last := must.Have(Lock(path, time.Minute, true))(t)
	last()
}

// arranged is a folder of root's with a folder sub, and what the words say.
func arranged(t *testing.T, words string) (dir string) {
	t.Helper()
	dir = must.RootsDir(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	for word := range strings.FieldsSeq("folder:sub " + words) {
		kind, name, _ := strings.Cut(word, ":")
		from, to, _ := strings.Cut(name, ">")
		switch kind {
		case "file":
			put(t, at(name), "before", 0o644)
		case "long":
			put(t, at(name), "before and more", 0o600)
		case "open":
			put(t, at(name), "", 0o602)
		case "folder":
			must.Do(t, os.Mkdir(at(name), 0o755))
		case "others":
			must.Do(t, os.Lchown(at(name), user, user))
		case "fifo":
			must.Do(t, unix.Mkfifo(at(name), 0o666))
		case "null":
			must.Do(t, unix.Mknod(at(name), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))))
		case "link":
			must.Do(t, os.Symlink(strings.Replace(from, "DIR", dir, 1), at(to)))
		case "hard":
			must.Do(t, os.Link(at(from), at(to)))
		case "mount":
			must.Do(t, unix.Mount(at(from), at(to), "", unix.MS_BIND, ""))
			t.Cleanup(func() { must.Do(t, unix.Unmount(at(to), unix.MNT_DETACH)) })
		case "lease": // which would make a careless reader wait for 45 s
			f := must.Have(os.OpenFile(at(name), os.O_RDWR, 0))(t)
			t.Cleanup(func() { f.Close() })
			must.Have(unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK))(t)
		}
	}
	return dir
}

func TestCreate(t *testing.T) {
	for name, tt := range map[string]struct {
		there   string
		path    string
		over    bool
		err     error
		written string // the file that is written; empty: none
	}{
		"a new file":                       {"", "new", false, nil, "new"},
		"in a user's directory":            {"others:sub", "sub/new", false, nil, "sub/new"},
		"one that is there":                {"file:old", "old", false, fs.ErrExist, ""},
		"one that is there, replacing":     {"file:old", "old", true, nil, "old"},
		"another's, replacing":             {"file:old others:old", "old", true, nil, "old"},
		"a link in its place":              {"link:victim>l", "l", false, fs.ErrExist, ""},
		"a link in its place, replacing":   {"file:victim link:victim>l", "l", true, ErrNotOurs, ""},
		"a FIFO, replacing":                {"fifo:p", "p", true, ErrNotOurs, ""},
		"a directory, replacing":           {"", "sub", true, ErrNotOurs, ""},
		"through a link of one's own":      {"link:sub>l", "l/new", false, nil, "sub/new"},
		"through an absolute link":         {"link:DIR/sub>l", "l/new", false, nil, "sub/new"},
		"through a link upwards":           {"link:../sub>sub/l", "sub/l/new", false, nil, "sub/new"},
		"through a link of another's":      {"link:sub>l others:l", "l/new", false, ErrUntrusted, ""},
		"through another's, replacing":     {"link:sub>l others:l", "l/new", true, ErrUntrusted, ""},
		"through a link to itself":         {"link:l>l", "l/new", false, unix.ELOOP, ""},
		"in a directory that is not there": {"", "none/new", false, fs.ErrNotExist, ""},
		"a directory's name":               {"", "sub/", false, unix.EINVAL, ""},
		"the directory itself":             {"", "sub/..", false, unix.EINVAL, ""},
		"with dots and slashes on the way": {"", "./sub//.././new", false, nil, "new"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := arranged(t, tt.there)
			err := Create(dir+"/"+tt.path, []byte("content"), tt.over)
			must.Not(t, !errors.Is(err, tt.err) || (err == nil) != (tt.err == nil), "%v, want %v", err, tt.err)
			for _, name := range []string{"old", "victim"} {
				got, err := os.ReadFile(filepath.Join(dir, name))
				must.Not(t, err == nil && name != tt.written && string(got) != "before", "%s has %q", name, got)
			}
			if tt.written == "" {
				if got := entries(t, filepath.Join(dir, "sub")); got != "" && got != "l" {
					t.Errorf("left %q", got)
				}
				return
			}
			must.Be(t, "content", must.Read(t, filepath.Join(dir, tt.written)), "content")
			var st unix.Stat_t
			must.Do(t, unix.Lstat(filepath.Join(dir, tt.written), &st))
			must.Not(t, st.Mode != unix.S_IFREG|0o600 || st.Uid != 0, "mode %#o of user %d", st.Mode, st.Uid)
		})
	}
}

func TestCreateInTheWorkingDirectory(t *testing.T) {
	dir := arranged(t, "")
	t.Chdir(dir)
	must.Do(t, errors.Join(Create("page.html", []byte("content"), false), Create("sub/page.html", nil, false)))
	must.Be(t, "content", must.Read(t, dir+"/page.html"), "content")
}

// A file that does not fit leaves nothing.
func TestCreateWithoutRoom(t *testing.T) {
	for _, over := range []bool{false, true} {
		dir := smallTmpfs(t, "4k")
		must.Fail(t, fmt.Sprint("replacing ", over), Create(dir+"/page.html", make([]byte, 1<<16), over), unix.ENOSPC)
		must.Be(t, "left", entries(t, dir), "")
	}
}

func TestReadGiven(t *testing.T) {
	dir := arranged(t, "file:users others:users long:long link:users>link fifo:fifo")
	for name, want := range map[string]error{"users": nil, "long": ErrTooLarge, "link": unix.ELOOP,
		"fifo": ErrNotOurs, "none": fs.ErrNotExist, ".": ErrNotOurs} {
		got, err := ReadGiven(filepath.Join(dir, name), 8)
		must.Not(t, !errors.Is(err, want) || want == nil && string(got) != "before",
			"%s: %q, %v, want %v", name, got, err, want)
	}
}

// Two nodes that add to one file at the same time lose no line and add none twice.
func TestAddLine(t *testing.T) {
	dir := arranged(t, "file:users link:users>link")
	path := dir + "/bad.txt"
	done := make(chan error)
	for i := range 20 {
		go func() { done <- AddLine(path, fmt.Sprint("n", i%5)) }()
	}
	for range 20 {
		must.Do(t, <-done)
	}
	lines := strings.Fields(must.Read(t, path))
	slices.Sort(lines)
	must.Be(t, "lines", strings.Join(lines, " "), "n0 n1 n2 n3 n4")
	must.Do(t, AddLine(dir+"/users", "n1"))
	must.Be(t, "a file whose last line has no end", must.Read(t, dir+"/users"), "before\nn1\n")
	must.Fail(t, "a link", AddLine(dir+"/link", "n1"), unix.ELOOP)
}
