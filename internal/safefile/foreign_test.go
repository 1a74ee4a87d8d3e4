package safefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// drop is a user's folder in an own one.
func drop(t *testing.T) string {
	t.Helper()
	parent := t.TempDir()
	ok(t, MakeDir(parent, "7", 0o700, user, user))
	return filepath.Join(parent, "7")
}

func putForeign(t *testing.T, path, content string) {
	t.Helper()
	put(t, path, content, 0o600)
	ok(t, os.Chown(path, user, user))
}

func TestReadForeign(t *testing.T) {
	dir := drop(t)
	putForeign(t, filepath.Join(dir, "record"), "12345")
	b, err := ReadForeign(dir, "record", user, 5)
	if err != nil || string(b) != "12345" {
		t.Errorf("got %q, %v", b, err)
	}
}

func TestReadForeignRefuses(t *testing.T) {
	tests := map[string]struct {
		plant func(t *testing.T, dir, path string)
		want  error
	}{
		"missing":   {func(*testing.T, string, string) {}, fs.ErrNotExist},
		"too large": {func(t *testing.T, _, path string) { putForeign(t, path, "123456") }, ErrTooLarge},
		"root's file": {func(t *testing.T, _, path string) {
			put(t, path, "", 0o644)
		}, ErrNotOurs},
		"symbolic link": {func(t *testing.T, dir, path string) {
			putForeign(t, filepath.Join(dir, "other"), "")
			ok(t, os.Symlink("other", path))
		}, ErrNotOurs},
		"hard link": {func(t *testing.T, dir, path string) {
			putForeign(t, path, "")
			ok(t, os.Link(path, filepath.Join(dir, "other")))
		}, ErrNotOurs},
		"FIFO": {func(t *testing.T, _, path string) {
			ok(t, unix.Mkfifo(path, 0o600))
			ok(t, os.Chown(path, user, user))
		}, ErrNotOurs},
		"device": {func(t *testing.T, _, path string) {
			ok(t, unix.Mknod(path, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 5))))
			ok(t, os.Chown(path, user, user))
		}, ErrNotOurs},
		"folder": {func(t *testing.T, _, path string) {
			ok(t, os.Mkdir(path, 0o700))
			ok(t, os.Chown(path, user, user))
		}, ErrNotOurs},
		"mount over the folder": {func(t *testing.T, dir, path string) {
			mount(t, dir)
			putForeign(t, path, "")
		}, ErrNotOurs},
		"mount over the file": {func(t *testing.T, dir, path string) {
			putForeign(t, path, "")
			source := filepath.Join(dir, "other")
			putForeign(t, source, "")
			ok(t, unix.Mount(source, path, "", unix.MS_BIND, ""))
			t.Cleanup(func() { ok(t, unix.Unmount(path, unix.MNT_DETACH)) })
		}, ErrNotOurs},
		"another's folder": {func(t *testing.T, dir, path string) {
			putForeign(t, path, "")
			ok(t, os.Chown(dir, user-1, user))
		}, ErrNotOurs},
		"linked folder": {func(t *testing.T, dir, path string) {
			putForeign(t, path, "")
			ok(t, os.Rename(dir, dir+"-moved"))
			ok(t, os.Symlink(dir+"-moved", dir))
		}, ErrNotOurs},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir := drop(t)
			test.plant(t, dir, filepath.Join(dir, "record"))
			if _, err := ReadForeign(dir, "record", user, 5); !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
		})
	}
}

func mount(t *testing.T, dir string) {
	t.Helper()
	ok(t, unix.Mount("none", dir, "tmpfs", 0, "uid=65534,gid=65534"))
	t.Cleanup(func() { ok(t, unix.Unmount(dir, unix.MNT_DETACH)) })
}

// A lease on the file, which would make a careless reader wait for 45 s.
func TestReadForeignDoesNotWaitForALease(t *testing.T) {
	dir := drop(t)
	path := filepath.Join(dir, "record")
	putForeign(t, path, "x")
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	ok(t, err)
	defer f.Close()
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadForeign(dir, "record", user, 5); !errors.Is(err, unix.EWOULDBLOCK) {
		t.Errorf("got %v, want EWOULDBLOCK", err)
	}
}

// While a user swaps the file for links and FIFOs as fast as he can, only his own content is ever read.
func TestReadForeignUnderSwaps(t *testing.T) {
	dir := drop(t)
	secret := filepath.Join(t.TempDir(), "secret")
	put(t, secret, "secret", 0o600)
	path := filepath.Join(dir, "record")
	stop := make(chan struct{})
	var swapper sync.WaitGroup
	swapper.Go(func() {
		for {
			for _, swap := range []func(string) error{
				func(p string) error { return os.Symlink(secret, p) },
				func(p string) error { return unix.Mkfifo(p, 0o600) },
				func(p string) error { return os.Link(secret, p) },
				func(p string) error { putForeign(t, p, "own"); return nil },
			} {
				select {
				case <-stop:
					return
				default:
				}
				ok(t, swap(path+"-new"))
				ok(t, os.Rename(path+"-new", path))
			}
		}
	})
	read := 0
	for range 20000 {
		b, err := ReadForeign(dir, "record", user, 100)
		if err == nil && string(b) != "own" {
			t.Errorf("read %q", b)
			break
		}
		if err == nil {
			read++
		}
	}
	close(stop)
	swapper.Wait()
	if read == 0 {
		t.Error("never read the user's own file")
	}
}

func TestMakeDir(t *testing.T) {
	parent := t.TempDir()
	path := filepath.Join(parent, "d")
	check := func(mode uint32, uid uint32) {
		t.Helper()
		var st unix.Stat_t
		ok(t, unix.Lstat(path, &st))
		if st.Mode != unix.S_IFDIR|mode || st.Uid != uid {
			t.Errorf("mode %#o, owner %d; want %#o, %d", st.Mode, st.Uid, mode, uid)
		}
	}
	ok(t, MakeDir(parent, "d", 0o755, 0, 0))
	check(0o755, 0)
	ok(t, MakeDir(parent, "d", 0o700, user, user)) // as if the first maker had been interrupted
	check(0o700, user)
	ok(t, MakeDir(parent, "d", 0o700, user, user))
	ok(t, os.Chmod(path, 0o777))
	if err := MakeDir(parent, "d", 0o700, user, user); !errors.Is(err, ErrNotOurs) {
		t.Errorf("other mode: %v", err)
	}
	if err := MakeDir(parent, "d", 0o777, user-1, user); !errors.Is(err, ErrNotOurs) {
		t.Errorf("other owner: %v", err)
	}
	put(t, filepath.Join(parent, "file"), "", 0o600)
	ok(t, os.Symlink("d", filepath.Join(parent, "link")))
	for _, name := range []string{"file", "link"} {
		if err := MakeDir(parent, name, 0o700, 0, 0); !errors.Is(err, ErrNotOurs) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestMakeDirUnderAMount(t *testing.T) {
	dir := drop(t)
	mount(t, dir)
	if err := MakeDir(filepath.Dir(dir), "7", 0o700, user, user); !errors.Is(err, ErrNotOurs) {
		t.Errorf("got %v, want %v", err, ErrNotOurs)
	}
}

func TestAppend(t *testing.T) {
	dir := t.TempDir()
	for _, line := range []string{"one\n", "two\n", "three\n", "four"} {
		ok(t, Append(dir, "log", []byte(line), 10))
	}
	if a, b := content(t, filepath.Join(dir, "log.1")), content(t, filepath.Join(dir, "log")); a != "one\ntwo\n" ||
		b != "three\nfour" {
		t.Errorf("log.1 %q, log %q", a, b)
	}
	if err := Append(dir, "log", make([]byte, 11), 10); !errors.Is(err, ErrTooLarge) {
		t.Errorf("large entry: %v", err)
	}
	ok(t, unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600))
	if err := Append(dir, "fifo", nil, 10); !errors.Is(err, unix.ENXIO) {
		t.Errorf("FIFO: %v", err)
	}
	ok(t, os.Symlink("log", filepath.Join(dir, "link")))
	if err := Append(dir, "link", nil, 10); !errors.Is(err, unix.ELOOP) {
		t.Errorf("link: %v", err)
	}
}

// An entry that a full disk cut off does not swallow the next one.
func TestAppendAfterACut(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	put(t, log, "one\ntw", 0o640)
	ok(t, Append(dir, "log", []byte("three\n"), 100))
	ok(t, Append(dir, "log", []byte("four\n"), 100))
	if text := content(t, log); text != "one\ntw\nthree\nfour\n" {
		t.Errorf("log %q", text)
	}
	put(t, log, "one\ntw", 0o640)
	ok(t, Append(dir, "log", []byte("3\n"), 8)) // no room for both: the log is rotated
	if a, b := content(t, log+".1"), content(t, log); a != "one\ntw" || b != "3\n" {
		t.Errorf("log.1 %q, log %q", a, b)
	}
}

// Hooks that run at once lose no entry while the log is rotated once.
func TestAppendTogether(t *testing.T) {
	dir := t.TempDir()
	const each, writers = 100, 8
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			for range each {
				if err := Append(dir, "log", []byte("0123456789abcde\n"), 16*each*writers*3/4); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	size := len(content(t, filepath.Join(dir, "log"))) + len(content(t, filepath.Join(dir, "log.1")))
	if size != 16*each*writers {
		t.Errorf("%d bytes in both logs, want %d", size, 16*each*writers)
	}
}

func TestLockNumber(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	const most = 1<<32 - 1
	release, err := LockNumber(path, most, 0)
	ok(t, err)
	if _, err := LockNumber(path, most, 5*time.Millisecond); !errors.Is(err, ErrLocked) {
		t.Errorf("got %v, want %v", err, ErrLocked)
	}
	for _, n := range []uint32{0, 7, most - 1} {
		other, err := LockNumber(path, n, 0)
		ok(t, err)
		other() // which ends no other's
	}
	if _, err := LockNumber(path, most, 0); !errors.Is(err, ErrLocked) {
		t.Errorf("after another number: got %v, want %v", err, ErrLocked)
	}
	release()
	again, err := LockNumber(path, most, 0)
	ok(t, err)
	again()
	if st, err := os.Stat(path); err != nil || st.Size() != 0 || st.Mode().Perm() != 0o600 {
		t.Errorf("got %v, %v", st, err)
	}
}

func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	release, err := Lock(path, 0, true)
	ok(t, err)
	if _, err := Lock(path, 5*time.Millisecond, false); !errors.Is(err, ErrLocked) {
		t.Errorf("got %v, want %v", err, ErrLocked)
	}
	waiting := make(chan error)
	go func() {
		again, err := Lock(path, time.Minute, true)
		if err == nil {
			again()
		}
		waiting <- err
	}()
	release()
	ok(t, <-waiting)

	one, err := Lock(path, 0, false)
	ok(t, err)
	two, err := Lock(path, 0, false)
	ok(t, err)
	if _, err := Lock(path, 0, true); !errors.Is(err, ErrLocked) {
		t.Errorf("shared and exclusive at once: %v", err)
	}
	one()
	two()
	last, err := Lock(path, time.Minute, true)
	ok(t, err)
	last()
}
