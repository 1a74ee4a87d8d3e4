package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"bookend/internal/joblog"
	"bookend/test/rig"
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

const ownWords = "the job's own words\n"

// world is one worker's part of the machine: a user's home with the job's output in it, Bookend's folders, and around
// them everything that no hook may touch.
type world struct {
	root   string // root's
	home   string // the user's
	folder string // HOME/a/b
	out    string // HOME/a/b/out, the job's output
	drop   string // a file system of its own
	jobs   string // in drop: the user's part
	pool   string // in drop: what is exchanged with a drop record

	places    [dropFile + 1]spot
	output    *os.File // out, whatever its name
	ino, dev  uint64   // of out
	sentinels []*sentinel
	fifos     []*held
	notify    int   // inotify
	fds       []int // to be closed
	watched   map[int]*sentinel
	foe       *foe
}

// spot is where the thing is that a place belongs to, and the folder of what it is exchanged with.
type spot struct{ folder, name, pool string }

func (s spot) path() string { return filepath.Join(s.folder, s.name) }

// kept is a thing that lies where it always lies.
func (w *world) kept(name string) string { return filepath.Join(w.root, "kept", name) }

func newWorld(root string) *world {
	w := &world{root: root, home: filepath.Join(root, "home"), watched: map[int]*sentinel{}}
	w.folder = filepath.Join(w.home, "a", "b")
	w.out = filepath.Join(w.folder, "out")
	w.drop = filepath.Join(root, "run", "drop")
	w.jobs = filepath.Join(w.drop, fmt.Sprint(user), "jobs")
	w.pool = filepath.Join(w.drop, "pool")
	w.places = [...]spot{
		outFile:   {w.folder, "out", w.folder},
		outFolder: {filepath.Join(w.home, "a"), "b", filepath.Join(w.home, "a")},
		outAbove:  {w.home, "a", w.home},
		dropFile:  {w.jobs, jobDrop, w.pool},
	}
	w.notify = rig.Have(unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC))
	w.fds = append(w.fds, w.notify)
	w.lay()
	w.keep()
	for _, k := range kinds { // each thing beside the place that it takes
		if k.plant != nil {
			k.plant(w, filepath.Join(w.places[k.where].pool, k.name))
		}
	}
	w.settleIn()
	return w
}

// lay makes the folders that are there on any machine.
func (w *world) lay() {
	w.dir(w.root, 0, 0o755)
	for _, dir := range []string{"run", "run/drop", "log", "var", "sys", "dev", "kept"} {
		w.dir(filepath.Join(w.root, dir), 0, 0o755)
	}
	rig.Try(unix.Mount("none", w.drop, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0755"))
	for _, dir := range []string{filepath.Dir(w.jobs), w.jobs} {
		w.dir(dir, 0, 0o711)
	}
	w.dir(w.pool, 0, 0o700)
	for _, dir := range []string{"", "a", "a/b", "markers"} {
		w.dir(filepath.Join(w.home, dir), user, 0o755)
	}
	w.file(w.out, user, 0o644, ownWords)
	w.file(filepath.Join(w.home, "errors"), user, 0o644, "")
	w.file(filepath.Join(w.root, "bookend.yaml"), 0, 0o644, w.config())
}

//go:embed bookend.yaml
var configuration string

func (w *world) config() string {
	values := map[string]string{"root": w.root, "total": epilogTotal.String()}
	return os.Expand(configuration, func(name string) string { return values[name] })
}

func (w *world) keep() {
	guarded := func(name string, uid int, mode os.FileMode, forbidden uint32) {
		w.file(w.kept(name), uid, mode, precious)
		w.guard(name, w.kept(name), forbidden)
	}
	guarded("root", 0, 0o600, opened|touched)
	guarded("open-root", 0, 0o666, touched)
	guarded("precious", user, 0o644, touched)
	w.node(w.kept("null"), 0, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3)))
	w.guard("null", w.kept("null"), opened|touched)
	folder := func(name string, uid int, mode os.FileMode, fileUID int, fileMode os.FileMode, forbidden uint32) {
		w.dir(w.kept(name), uid, mode)
		w.dir(w.kept("above"), 0, 0o755)
		w.dir(w.kept("above/"+name), 0, 0o755)
		rig.Try(os.Symlink(w.kept(name), w.kept("above/"+name+"/b")))
		guarded(name+"/out", fileUID, fileMode, forbidden)
	}
	folder("of-root", 0, 0o755, 0, 0o600, opened|touched)
	folder("of-open", 0, 0o755, 0, 0o666, touched)
	folder("of-other", other, 0o777, other, 0o666, touched)
	folder("of-own", user, 0o755, user, 0o644, touched)
	folder("closed", 0, 0o700, user, 0o644, opened|touched)
	w.mounts()
	w.record("pool-root", filepath.Join(w.drop, "pool-root"), 0, 0o600)
	w.dir(filepath.Join(w.drop, "pool-closed"), 0, 0o700)
	w.record("pool-closed", filepath.Join(w.drop, "pool-closed", "job.json"), 0, 0o600)
	w.dir(w.kept("record"), user, 0o700)
	w.record("mounted-record", w.kept("record/job.json"), 0, 0o600)
	w.dir(w.kept("victim"), user, 0o777)
	guarded("victim/file", user, 0o644, opened|touched)
}

// mounts makes the file systems that take no more.
func (w *world) mounts() {
	for name, options := range map[string]string{"full": "size=4k", "read-only": ""} {
		w.dir(w.kept(name), user, 0o755)
		rig.Try(unix.Mount("none", w.kept(name), "tmpfs", 0, "mode=0755,"+options))
		w.file(w.kept(name+"/out"), user, 0o644, string(make([]byte, 4096)))
		w.guard(name, w.kept(name+"/out"), touched)
	}
	rig.Try(unix.Mount("none", w.kept("read-only"), "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
}

func (w *world) settleIn() {
	for p := range w.places {
		s := &w.places[p]
		if s.pool == w.pool {
			continue
		}
		dir := rig.Have(unix.Open(s.folder, unix.O_PATH|unix.O_CLOEXEC, 0))
		s.folder = fmt.Sprintf("/proc/self/fd/%d", dir) // wherever the folder itself is swapped to
		s.pool = s.folder
		w.fds = append(w.fds, dir)
	}
	var st unix.Stat_t
	rig.Try(unix.Lstat(w.out, &st))
	w.ino, w.dev = st.Ino, st.Dev
	w.output = rig.Have(os.OpenFile(w.out, os.O_RDWR, 0))
	w.seen() // what making it has set off
}

// claim makes a marker, a file of the user's that nobody may open, and returns the drop record that names it.
func (w *world) claim(name string) string {
	path := filepath.Join(w.home, "markers", name)
	w.file(path, user, 0o644, precious)
	w.guard("marker of "+name, path, opened|touched)
	return dropRecord(joblog.Target{Path: path})
}

// record makes a drop record that nobody may open.
func (w *world) record(name, at string, uid int, mode os.FileMode) {
	w.file(at, uid, mode, w.claim(name))
	w.guard(name, at, opened|touched)
}

func dropRecord(t joblog.Target) string { return string(rig.Have(joblog.Drop{Target: t}.Encode())) }

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
	text, _ := json.Marshal(joblog.AppendRequest{UID: user, GID: user, Target: w.target(known), Text: report})
	return text
}

// report is what a child that is run alone is given to append.
const report = "\n| bookend: a report\n"
