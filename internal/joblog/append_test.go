//go:build !race

// The race detector links cgo, with which a Go program cannot change all its threads; no hook has it.

package joblog

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bookend/internal/child"
	"bookend/test/must"

	"golang.org/x/sys/unix"
)

const uid = 65533

// request is one Append, or a look at the end, for the child.
type request struct {
	Target Target
	Text   string
	Open   string // a file to be held open meanwhile: a FIFO's other end
	Tail   int    // read so many bytes instead
}

type reply struct {
	Tail []byte
	Why  string
}

// The test binary started again plays the child that appends, or reads: it becomes the user first.
func TestMain(m *testing.M) {
	if len(os.Args) < 3 || os.Args[1] != "--child" {
		os.Exit(m.Run())
	}
	var r request
	err := json.NewDecoder(os.Stdin).Decode(&r)
	if err == nil {
		err = child.Become(uid, uid, []uint32{uid})
	}
	if err == nil && r.Open != "" {
		_, err = unix.Open(r.Open, unix.O_RDWR|unix.O_NONBLOCK, 0)
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	got := tailOf(r.Target, r.Tail)
	if r.Tail == 0 {
		got = reply{Why: Append(r.Target, uid, []byte(r.Text))}
	}
	if err := json.NewEncoder(os.Stdout).Encode(got); err != nil {
		os.Exit(1)
	}
}

// tailOf is the end of a target, read as Search does.
func tailOf(t Target, limit int) reply {
	s := Begin(t, uid)
	defer s.Close()
	tail := make([]byte, min(int64(limit), s.Size))
	if s.Refused == "" {
		if _, err := s.text.ReadAt(tail, s.Size-int64(len(tail))); err != nil && !errors.Is(err, io.EOF) {
			return reply{nil, reason(err)}
		}
	}
	return reply{tail, s.Refused}
}

func asUser(t *testing.T, r request) (got reply) {
	t.Helper()
	s := child.Self("append")
	var err error
	s.Stdin, err = json.Marshal(r)
	must.Do(t, err)
	s.MaxOutput, s.Timeout = 4<<10, time.Minute
	res := child.Run(s)
	if err := json.Unmarshal(res.Stdout, &got); err != nil || res.Outcome != child.Exited || res.ExitCode != 0 {
		t.Fatalf("%s, exit code %d: %s%s", res.Outcome, res.ExitCode, res.Stdout, res.Stderr)
	}
	return got
}

// appendAsUser returns the child's refusal, "" for none.
func appendAsUser(t *testing.T, r request) string {
	t.Helper()
	return asUser(t, r).Why
}

func tailAsUser(t *testing.T, r request) (tail, why string) {
	t.Helper()
	got := asUser(t, r)
	return string(got.Tail), got.Why
}

// usersFolder is a folder of the user's that he can reach.
func usersFolder(t *testing.T) string {
	t.Helper()
	dir := must.Have(os.MkdirTemp("/tmp", "joblog-test-"))(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	must.Do(t, os.Chown(dir, uid, uid))
	return dir
}

func put(t *testing.T, path, content string) {
	t.Helper()
	must.Do(t, os.WriteFile(path, []byte(content), 0o600))
	must.Do(t, os.Chown(path, uid, uid))
}

func TestAppend(t *testing.T) {
	path := filepath.Join(usersFolder(t), "slurm-7.out")
	put(t, path, "job's own\n")
	must.Do(t, os.Chmod(path, 0o640))
	var before unix.Stat_t
	must.Do(t, unix.Stat(path, &before))
	for _, target := range []Target{{Path: path}, {path, before.Dev, before.Ino}} {
		if why := appendAsUser(t, request{Target: target, Text: "report\n"}); why != "" {
			t.Errorf("%+v: refused: %s", target, why)
		}
	}
	b := must.Have(os.ReadFile(path))(t)
	if string(b) != "job's own\nreport\nreport\n" {
		t.Errorf("file holds %q", b)
	}
	var after unix.Stat_t
	must.Do(t, unix.Stat(path, &after))
	if after.Mode != before.Mode || after.Uid != before.Uid || after.Ino != before.Ino {
		t.Errorf("mode %#o, owner %d, inode %d; before %#o, %d, %d",
			after.Mode, after.Uid, after.Ino, before.Mode, before.Uid, before.Ino)
	}
}

// What is not a file of the user's own, as a job's output is, is neither written nor read; nor waited for.
func TestRefuses(t *testing.T) {
	users := func(t *testing.T, path string, err error) {
		must.Do(t, err)
		must.Do(t, os.Lchown(path, uid, uid))
	}
	device := func(major, minor uint32) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			users(t, path, unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(major, minor))))
		}
	}
	others := func(owner int, mode os.FileMode) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			put(t, path, "secret")
			must.Do(t, errors.Join(os.Chown(path, owner, owner), os.Chmod(path, mode)))
		}
	}
	type plant func(t *testing.T, path string)
	for name, tt := range map[string]struct {
		plant       plant
		write, read string // why not; empty: not tried
	}{
		"missing": {func(*testing.T, string) {}, missing, missing},
		"below a file": {func(t *testing.T, path string) {
			must.Do(t, os.Remove(filepath.Dir(path)))
			put(t, filepath.Dir(path), "")
		}, missing, missing},
		"folder": {func(t *testing.T, path string) { users(t, path, os.Mkdir(path, 0o777)) }, notRegular, notRegular},
		"FIFO": {func(t *testing.T, path string) { users(t, path, unix.Mkfifo(path, 0o600)) }, notRegular,
			notRegular},
		"FIFO that is open": {func(t *testing.T, path string) { users(t, path, unix.Mkfifo(path, 0o600)) }, notRegular, notRegular},
		"symbolic link to an own file": {func(t *testing.T, path string) {
			put(t, path+"-real", "secret")
			users(t, path, os.Symlink(path+"-real", path))
		}, notRegular, notRegular},
		"symbolic link to root's": {func(t *testing.T, path string) {
			users(t, path, os.Symlink("/etc/shadow", path))
		}, notRegular, notRegular},
		"/dev/null": {device(1, 3), notRegular, notRegular},
		"/dev/tty":  {device(5, 0), notRegular, notRegular},
		"socket": {func(t *testing.T, path string) {
			users(t, path, unix.Mknod(path, unix.S_IFSOCK|0o666, 0))
		}, notRegular, notRegular},
		"hard link": {func(t *testing.T, path string) {
			put(t, path, "")
			must.Do(t, os.Link(path, path+"-too"))
		}, links, links},
		"another's, for all":       {others(uid-1, 0o666), notOwner, notOwner},
		"another's":                {others(uid-1, 0o600), permission, permission},
		"root's, readable for all": {others(0, 0o644), permission, notOwner},
		"root's":                   {others(0, 0o600), permission, permission},
		"in a directory of root's": {func(t *testing.T, path string) {
			put(t, path, "")
			must.Do(t, os.Chown(filepath.Dir(path), 0, 0))
		}, permission, permission},
		"without permission to write": {others(uid, 0o400), permission, ""},
		"without permission to read":  {others(uid, 0o200), "", permission},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(usersFolder(t), "out")
			must.Do(t, os.Chmod(filepath.Dir(path), 0o700))
			tt.plant(t, path)
			open := ""
			if name == "FIFO that is open" { // somebody reads what is written, and writes what is read
				open = path
			}
			r := request{Target: Target{Path: path}, Text: "report\n", Open: open}
			if tt.write != "" {
				if why := appendAsUser(t, r); why != tt.write {
					t.Errorf("write refused: %q, want %q", why, tt.write)
				}
			}
			if r.Tail = 16; tt.read != "" {
				if got, why := tailAsUser(t, r); why != tt.read || got != "" {
					t.Errorf("read %q, refused: %q, want %q", got, why, tt.read)
				}
			}
		})
	}
}

func TestRefusesAnotherFile(t *testing.T) {
	path := filepath.Join(usersFolder(t), "out")
	put(t, path, "another's")
	var st unix.Stat_t
	must.Do(t, unix.Stat(path, &st))
	for _, target := range []Target{{path, st.Dev, st.Ino + 1}, {path, st.Dev + 1, st.Ino}} {
		if why := appendAsUser(t, request{Target: target, Text: "x"}); why != changed {
			t.Errorf("%+v: write refused: %q, want %q", target, why, changed)
		}
		if got, why := tailAsUser(t, request{Target: target, Tail: 16}); why != changed || got != "" {
			t.Errorf("%+v: read %q, refused: %q, want %q", target, got, why, changed)
		}
	}
}

func TestRefusesNonsense(t *testing.T) {
	for _, path := range []string{"", "out", "/tmp/a\x00b", "/" + strings.Repeat("x", maxPath)} {
		got := Begin(Target{Path: path}, uid)
		if got.Refused != other || got.file != nil || Append(Target{Path: path}, uid, nil) != other {
			t.Errorf("%.20q: %+v, want %q", path, got, other)
		}
	}
	if got := Append(Target{Path: "/dev/null"}, uid, make([]byte, MaxText+1)); got != other {
		t.Errorf("much text: got %q, want %q", got, other)
	}
	for why, want := range map[string]bool{
		missing: true, notRegular: true, notOwner: true, links: true, changed: true, readonly: true, full: true,
		permission: true, other: true, "": false, "Missing": false,
	} {
		if IsReason(why) != want {
			t.Errorf("%q: got %v, want %v", why, !want, want)
		}
	}
	for err, want := range map[error]string{
		nil: "", errors.New("of anybody"): other, unix.EIO: other, unix.EMFILE: other, unix.ESTALE: missing,
		unix.EDQUOT: full, unix.EROFS: readonly,
	} {
		if got := reason(err); got != want {
			t.Errorf("%v: got %q, want %q", err, got, want)
		}
	}
}

func TestLocate(t *testing.T) {
	dir := t.TempDir()
	proc := filepath.Join(dir, "proc")
	must.Do(t, os.MkdirAll(filepath.Join(proc, "7", "fd"), 0o755))
	link := filepath.Join(proc, "7", "fd", "1")
	file := filepath.Join(dir, "out put %j")
	put(t, file, "")
	must.Do(t, os.Symlink(file, link))
	var st unix.Stat_t
	must.Do(t, unix.Stat(file, &st))
	if got, err := Locate(proc, 7, 1); err != nil || got != (Target{file, st.Dev, st.Ino}) {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, target := range []string{"pipe:[4711]", "socket:[1]", "/dev/null", dir, file + " (deleted)", dir + "/\xff"} {
		must.Do(t, os.Remove(link))
		must.Do(t, os.Symlink(target, link))
		if got, err := Locate(proc, 7, 1); !errors.Is(err, ErrNotFile) {
			t.Errorf("%s: %+v, %v; want %v", target, got, err, ErrNotFile)
		}
	}
	must.Do(t, os.Remove(link))
	must.Do(t, os.Symlink("/nonexistent/out", link))
	for _, pid := range []int{7, 8} { // a file that has gone, and no process
		if _, err := Locate(proc, pid, 1); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("process %d: %v", pid, err)
		}
	}
}

func TestTail(t *testing.T) {
	path := filepath.Join(usersFolder(t), "slurm-7.out")
	for content, want := range map[string]string{
		"": "", "short": "short", "exactly 16 bytes": "exactly 16 bytes", "more than sixteen bytes": "an sixteen bytes",
		strings.Repeat("x", 1<<20) + "the very last one": "he very last one",
	} {
		put(t, path, content)
		must.Do(t, os.Chmod(path, 0o400)) // no writing needed
		var st unix.Stat_t
		must.Do(t, unix.Stat(path, &st))
		for _, target := range []Target{{Path: path}, {path, st.Dev, st.Ino}} {
			if got, why := tailAsUser(t, request{Target: target, Tail: 16}); got != want || why != "" {
				t.Errorf("%d bytes: %q, refused %q; want %q", len(content), got, why, want)
			}
		}
	}
}
