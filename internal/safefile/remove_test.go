package safefile

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"bookend/test/refuse"
)

func always() bool { return true }

// users makes a tree of the user's: deep folders, with files and links beside them.
func users(t *testing.T, dir, outside string) {
	t.Helper()
	deep := filepath.Join(dir, strings.Repeat("d/", 200))
	ok(t, os.MkdirAll(deep, 0o700))
	for _, name := range []string{"0/x", "1", "2/0/0", "3/0"} {
		ok(t, os.MkdirAll(filepath.Join(dir, name), 0o700))
	}
	for _, name := range []string{"file", "3/file", "4", "d/d/d/0"} {
		put(t, filepath.Join(dir, name), "x", 0o600)
	}
	ok(t, os.Symlink(outside, filepath.Join(deep, "link")))
	ok(t, os.Symlink(outside, filepath.Join(dir, "link")))
	ok(t, unix.Mkfifo(filepath.Join(dir, "d/d/pipe"), 0o600))
	ok(t, exec.Command("chown", "-hR", "65534:65534", dir).Run())
}

func TestRemoveTree(t *testing.T) {
	parent, outside := t.TempDir(), t.TempDir()
	put(t, filepath.Join(outside, "keep"), "x", 0o600)
	ok(t, MakeDir(parent, "job", 0o700, user, user))
	users(t, filepath.Join(parent, "job"), outside)
	put(t, filepath.Join(parent, "file"), "x", 0o600)
	ok(t, os.Symlink(outside, filepath.Join(parent, "link")))
	for _, name := range []string{"job", "file", "link", "nothing"} {
		ok(t, RemoveTree(parent, name, always))
	}
	if left := entries(t, parent); left != "" {
		t.Errorf("left: %q", left)
	}
	if entries(t, outside) != "keep" {
		t.Error("a link led out")
	}
}

// Wherever it is stopped, the next one goes on; each of them gets further.
func TestRemoveTreeIsBounded(t *testing.T) {
	parent := t.TempDir()
	ok(t, MakeDir(parent, "job", 0o700, user, user))
	users(t, filepath.Join(parent, "job"), parent)
	calls, done := 0, false
	for ; !done; calls++ {
		if calls > 1000 {
			t.Fatal("it does not end")
		}
		steps := 10
		err := RemoveTree(parent, "job", func() bool { steps--; return steps >= 0 })
		if done = err == nil; !done && !errors.Is(err, ErrUnfinished) {
			t.Fatal(err)
		}
	}
	if calls < 30 {
		t.Errorf("done after %d calls of ten steps", calls)
	}
}

// A mount point stays, at the top and further down, and nothing in it is touched; the rest goes, and what stays is
// root's.
func TestRemoveTreeLeavesMounts(t *testing.T) {
	parent := t.TempDir()
	ok(t, MakeDir(parent, "job", 0o700, user, user))
	users(t, filepath.Join(parent, "job"), parent)
	kept := filepath.Join(parent, "job/2/0/0")
	ok(t, unix.Mount("none", kept, "tmpfs", 0, ""))
	put(t, filepath.Join(kept, "kept"), "x", 0o600)
	if err := RemoveTree(parent, "job", always); !errors.Is(err, unix.EBUSY) {
		t.Error(err)
	}
	moved, err := filepath.Glob(filepath.Join(parent, "job/*/0"))
	if err != nil || len(moved) != 1 || entries(t, moved[0]) != "kept" {
		t.Fatalf("%q, %v", moved, err)
	}
	ok(t, unix.Unmount(moved[0], unix.MNT_DETACH))
	var stat unix.Stat_t
	ok(t, unix.Stat(filepath.Join(parent, "job"), &stat))
	if left := entries(t, filepath.Join(parent, "job")); stat.Uid != 0 || stat.Mode&0o777 != 0o700 ||
		len(strings.Fields(left)) != 1 {
		t.Errorf("owner %d, mode %#o, left %q", stat.Uid, stat.Mode, left)
	}
	dir := drop(t)
	mount(t, dir)
	if err := RemoveTree(filepath.Dir(dir), "7", always); !errors.Is(err, unix.EBUSY) {
		t.Error(err)
	}
	fd, err := ownFolder(filepath.Dir(dir))
	ok(t, err)
	defer unix.Close(fd)
	if folder, err := take(fd, "7"); !errors.Is(err, ErrNotOurs) { // mounted after the look
		t.Errorf("%v, %v", folder, err)
	}
}

// A user who holds folders open further below, and makes ever more in them, loses them one by one.
func TestRemoveTreeOfOpenFolders(t *testing.T) {
	parent := t.TempDir()
	ok(t, os.Chmod(filepath.Dir(parent), 0o755))
	ok(t, MakeDir(parent, "job", 0o700, user, user))
	cmd := exec.Command("/bin/sh", "-c",
		"mkdir -p a/b/c/d && cd a/b/c && echo busy && while : >$i; do i=$((i+1)); done")
	cmd.Dir, cmd.Env = filepath.Join(parent, "job"), []string{"PATH=/usr/bin:/bin", "i=0"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
	out, err := cmd.StdoutPipe()
	ok(t, err)
	ok(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	_, err = out.Read(make([]byte, 5))
	ok(t, err)
	ok(t, RemoveTree(parent, "job", always))
	if left := entries(t, parent); left != "" {
		t.Errorf("left: %q", left)
	}
}

// Whatever the kernel refuses is told, at the top and further down, no descriptor stays open, and the next one
// removes it all.
func TestRemoveTreeRefused(t *testing.T) {
	for name, c := range map[string]refuse.Call{
		"file":   call(unix.SYS_UNLINKAT, unix.EIO, refuse.Arg{Index: 2, Is: 0}),
		"folder": call(unix.SYS_UNLINKAT, unix.EIO, refuse.Arg{Index: 2, Is: unix.AT_REMOVEDIR}),
		"pin":    opening(unix.O_PATH), "open": opening(unix.O_RDONLY | unix.O_DIRECTORY),
		"take": call(unix.SYS_FCHOWN, unix.EPERM), "close": call(unix.SYS_FCHMOD, unix.EIO),
		"rewind": call(unix.SYS_LSEEK, unix.EIO), "list": call(unix.SYS_GETDENTS64, unix.EIO),
		"move": call(unix.SYS_RENAMEAT, unix.EIO),
	} {
		t.Run(name, func(t *testing.T) {
			dir := rootsFolder(t)
			ok(t, MakeDir(dir, "job", 0o700, user, user))
			users(t, filepath.Join(dir, "job"), dir)
			before := descriptors(t)
			var err error
			ok(t, refuse.Run([]refuse.Call{c}, func() { err = RemoveTree(dir, "job", always) }))
			if !errors.Is(err, c.Errno) {
				t.Errorf("%v, want %v", err, c.Errno)
			}
			top, err := os.Open(filepath.Join(dir, "job"))
			ok(t, err)
			ok(t, refuse.Run([]refuse.Call{c}, func() { err = (&removal{top: top, more: always}).removeBranch("d") }))
			top.Close()
			if !errors.Is(err, c.Errno) {
				t.Errorf("%v further down, want %v", err, c.Errno)
			}
			if now := descriptors(t); now != before {
				t.Errorf("%d descriptors are open, %d were", now, before)
			}
			ok(t, RemoveTree(dir, "job", always))
		})
	}
}

// A folder of root's becomes a user's only while it is empty: what is in it may be another's.
func TestMakeDirRefusesWhatIsNotEmpty(t *testing.T) {
	parent := t.TempDir()
	ok(t, os.MkdirAll(filepath.Join(parent, "d/theirs"), 0o700))
	if err := MakeDir(parent, "d", 0o700, user, user); !errors.Is(err, ErrNotOurs) {
		t.Error(err)
	}
	ok(t, MakeDir(parent, "d", 0o755, 0, 0)) // a folder of root's own
	var err error
	ok(t, refuse.Run([]refuse.Call{call(unix.SYS_GETDENTS64, unix.EIO)},
		func() { err = MakeDir(parent, "d", 0o700, user, user) }))
	if !errors.Is(err, unix.EIO) {
		t.Error(err)
	}
}
