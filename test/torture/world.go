package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"bookend/internal/joblog"
	"bookend/internal/operation"
)

// The users: the job's, and one whose files lie about. Nobody's, on most machines.
const (
	user  = 61234
	other = 61235
)

const (
	nodeName = "n1"
	jobID    = 100
	jobDrop  = "n1_100" // as package state names a job's drop
)

// ownWords are what the job itself wrote.
const ownWords = "the job's own words\n"

// world is one worker's part of the machine: a user's home with the job's output in it, Bookend's folders, and around
// them everything that no hook may touch.
type world struct {
	root   string // root's
	home   string // the user's
	folder string // HOME/a/b
	out    string // HOME/a/b/out, the job's output
	drop   string // a file system of its own
	pool   string // in drop: what is exchanged with a drop record

	places    [dropFile + 1]spot
	output    *os.File // out, whatever its name
	ino, dev  uint64   // of out
	sentinels []*sentinel
	fifos     []*held
	notify    int // inotify
	folders   []int
	watched   map[int]*sentinel
	made      int // markers
	foe       *foe
}

// spot is where the thing is that a place belongs to, and the folder of what it is exchanged with.
type spot struct{ folder, name, pool string }

func (s spot) path() string { return filepath.Join(s.folder, s.name) }

// kept is a thing that lies where it always lies.
func (w *world) kept(name string) string { return filepath.Join(w.root, "kept", name) }

func newWorld(root string) (*world, error) {
	w := &world{root: root, watched: map[int]*sentinel{}}
	w.home = filepath.Join(root, "home")
	w.folder = filepath.Join(w.home, "a", "b")
	w.out = filepath.Join(w.folder, "out")
	w.drop = filepath.Join(root, "run", "drop")
	w.pool = filepath.Join(w.drop, "pool")
	w.places = [...]spot{
		outFile:   {w.folder, "out", w.folder},
		outFolder: {filepath.Join(w.home, "a"), "b", filepath.Join(w.home, "a")},
		outAbove:  {w.home, "a", w.home},
		dropFile:  {w.drop, jobDrop, w.pool},
	}
	b := &builder{}
	var err error
	w.notify, err = unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	b.do(err)
	w.lay(b)
	w.keep(b)
	for i := range kinds {
		w.plant(b, &kinds[i])
	}
	w.settleIn(b)
	if b.err != nil {
		return nil, fmt.Errorf("make world: %w", b.err)
	}
	return w, nil
}

// lay makes the folders that are there on any machine.
func (w *world) lay(b *builder) {
	b.dir(w.root, 0, 0o755)
	for _, dir := range []string{"run", "run/drop", "log", "var", "sys", "dev", "kept"} {
		b.dir(filepath.Join(w.root, dir), 0, 0o755)
	}
	b.do(unix.Mount("none", w.drop, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0755"))
	b.dir(w.pool, 0, 0o700)
	for _, dir := range []string{"", "a", "a/b", "markers"} {
		b.dir(filepath.Join(w.home, dir), user, 0o755)
	}
	b.file(w.out, user, 0o644, ownWords)
	b.file(filepath.Join(w.home, "errors"), user, 0o644, "")
	b.file(filepath.Join(w.root, "bookend.yaml"), 0, 0o644, w.config())
}

// config is a node's whose backend is missing: hooks look at no card, and do all else.
func (w *world) config() string {
	return fmt.Sprintf(`version: 1
mode: enforce
backend: %[1]s/none
paths: {proc: /proc, run: %[1]s/run, var: %[1]s/var, log: %[1]s/log, sys: %[1]s/sys, dev: %[1]s/dev}
nvidia: {driver_proc: %[1]s/none}
slurm: {shards: "no"}
log: {syslog: false}
record: {every: 0s}
deadlines:
  epilog: {total: %[2]s, driver: 1s, scan: 300ms, probe: 100ms, append: 1s, outputs: 1s}
settle:
  epilog: {max: 400ms, stable: 200ms}
`, w.root, epilogTotal)
}

// keep makes what links and mounts lead to.
func (w *world) keep(b *builder) {
	guarded := func(name string, uid int, mode os.FileMode, forbidden uint32) {
		b.file(w.kept(name), uid, mode, precious)
		w.guard(b, name, w.kept(name), forbidden)
	}
	guarded("root", 0, 0o600, opened|touched)
	guarded("open-root", 0, 0o666, touched)
	guarded("precious", user, 0o644, touched)
	b.node(w.kept("null"), 0, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3)))
	w.guard(b, "null", w.kept("null"), opened|touched)
	for _, d := range []struct {
		name      string
		uid       int
		mode      os.FileMode
		fileUID   int
		fileMode  os.FileMode
		forbidden uint32
	}{
		{"of-root", 0, 0o755, 0, 0o600, opened | touched}, {"of-open", 0, 0o755, 0, 0o666, touched},
		{"of-other", other, 0o777, other, 0o666, touched}, {"closed", 0, 0o700, user, 0o644, opened | touched},
		{"of-own", user, 0o755, user, 0o644, touched},
	} {
		b.dir(w.kept(d.name), d.uid, d.mode)
		b.dir(w.kept("above"), 0, 0o755)
		b.dir(w.kept("above/"+d.name), 0, 0o755)
		b.do(os.Symlink(w.kept(d.name), w.kept("above/"+d.name+"/b")))
		guarded(d.name+"/out", d.fileUID, d.fileMode, d.forbidden)
	}
	w.mounts(b)
	w.record(b, "pool-root", filepath.Join(w.drop, "pool-root"), 0, 0o600)
	b.dir(filepath.Join(w.drop, "pool-closed"), 0, 0o700)
	w.record(b, "pool-closed", filepath.Join(w.drop, "pool-closed", "job.json"), user, 0o600)
	b.dir(w.kept("record"), user, 0o700)
	w.record(b, "mounted-record", w.kept("record/job.json"), user, 0o600)
	b.dir(w.kept("victim"), user, 0o777)
	guarded("victim/file", user, 0o644, opened|touched)
}

// mounts makes the file systems that take no more.
func (w *world) mounts(b *builder) {
	for name, options := range map[string]string{"full": "size=4k", "read-only": ""} {
		b.dir(w.kept(name), user, 0o755)
		b.do(unix.Mount("none", w.kept(name), "tmpfs", 0, "mode=0755,"+options))
		b.file(w.kept(name+"/out"), user, 0o644, string(make([]byte, 4096)))
		w.guard(b, name, w.kept(name+"/out"), unix.IN_ACCESS|unix.IN_MODIFY)
	}
	b.do(unix.Mount("none", w.kept("read-only"), "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
}

// plant makes a kind's thing beside the place that it takes.
func (w *world) plant(b *builder, k *kind) {
	if k.plant != nil {
		k.plant(b, w, filepath.Join(w.places[k.where].pool, k.name))
	}
}

// settleIn remembers what belongs where.
func (w *world) settleIn(b *builder) {
	if b.err != nil {
		return
	}
	for p := range w.places {
		s := &w.places[p]
		if s.pool == w.pool {
			continue
		}
		dir, err := unix.Open(s.folder, unix.O_PATH|unix.O_CLOEXEC, 0)
		b.do(err)
		s.folder = fmt.Sprintf("/proc/self/fd/%d", dir) // wherever the folder itself is swapped to
		s.pool = s.folder
		w.folders = append(w.folders, dir)
	}
	var st unix.Stat_t
	b.do(unix.Lstat(w.out, &st))
	w.ino, w.dev = st.Ino, st.Dev
	var err error
	w.output, err = os.OpenFile(w.out, os.O_RDWR, 0)
	b.do(err)
	w.seen() // what making it has set off
}

// claim makes a marker, a file of the user's that nobody may open, and returns the drop record that names it.
func (w *world) claim(b *builder, name string) string {
	w.made++
	path := filepath.Join(w.home, "markers", name)
	b.file(path, user, 0o644, precious)
	w.guard(b, "marker of "+name, path, opened|touched)
	return dropRecord(b, joblog.Target{Path: path})
}

// record makes a drop record that nobody may open.
func (w *world) record(b *builder, name, at string, uid int, mode os.FileMode) {
	b.file(at, uid, mode, w.claim(b, name))
	w.guard(b, name, at, opened|touched)
}

func dropRecord(b *builder, t joblog.Target) string {
	text, err := joblog.Drop{Target: t}.Encode()
	b.do(err)
	return string(text)
}

func inode(path string) uint64 {
	var st unix.Stat_t
	if unix.Lstat(path, &st) != nil {
		return 0
	}
	return st.Ino
}

func exchange(a, b string) error {
	if err := unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE); err != nil {
		return fmt.Errorf("exchange %q and %q: %w", a, b, err)
	}
	return nil
}

// target is the job's output as a task hook has recorded it.
func (w *world) target(known bool) joblog.Target {
	t := joblog.Target{Path: w.out}
	if known {
		t.Dev, t.Ino = w.dev, w.ino
	}
	return t
}

// appendRequest is what the epilog asks its child.
func (w *world) appendRequest(known bool) []byte {
	text, _ := json.Marshal(operation.AppendRequest{UID: user, GID: user, Target: w.target(known), Text: report})
	return text
}

// report is what a child that is run alone is given to append.
const report = "\n| bookend: a report\n"
