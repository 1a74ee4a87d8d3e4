package sharedmem

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/leftover"
	"bookend/internal/record"
	"bookend/test/must"
)

// shm is a tmpfs, with a directory of the test's own for its files.
func shm(t testing.TB) string {
	dir := must.Have(os.MkdirTemp("/dev/shm", "bookend-"))(t)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func listed(t *testing.T, dir string, uid uint32) leftover.Listing {
	t.Helper()
	l := Place{dir, "/proc", "/sys", uid}.Read(time.Now(), leftover.Earlier{})(10 * time.Second)
	must.Not(t, l.Unknown != "", "%s", l.Unknown)
	return l
}

// Only the user's own regular files are listed, whatever else has which name.
func TestList(t *testing.T) {
	dir, all := shm(t), ""
	for b := byte(1); b != 0; b++ {
		if b != '/' {
			all += string([]byte{b})
		}
	}
	for _, name := range []string{"plain", all[:200], "-rf", "foreign"} {
		must.Do(t, os.WriteFile(filepath.Join(dir, name), make([]byte, 8192), 0))
		must.Do(t, os.Chown(filepath.Join(dir, name), 1000, 1000))
	}
	must.Do(t, os.Chown(filepath.Join(dir, "foreign"), 1001, 1000))
	must.Do(t, os.Symlink("/etc/passwd", filepath.Join(dir, "link")))
	must.Do(t, os.Lchown(filepath.Join(dir, "link"), 1000, 1000))
	must.Do(t, unix.Mkfifo(filepath.Join(dir, "pipe"), 0o666))
	must.Do(t, os.Chown(filepath.Join(dir, "pipe"), 1000, 1000))
	must.Do(t, os.Mkdir(filepath.Join(dir, "dir"), 0o777))
	must.Do(t, os.Chown(filepath.Join(dir, "dir"), 1000, 1000))

	l := listed(t, dir, 1000)
	var names []string
	for _, f := range l.Files {
		names = append(names, f.Name)
		if f.Bytes != 8192 || f.ID == 0 || time.Since(f.Made) > time.Minute && !f.Made.IsZero() {
			t.Errorf("%+v", f)
		}
	}
	slices.Sort(names)
	if want := []string{all[:200], "-rf", "plain"}; !slices.Equal(names, want) {
		t.Errorf("%q", names)
	}
	for _, place := range []Place{{"/etc", "/proc", "/sys", 1000}, {dir + "/none", "/proc", "/sys", 1000},
		{dir, "/proc", "/sys", 0}, {dir, dir + "/plain", "/sys", 1000}} {
		if l := place.Read(time.Now(), leftover.Earlier{})(10 * time.Second); l.Unknown == "" {
			t.Errorf("%v: %+v", place, l)
		}
	}
}

// A start's mark has what was there, of all users while that is little, and its end lists what came since.
func TestMark(t *testing.T) {
	dir := shm(t)
	put := func(uid int, names ...string) {
		for _, name := range names {
			must.Do(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
			must.Do(t, os.Chown(filepath.Join(dir, name), uid, uid))
		}
	}
	place := Place{dir, "/proc", "/sys", 1000}
	mark := func() *record.SharedMark { return place.Read(time.Now(), nil)(10 * time.Second).Mark() }
	news := func(start *record.SharedMark) (names []string) {
		for _, f := range place.Read(time.Now(), leftover.FilesAt(start))(10 * time.Second).Files {
			names = append(names, f.Name)
		}
		return names
	}
	put(1000, "mine")
	put(1001, "other's")
	must.Do(t, os.Mkdir(filepath.Join(dir, "dir"), 0o777))
	first := mark()
	must.Not(t, first.Unknown != "" || len(first.Files) != 2, "%+v", first)
	put(1000, "new")
	put(1001, "other's new")
	if got := news(first); !slices.Equal(got, []string{"new"}) {
		t.Errorf("since the start: %q", got)
	}
	for i := range leftover.MaxMarked {
		put(1001, fmt.Sprint(i))
	}
	second := mark()
	must.Not(t, second.Unknown != "" || len(second.Files) != 2, "of many, the user's alone: %d", len(second.Files))
	must.Not(t, len(news(second)) > 0, "%q", news(second))
	must.Not(t, len(news(nil)) != 2, "%q", news(nil))
}

// What any process has open or mapped is in use, in whichever mount namespace; what is only named elsewhere is not.
func TestUnused(t *testing.T) {
	dir := shm(t)
	path := func(name string) string { return filepath.Join(dir, name) }
	hold := func(script, name string) {
		t.Helper()
		holder := exec.Command("sh", "-c", script+"; echo ready; sleep 60", "sh", path(name))
		out := must.Have(holder.StdoutPipe())(t)
		must.Do(t, holder.Start())
		t.Cleanup(func() { _ = holder.Process.Kill(); _ = holder.Wait() })
		must.Have(out.Read(make([]byte, 6)))(t)
	}
	for _, name := range []string{"free", "no mode", "read", "written", "mapped", "inside", "gone", "linked", "foreign"} {
		must.Do(t, os.WriteFile(path(name), make([]byte, 4096), 0o600))
		must.Do(t, os.Chown(path(name), 1000, 1000))
	}
	must.Do(t, os.Chmod(path("no mode"), 0))
	must.Do(t, os.Link(path("linked"), path("second")))
	hold(`exec 3<"$1"`, "read")
	hold(`exec 3>>"$1"`, "written")
	hold(`exec unshare -m sh -c 'mount --bind "$(dirname "$1")" /mnt && exec 3</mnt/inside && echo ready && sleep 60' sh "$1"`, "inside")
	f := must.Have(os.OpenFile(path("mapped"), os.O_RDWR, 0))(t)
	mapping := must.Have(unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ, unix.MAP_SHARED))(t)
	defer func() { _ = unix.Munmap(mapping) }()
	must.Do(t, f.Close())

	l := listed(t, dir, 1000)
	r := Search{Place: Place{dir, "/proc", "/sys", 1000}, Device: l.Device, Files: l.Mark().Files}
	names := map[uint64]string{}
	for _, f := range l.Files {
		names[f.ID] = strings.Replace(f.Name, "second", "linked", 1)
	}
	must.Do(t, os.Remove(path("gone")))
	must.Do(t, os.Chown(path("foreign"), 1001, 1001))
	var unused []string
	for _, inode := range must.Have(r.unused())(t) {
		unused = append(unused, names[inode])
	}
	slices.Sort(unused)
	if want := []string{"free", "linked", "linked", "no mode"}; !slices.Equal(unused, want) {
		t.Errorf("%q", unused)
	}
	var removed []string
	for _, inode := range must.Have(r.each(r.remove))(t) {
		removed = append(removed, names[inode])
	}
	slices.Sort(removed)
	if want := []string{"free", "no mode"}; !slices.Equal(removed, want) { // a file of two names is reported, and stays
		t.Errorf("removed %q", removed)
	}
	r.Device++
	must.Not(t, len(must.Have(r.unused())(t)) > 0, "a file on another file system is unused")
}

// POSIX message queues and huge pages are listed next to /dev/shm, and a queue that a process has open is in use.
func TestOthers(t *testing.T) {
	dir := shm(t)
	must.Do(t, os.Mkdir(dir+"/shm", 0o755))
	for _, other := range leftover.Others {
		must.Do(t, os.Mkdir(filepath.Join(dir, other.Dir), 0o755))
	}
	none := listed(t, dir+"/shm", 1000)
	for _, system := range []struct{ dir, name string }{{"mqueue", "mqueue"}, {"hugepages", "hugetlbfs"}} {
		at := filepath.Join(dir, system.dir)
		must.Do(t, unix.Mount("none", at, system.name, 0, ""))
		t.Cleanup(func() { must.Do(t, unix.Unmount(at, 0)) })
		for _, name := range []string{"free", "held", "foreign"} {
			path := filepath.Join(at, fmt.Sprintf("bookend-%d-%s", os.Getpid(), name))
			held := must.Have(os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600))(t)
			t.Cleanup(func() { _ = os.Remove(path) })
			owner := 1000
			if name == "foreign" {
				owner = 1001
			}
			must.Do(t, os.Chown(path, owner, owner))
			if name == "held" {
				t.Cleanup(func() { _ = held.Close() })
			} else {
				must.Do(t, held.Close())
			}
		}
	}
	l := listed(t, dir+"/shm", 1000)
	left, known := l.Since(&record.SharedMark{Device: l.Device, Others: []record.SharedMark{{Device: l.Others[0].Device}, {Device: l.Others[1].Device}}})
	must.Not(t, !known || len(left.Others[0].Files) < 2 || len(left.Others[1].Files) != 2, "%+v", left)
	all := Place{dir + "/shm", "/proc", "/sys", 1000}.Searches(l, left)
	left = left.Only(nil, must.Have(all[1].unused())(t), must.Have(all[2].unused())(t))
	for _, o := range left.Others {
		free := func(i leftover.Item) bool { return i.Name == fmt.Sprintf("bookend-%d-free", os.Getpid()) }
		held := func(i leftover.Item) bool { return i.Name == fmt.Sprintf("bookend-%d-held", os.Getpid()) }
		must.Not(t, !slices.ContainsFunc(o.Files, free) || slices.ContainsFunc(o.Files, held), "%+v", o.Files)
	}
	left, _ = l.Since(none.Mark())
	must.Not(t, len(left.Others[0].Files)+len(left.Others[1].Files) > 0, "what was mounted since the start: %+v", left)
}

// A list of 1,000 files.
func BenchmarkList(b *testing.B) {
	dir := shm(b)
	for i := range 1000 {
		must.Do(b, os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), nil, 0o600))
		must.Do(b, os.Chown(filepath.Join(dir, fmt.Sprint(i)), 1000, 1000))
	}
	for b.Loop() {
		if l := (Place{dir, "/proc", "/sys", 1000}).list(time.Now(), nil); len(l.Mark().Files) != 1000 {
			b.Fatalf("%+v", l)
		}
	}
}
