//go:build !race

// The race detector links cgo, with which a Go program cannot change all its threads; no hook has it.

package joblog

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bookend/internal/child"
	"bookend/internal/slurm"
	"bookend/test/must"

	"golang.org/x/sys/unix"
)

const uid = 65533

// The test binary started again serves the operations.
func TestMain(m *testing.M) {
	env := child.Env{Args: os.Args, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Exit: os.Exit}
	if exit, done := env.Serve(); done {
		os.Exit(exit)
	}
	os.Exit(m.Run())
}

// appendTo returns why a text was not appended to a target as the user; empty if it was.
func appendTo(t *testing.T, target Target, text string) string {
	t.Helper()
	return must.Have(AppendAsUser.Ask(AppendRequest{UID: uid, GID: uid, Target: target, Text: text}, time.Minute))(t).Refused
}

// search returns how many messages a target has, as the user finds them, and why it was not searched.
func search(t *testing.T, target Target) (found int, refused string) {
	t.Helper()
	ask := TailRequest{UID: uid, GID: uid, Targets: []Target{target}}
	reply := must.Have(SearchAsUser.Ask(ask, time.Minute))(t)
	must.Do(t, reply.Check(1))
	return len(reply.Messages), reply.Files[0].Refused
}

// usersDir is a directory that only the user can use.
func usersDir(t *testing.T) string {
	t.Helper()
	dir := must.Have(os.MkdirTemp("/tmp", "joblog-test-"))(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	must.Do(t, os.Chown(dir, uid, uid))
	return dir
}

func put(t *testing.T, path, content string) Target {
	t.Helper()
	var st unix.Stat_t
	must.Do(t, errors.Join(os.WriteFile(path, []byte(content), 0o600), os.Chown(path, uid, uid), unix.Stat(path, &st)))
	return Target{path, st.Dev, st.Ino}
}

func TestAppendAndSearch(t *testing.T) {
	path := filepath.Join(usersDir(t), "slurm-7.out")
	target := put(t, path, strings.Repeat("x", 1<<20)+"\n"+ranOut)
	must.Do(t, os.Chmod(path, 0o640))
	before := must.Have(os.Stat(path))(t)
	for _, target := range []Target{{Path: path}, target} {
		must.Be(t, "append refused", appendTo(t, target, "report\n"), "")
		found, refused := search(t, target)
		must.Not(t, found != 1 || refused != "", "%d found, refused: %q", found, refused)
	}
	must.Be(t, "its end", strings.HasSuffix(must.Read(t, path), "x\n"+ranOut+"report\nreport\n"), true)
	after := must.Have(os.Stat(path))(t)
	must.Not(t, after.Mode() != before.Mode() || !os.SameFile(before, after), "%v, before %v", after, before)
	for _, other := range []Target{{path, target.Dev, target.Ino + 1}, {path, target.Dev + 1, target.Ino}} {
		must.Be(t, "append to another file", appendTo(t, other, "x"), changed)
		found, refused := search(t, other)
		must.Not(t, found > 0 || refused != changed, "another file: %d found, refused: %q", found, refused)
	}
	must.Do(t, os.Chmod(path, 0o400))
	found, refused := search(t, target)
	must.Not(t, found != 1 || refused != "", "without permission to write: %d found, refused: %q", found, refused)
}

// What is not a file of the user's own, as a job's output is, is neither written nor read; nor waited for.
func TestRefuses(t *testing.T) {
	device := func(kind, major, minor uint32) func(string) error {
		return func(path string) error { return unix.Mknod(path, kind|0o666, int(unix.Mkdev(major, minor))) }
	}
	file := func(owner int, mode os.FileMode) func(string) error {
		return func(path string) error {
			return errors.Join(os.WriteFile(path, []byte(ranOut), 0o600), os.Chown(path, owner, owner), os.Chmod(path, mode))
		}
	}
	own := file(uid, 0o600)
	for name, tt := range map[string]struct {
		plant       func(path string) error
		write, read string // why not
	}{
		"missing": {func(string) error { return nil }, missing, missing},
		"below a file": {func(path string) error {
			return errors.Join(os.Remove(filepath.Dir(path)), own(filepath.Dir(path)))
		}, missing, missing},
		"directory": {func(path string) error { return os.Mkdir(path, 0o777) }, notRegular, notRegular},
		"FIFO":      {device(unix.S_IFIFO, 0, 0), notRegular, notRegular},
		"FIFO that a process has open": {func(path string) error {
			err := unix.Mkfifo(path, 0o600)
			fifo, wrong := os.OpenFile(path, os.O_RDWR, 0)
			t.Cleanup(func() { fifo.Close() })
			return errors.Join(err, wrong)
		}, notRegular, notRegular},
		"symbolic link to an own file": {func(path string) error {
			return errors.Join(own(path+"-real"), os.Symlink(path+"-real", path))
		}, notRegular, notRegular},
		"symbolic link to root's": {func(path string) error { return os.Symlink("/etc/shadow", path) }, notRegular, notRegular},
		"/dev/null":               {device(unix.S_IFCHR, 1, 3), notRegular, notRegular},
		"/dev/tty":                {device(unix.S_IFCHR, 5, 0), notRegular, notRegular},
		"socket":                  {device(unix.S_IFSOCK, 0, 0), notRegular, notRegular},
		"hard link": {func(path string) error {
			return errors.Join(own(path), os.Link(path, path+"-too"))
		}, links, links},
		"another's, for all":       {file(uid-1, 0o666), notOwner, notOwner},
		"another's":                {file(uid-1, 0o600), permission, permission},
		"root's, readable for all": {file(0, 0o644), permission, notOwner},
		"root's":                   {file(0, 0o600), permission, permission},
		"in a directory of root's": {func(path string) error {
			return errors.Join(own(path), os.Chown(filepath.Dir(path), 0, 0))
		}, permission, permission},
		"without permission to write": {file(uid, 0o400), permission, ""},
		"without permission to read":  {file(uid, 0o200), "", permission},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(usersDir(t), "out")
			must.Do(t, os.Chmod(filepath.Dir(path), 0o700))
			must.Do(t, tt.plant(path))
			if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
				must.Do(t, os.Lchown(path, uid, uid))
			}
			found, refused := search(t, Target{Path: path})
			must.Not(t, refused != tt.read || found > 0 && refused != "", "read refused: %q, want %q; %d found", refused, tt.read, found)
			must.Be(t, "write refused", appendTo(t, Target{Path: path}, "report\n"), tt.write)
		})
	}
}

func TestRefusesNonsense(t *testing.T) {
	for _, path := range []string{"", "out", "/tmp/a\x00b", "/" + strings.Repeat("x", maxPath)} {
		got := Begin(Target{Path: path}, uid)
		must.Not(t, got.Refused != other || got.file != nil || Append(Target{Path: path}, uid, nil) != other,
			"%.20q: %+v, want %q", path, got, other)
	}
	must.Be(t, "much text", Append(Target{Path: "/dev/null"}, uid, make([]byte, MaxText+1)), other)
	for why, want := range map[string]bool{
		missing: true, notRegular: true, notOwner: true, links: true, changed: true, readonly: true, full: true,
		permission: true, other: true, "": false, "Missing": false,
	} {
		must.Not(t, IsReason(why) != want, "%q: got %v, want %v", why, !want, want)
	}
	for err, want := range map[error]string{
		nil: "", errors.New("of anybody"): other, unix.EIO: other, unix.EMFILE: other, unix.ESTALE: missing,
		unix.EDQUOT: full, unix.EROFS: readonly,
	} {
		must.Be(t, fmt.Sprint(err), reason(err), want)
	}
}

func TestLocate(t *testing.T) {
	dir := t.TempDir()
	link, file := filepath.Join(dir, "proc/7/fd/1"), filepath.Join(dir, "out put %j")
	want := put(t, file, "")
	for target, wrong := range map[string]error{
		file: nil, "pipe:[4711]": ErrNotFile, "socket:[1]": ErrNotFile, "/dev/null": ErrNotFile, dir: ErrNotFile,
		file + " (deleted)": ErrNotFile, dir + "/\xff": ErrNotFile, "/nonexistent/out": os.ErrNotExist,
	} {
		must.Link(t, link, target)
		got, _, err := Locate(dir+"/proc", 7, 1)
		must.Fail(t, target, err, wrong)
		must.Not(t, err == nil && got != want, "got %+v, want %+v", got, want)
		must.Be(t, "of its user: "+target, LocateOf(dir+"/proc", 7, 1, uid), slurm.OutputFile(got))
		must.Be(t, "of another user: "+target, LocateOf(dir+"/proc", 7, 1, uid+1), slurm.OutputFile{})
		must.Do(t, os.Remove(link))
	}
	_, _, err := Locate(dir+"/proc", 8, 1)
	must.Fail(t, "no process", err, os.ErrNotExist)
}
