//go:build !race

package joblog

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func tailAsUser(t *testing.T, r request) (tail, why string) {
	t.Helper()
	var got reply
	ok(t, json.Unmarshal(asUser(t, r), &got))
	return string(got.Tail), got.Why
}

func TestTail(t *testing.T) {
	path := filepath.Join(usersFolder(t), "slurm-7.out")
	for content, want := range map[string]string{
		"": "", "short": "short", "exactly 16 bytes": "exactly 16 bytes", "more than sixteen bytes": "an sixteen bytes",
		strings.Repeat("x", 1<<20) + "the very last one": "he very last one",
	} {
		put(t, path, content)
		var st unix.Stat_t
		ok(t, unix.Stat(path, &st))
		for _, target := range []Target{{Path: path}, {path, st.Dev, st.Ino}} {
			if got, why := tailAsUser(t, request{Target: target, Tail: 16}); got != want || why != "" {
				t.Errorf("%d bytes: %q, refused %q; want %q", len(content), got, why, want)
			}
		}
	}
}

// A file that its owner may not write, or on a file system that takes nothing any more, can be read all the same.
func TestTailNeedsNoWriting(t *testing.T) {
	dir := usersFolder(t)
	mount(t, dir, "mode=0777,size=4k", 0)
	path := filepath.Join(dir, "out")
	put(t, path, strings.Repeat("x", 4092)+"last")
	ok(t, os.Chmod(path, 0o400))
	ok(t, unix.Mount("none", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	if got, why := tailAsUser(t, request{Target: Target{Path: path}, Tail: 4}); got != "last" || why != "" {
		t.Errorf("%q, refused %q", got, why)
	}
}

func TestTailRefuses(t *testing.T) {
	users := func(t *testing.T, path string, err error) {
		ok(t, err)
		ok(t, os.Lchown(path, uid, uid))
	}
	for name, tt := range map[string]struct {
		plant func(t *testing.T, path string)
		want  string
	}{
		"missing":      {func(*testing.T, string) {}, missing},
		"below a file": {func(t *testing.T, path string) { ok(t, os.Remove(filepath.Dir(path))); put(t, filepath.Dir(path), "") }, missing},
		"folder":       {func(t *testing.T, path string) { users(t, path, os.Mkdir(path, 0o777)) }, notRegular},
		"FIFO":         {func(t *testing.T, path string) { users(t, path, unix.Mkfifo(path, 0o600)) }, notRegular},
		"symbolic link to an own file": {func(t *testing.T, path string) {
			put(t, path+"-real", "secret")
			users(t, path, os.Symlink(path+"-real", path))
		}, notRegular},
		"symbolic link to root's": {func(t *testing.T, path string) { users(t, path, os.Symlink("/etc/shadow", path)) }, notRegular},
		"/dev/null": {func(t *testing.T, path string) {
			users(t, path, unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))))
		}, notRegular},
		"/dev/tty": {func(t *testing.T, path string) {
			users(t, path, unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(5, 0))))
		}, notRegular},
		"socket":    {func(t *testing.T, path string) { users(t, path, unix.Mknod(path, unix.S_IFSOCK|0o666, 0)) }, notRegular},
		"hard link": {func(t *testing.T, path string) { put(t, path, ""); ok(t, os.Link(path, path+"-too")) }, links},
		"another's, readable for all": {func(t *testing.T, path string) {
			put(t, path, "secret")
			ok(t, os.Chown(path, uid-1, uid))
			ok(t, os.Chmod(path, 0o644))
		}, notOwner},
		"root's, readable for all": {func(t *testing.T, path string) { ok(t, os.WriteFile(path, []byte("x"), 0o644)) }, notOwner},
		"root's":                   {func(t *testing.T, path string) { ok(t, os.WriteFile(path, []byte("x"), 0o600)) }, permission},
		"in a folder of root's":    {func(t *testing.T, path string) { put(t, path, ""); ok(t, os.Chown(filepath.Dir(path), 0, 0)) }, permission},
		"without permission":       {func(t *testing.T, path string) { put(t, path, ""); ok(t, os.Chmod(path, 0o200)) }, permission},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(usersFolder(t), "out")
			ok(t, os.Chmod(filepath.Dir(path), 0o700))
			tt.plant(t, path)
			if got, why := tailAsUser(t, request{Target: Target{Path: path}, Tail: 16}); why != tt.want || got != "" {
				t.Errorf("read %q, refused: %q, want %q", got, why, tt.want)
			}
		})
	}
}

// A FIFO into which somebody writes is not waited for.
func TestTailRefusesWrittenFIFO(t *testing.T) {
	path := filepath.Join(usersFolder(t), "out")
	ok(t, unix.Mkfifo(path, 0o600))
	ok(t, os.Chown(path, uid, uid))
	if got, why := tailAsUser(t, request{Target: Target{Path: path}, Open: path, Tail: 16}); why != notRegular || got != "" {
		t.Errorf("read %q, refused: %q, want %q", got, why, notRegular)
	}
}

func TestTailRefusesAnotherFile(t *testing.T) {
	path := filepath.Join(usersFolder(t), "out")
	put(t, path, "another's")
	var st unix.Stat_t
	ok(t, unix.Stat(path, &st))
	for _, target := range []Target{{path, st.Dev, st.Ino + 1}, {path, st.Dev + 1, st.Ino}} {
		if got, why := tailAsUser(t, request{Target: target, Tail: 16}); why != changed || got != "" {
			t.Errorf("%+v: read %q, refused: %q, want %q", target, got, why, changed)
		}
	}
}

func TestTailRefusesNonsense(t *testing.T) {
	for name, target := range map[string]Target{
		"no path": {}, "relative": {Path: "out"}, "NUL": {Path: "/tmp/a\x00b"}, "long path": {Path: "/" + strings.Repeat("x", maxPath)},
	} {
		if got, err := Open(target, uid); Reason(err) != other || got != nil {
			t.Errorf("%s: opened %v, %q, want %q", name, got, Reason(err), other)
		}
	}
}
