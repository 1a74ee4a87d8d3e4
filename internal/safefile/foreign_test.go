package safefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bookend/test/must"
)

func putForeign(t *testing.T, path, content string) {
	t.Helper()
	put(t, path, content, 0o600)
	must.Do(t, os.Chown(path, user, user))
}

func TestReadForeign(t *testing.T) {
	for name, tt := range map[string]struct {
		plant func(t *testing.T, dir, path string)
		want  error
	}{
		"the user's": {func(t *testing.T, _, path string) { putForeign(t, path, "12345") }, nil},
		"missing":    {func(*testing.T, string, string) {}, fs.ErrNotExist},
		"too large":  {func(t *testing.T, _, path string) { putForeign(t, path, "123456") }, ErrTooLarge},
		"root's":     {func(t *testing.T, _, path string) { put(t, path, "", 0o644) }, ErrNotOurs},
		"symbolic link": {func(t *testing.T, dir, path string) {
			putForeign(t, filepath.Join(dir, "other"), "")
			must.Do(t, os.Symlink("other", path))
		}, ErrNotOurs},
		"hard link": {func(t *testing.T, dir, path string) {
			putForeign(t, path, "")
			must.Do(t, os.Link(path, filepath.Join(dir, "other")))
		}, ErrNotOurs},
		"FIFO": {func(t *testing.T, _, path string) {
			must.Do(t, unix.Mkfifo(path, 0o600))
			must.Do(t, os.Chown(path, user, user))
		}, ErrNotOurs},
		"device": {func(t *testing.T, _, path string) {
			must.Do(t, unix.Mknod(path, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 5))))
			must.Do(t, os.Chown(path, user, user))
		}, ErrNotOurs},
		"folder": {func(t *testing.T, _, path string) {
			must.Do(t, os.Mkdir(path, 0o700))
			must.Do(t, os.Chown(path, user, user))
		}, ErrNotOurs},
		"mount": {func(t *testing.T, dir, path string) {
			putForeign(t, path, "")
			source := filepath.Join(dir, "other")
			putForeign(t, source, "")
			must.Do(t, unix.Mount(source, path, "", unix.MS_BIND, ""))
			t.Cleanup(func() { must.Do(t, unix.Unmount(path, unix.MNT_DETACH)) })
		}, ErrNotOurs},
		"lease": {func(t *testing.T, _, path string) { // which would make a careless reader wait for 45 s
			putForeign(t, path, "x")
			f := must.Have(os.OpenFile(path, os.O_RDWR, 0))(t)
			t.Cleanup(func() { f.Close() })
			must.Have(unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK))(t)
		}, unix.EWOULDBLOCK},
		"another's directory": {func(t *testing.T, dir, path string) {
			putForeign(t, path, "")
			must.Do(t, os.Chown(dir, user, user))
		}, ErrNotOurs},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			tt.plant(t, dir, filepath.Join(dir, "record"))
			b, err := ReadForeign(dir, "record", user, 5)
			if !errors.Is(err, tt.want) || err == nil && string(b) != "12345" {
				t.Errorf("got %q, %v, want %v", b, err, tt.want)
			}
		})
	}
}

// A file that is given to a user is a new one, whoever holds the old one; the user rewrites it, and nothing else.
func TestGiveAndRewrite(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	putForeign(t, at("7"), "theirs")
	old := must.Have(os.OpenFile(at("7"), os.O_RDWR, 0))(t)
	defer old.Close()
	must.Do(t, Give(dir, "7", user-1, user-1))
	must.Have(old.WriteString("again"))(t)
	var st unix.Stat_t
	must.Do(t, unix.Lstat(at("7"), &st))
	if st.Uid != user-1 || st.Gid != user-1 || st.Mode != unix.S_IFREG|0o600 || st.Size != 0 {
		t.Errorf("got %+v", st)
	}
	must.Do(t, os.Mkdir(at("folder"), 0o700))
	must.Fail(t, "a directory", Give(dir, "folder", user, user), unix.EISDIR)
	put(t, at("own"), "long text", 0o600)
	must.Do(t, Rewrite(dir, "own", []byte("short")))
	must.Do(t, os.Symlink("own", at("link")))
	for name, want := range map[string]error{"7": ErrNotOurs, "link": unix.ELOOP, "none": fs.ErrNotExist} {
		must.Fail(t, name, Rewrite(dir, name, []byte("x")), want)
	}
	must.Be(t, "content", content(t, at("own")), "short")
}

func TestMakeDir(t *testing.T) {
	parent := t.TempDir()
	path := filepath.Join(parent, "d")
	old := unix.Umask(0o077)
	defer unix.Umask(old)
	for _, mode := range []os.FileMode{0o755, 0o711, 0o711} { // as if the first maker had been interrupted
		must.Do(t, MakeDir(parent, "d", mode))
		if info, err := os.Lstat(path); err != nil || info.Mode() != os.ModeDir|mode {
			t.Errorf("got %v, %v, want %v", info, err, mode)
		}
	}
	put(t, filepath.Join(parent, "file"), "", 0o600)
	must.Do(t, os.Symlink("d", filepath.Join(parent, "link")))
	must.Do(t, os.Mkdir(filepath.Join(parent, "users"), 0o700))
	must.Do(t, os.Chown(filepath.Join(parent, "users"), user, user))
	must.Do(t, os.Mkdir(filepath.Join(parent, "mount"), 0o700))
	must.Do(t, unix.Mount("none", filepath.Join(parent, "mount"), "tmpfs", 0, ""))
	t.Cleanup(func() { must.Do(t, unix.Unmount(filepath.Join(parent, "mount"), unix.MNT_DETACH)) })
	for _, name := range []string{"file", "link", "users", "mount"} {
		must.Fail(t, name, MakeDir(parent, name, 0o700), ErrNotOurs)
	}
}

func TestAppend(t *testing.T) {
	dir := t.TempDir()
	for _, line := range []string{"one\n", "two\n", "three\n", "four"} {
		must.Do(t, Append(dir, "log", []byte(line), 10))
	}
	if a, b := content(t, filepath.Join(dir, "log.1")), content(t, filepath.Join(dir, "log")); a != "one\ntwo\n" ||
		b != "three\nfour" {
		t.Errorf("log.1 %q, log %q", a, b)
	}
	must.Fail(t, "large entry", Append(dir, "log", make([]byte, 11), 10), ErrTooLarge)
	must.Do(t, unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600))
	must.Fail(t, "FIFO", Append(dir, "fifo", nil, 10), unix.ENXIO)
	must.Do(t, os.Symlink("log", filepath.Join(dir, "link")))
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
	if st, err := os.Stat(path); err != nil || st.Size() != 0 || st.Mode().Perm() != 0o600 {
		t.Errorf("got %v, %v", st, err)
	}
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
	one()
	two()
	last := must.Have(Lock(path, time.Minute, true))(t)
	last()
}
