package main

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"bookend/internal/joblog"
	"bookend/test/rig"
)

const (
	swapJob = 100
	jobDrop = "n1_100" // the name that package state gives to a job's drop record
)

// precious is the content of every file that no hook may change.
const precious = "precious words that a hook must not touch\n"

const ownWords = "the job's own words\n"

// world is one worker's part of the machine: the home of a user with the job's output in it, Bookend's directories, and
// around them everything that no hook may touch.
type world struct {
	root, home string
	out        string // HOME/a/b/out, the job's output
	drop       string // a file system of its own
	jobs       string // in drop: the user's part
	pool       string // in drop: what is exchanged with a drop record

	places   [dropFile + 1]spot
	output   *os.File // out, whatever its name
	dev, ino uint64   // of out
	notify   int      // inotify
	watched  map[int]sentinel
	fds      []int // to be closed
}

// sentinel is a file, FIFO or device that no hook may touch, by whatever name.
type sentinel struct {
	name      string
	forbidden uint32
}

// What may be forbidden, as inotify names it. What changes the owner, the mode or the names of a file always is.
const (
	opened  = unix.IN_OPEN
	touched = unix.IN_ACCESS | unix.IN_MODIFY
	changed = unix.IN_ATTRIB | unix.IN_DELETE_SELF
)

// spot is where a thing is in its place, and the directory of what it is exchanged with.
type spot struct{ dir, name, pool string }

func (s spot) path() string { return filepath.Join(s.dir, s.name) }

func newWorld() *world {
	w := &world{root: newDir("world"), watched: map[int]sentinel{}}
	w.home = filepath.Join(w.root, "home")
	w.out = filepath.Join(w.home, "a/b/out")
	w.drop = filepath.Join(w.root, "run/drop")
	w.jobs = filepath.Join(w.drop, fmt.Sprint(user), "jobs")
	w.pool = filepath.Join(w.drop, "pool")
	w.places = [...]spot{
		outFile:  {filepath.Dir(w.out), "out", ""},
		outDir:   {filepath.Join(w.home, "a"), "b", ""},
		outAbove: {w.home, "a", ""},
		dropFile: {w.jobs, jobDrop, w.pool},
	}
	w.notify = rig.Have(unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC))
	w.lay()
	w.keep()
	for p := range w.places[:dropFile] {
		s := &w.places[p]
		fd := rig.Have(unix.Open(s.dir, unix.O_PATH|unix.O_CLOEXEC, 0))
		s.dir = fmt.Sprintf("/proc/self/fd/%d", fd) // wherever the directory itself is swapped to
		s.pool = s.dir
		w.fds = append(w.fds, fd)
	}
	for _, k := range kinds {
		if k.plant != nil {
			k.plant(w, filepath.Join(w.places[k.where].pool, k.name))
		}
	}
	var st unix.Stat_t
	rig.Try(unix.Lstat(w.out, &st))
	w.ino, w.dev = st.Ino, st.Dev
	w.output = rig.Have(os.OpenFile(w.out, os.O_RDWR, 0))
	w.seen() // forgets what has happened until now
	return w
}

// close lets go of what a world holds; its files end with the bench.
func (w *world) close() {
	for _, fd := range append(w.fds, w.notify) {
		_ = unix.Close(fd)
	}
	_ = w.output.Close()
}

// lay makes the directories that are on any machine.
func (w *world) lay() {
	for _, dir := range []string{"run", "run/drop", "log", "var", "sys", "dev", "kept", "kept/above"} {
		w.dir(filepath.Join(w.root, dir), 0, 0o755)
	}
	rig.Try(unix.Mount("none", w.drop, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0755"))
	w.dir(filepath.Dir(w.jobs), 0, 0o711)
	w.dir(w.jobs, 0, 0o711)
	w.dir(w.pool, 0, 0o700)
	for _, dir := range []string{"", "a", "a/b", "markers"} {
		w.dir(filepath.Join(w.home, dir), user, 0o755)
	}
	w.file(w.out, user, 0o644, ownWords)
	w.file(filepath.Join(w.home, "errors"), user, 0o644, "")
	w.file(filepath.Join(w.root, "bookend.yaml"), 0, 0o644, configuration(map[string]string{
		"dir": w.root, "proc": "/proc", "backend": w.root + "/none", // with none, hooks do all but look at GPUs
		"nvidia": fmt.Sprintf("{driver_proc: %s/none}", w.root), "settle": "400ms",
		"epilog": fmt.Sprintf("{total: %v, driver: 1s, scan: 300ms, probe: 100ms, append: 1s, outputs: 1s}", epilogTotal),
	}))
}

// kept is the path of a thing that is never exchanged itself.
func (w *world) kept(name string) string { return filepath.Join(w.root, "kept", name) }

// keep makes these things: what links lead to, and what is mounted.
func (w *world) keep() {
	for _, dir := range []struct {
		name string
		uid  int
		mode os.FileMode
	}{
		{"of-root", 0, 0o755}, {"of-open", 0, 0o755}, {"of-other", other, 0o777}, {"of-own", user, 0o755},
		{"closed", 0, 0o700}, {"victim", user, 0o777}, {"record", user, 0o700}, {"full", user, 0o755}, {"read-only", user, 0o755},
	} {
		w.dir(w.kept(dir.name), dir.uid, dir.mode)
		w.dir(w.kept("above/"+dir.name), 0, 0o755)
		rig.Try(os.Symlink(w.kept(dir.name), w.kept("above/"+dir.name+"/b")))
	}
	for _, f := range []struct {
		name      string
		uid       int
		mode      os.FileMode
		forbidden uint32
	}{
		{"root", 0, 0o600, opened | touched}, {"open-root", 0, 0o666, touched}, {"precious", user, 0o644, touched},
		{"of-root/out", 0, 0o600, opened | touched}, {"of-open/out", 0, 0o666, touched},
		{"of-other/out", other, 0o666, touched}, {"of-own/out", user, 0o644, touched},
		{"closed/out", user, 0o644, opened | touched}, {"victim/file", user, 0o644, opened | touched},
	} {
		w.file(w.kept(f.name), f.uid, f.mode, precious)
		w.guard(f.name, w.kept(f.name), f.forbidden)
	}
	w.node(w.kept("null"), 0, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3)))
	w.guard("null", w.kept("null"), opened|touched)
	for name, options := range map[string]string{"full": "size=4k", "read-only": ""} { // they take no more
		rig.Try(unix.Mount("none", w.kept(name), "tmpfs", 0, "mode=0755,"+options))
		w.file(w.kept(name+"/out"), user, 0o644, string(make([]byte, 4096)))
		w.guard(name, w.kept(name+"/out"), touched)
	}
	rig.Try(unix.Mount("none", w.kept("read-only"), "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	w.record("pool-root", filepath.Join(w.drop, "pool-root"), 0, 0o600)
	w.dir(filepath.Join(w.drop, "pool-closed"), 0, 0o700)
	w.record("pool-closed", filepath.Join(w.drop, "pool-closed/job.json"), 0, 0o600)
	w.record("mounted-record", w.kept("record/job.json"), 0, 0o600)
}

func (w *world) dir(path string, uid int, mode os.FileMode) {
	rig.Try(os.MkdirAll(path, mode))
	w.give(path, uid, mode)
}

func (w *world) file(path string, uid int, mode os.FileMode, text string) {
	rig.Try(os.WriteFile(path, []byte(text), mode))
	w.give(path, uid, mode)
}

func (w *world) node(path string, uid int, mode uint32, dev int) {
	rig.Try(unix.Mknod(path, mode, dev))
	w.give(path, uid, os.FileMode(mode&0o777))
}

func (w *world) give(path string, uid int, mode os.FileMode) {
	rig.Try(errors.Join(os.Chown(path, uid, uid), os.Chmod(path, mode)))
}

// claim makes a marker, a file of the user's that no hook may open, and returns the drop record that names it.
func (w *world) claim(name string) string {
	path := filepath.Join(w.home, "markers", name)
	w.file(path, user, 0o644, precious)
	w.guard("marker of "+name, path, opened|touched)
	return dropRecord(joblog.Target{Path: path})
}

// record makes a drop record that no hook may open.
func (w *world) record(name, at string, uid int, mode os.FileMode) {
	w.file(at, uid, mode, w.claim(name))
	w.guard(name, at, opened|touched)
}

func dropRecord(t joblog.Target) string { return string(rig.Have(joblog.Drop{Target: t}.Encode())) }

// guard watches a file from now on, wherever it is moved.
func (w *world) guard(name, path string, forbidden uint32) {
	forbidden |= changed
	w.watched[rig.Have(unix.InotifyAddWatch(w.notify, path, forbidden|unix.IN_DONT_FOLLOW))] = sentinel{name, forbidden}
}

// seen returns what has happened to guarded files since the last call. After a change the world is good for no other
// trial.
func (w *world) seen() (wrong []string) {
	buf := make([]byte, 16<<10)
	for {
		n, err := unix.Read(w.notify, buf)
		if n <= 0 || err != nil {
			return wrong
		}
		for at := 0; at+unix.SizeofInotifyEvent <= n; {
			wd := int(int32(binary.NativeEndian.Uint32(buf[at:])))
			mask := binary.NativeEndian.Uint32(buf[at+4:])
			at += unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(buf[at+12:]))
			if s := w.watched[wd]; mask&s.forbidden != 0 {
				wrong = append(wrong, deed(mask)+": "+s.name)
			}
		}
	}
}

func deed(mask uint32) string {
	switch {
	case mask&changed != 0:
		return "changed"
	case mask&unix.IN_MODIFY != 0:
		return "written"
	case mask&unix.IN_ACCESS != 0:
		return "read"
	}
	return "opened"
}

// restoreOutput says if the job's output holds more than the job's own words and reports, and makes it as it was.
func (w *world) restoreOutput() (wrong []string) {
	text := rig.Have(io.ReadAll(io.NewSectionReader(w.output, 0, 1<<20)))
	rest, whole := strings.CutPrefix(string(text), ownWords)
	for line := range strings.Lines(rest) {
		whole = whole && (line == "\n" || strings.HasPrefix(line, "| bookend: ")) && strings.HasSuffix(line, "\n")
	}
	if !whole {
		wrong = append(wrong, fmt.Sprintf("spoilt: the job's output holds %.200q", text))
		rig.Have(w.output.WriteAt([]byte(ownWords), 0))
	}
	rig.Try(w.output.Truncate(int64(len(ownWords))))
	return wrong
}

// target is the job's output as a task hook has recorded it, with its inode if that is known.
func (w *world) target(known bool) joblog.Target {
	t := joblog.Target{Path: w.out}
	if known {
		t.Dev, t.Ino = w.dev, w.ino
	}
	return t
}

// appendRequest is what the epilog asks its child to do.
func (w *world) appendRequest(known bool) []byte {
	text, _ := json.Marshal(joblog.AppendRequest{UID: user, GID: user, Target: w.target(known),
		Text: "\n| bookend: a report\n"})
	return text
}
