package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"bookend/test/faultinject"
	"bookend/test/rig"
)

// place is a name on the way to a file that a hook looks up.
type place int

const (
	outFile  place = iota // the job's output
	outDir                // the directory that it is in
	outAbove              // the directory above that
	dropFile              // the job's drop record
)

// kind is one thing that takes a place while a hook is held still. Either plant makes it once, next to what it is later
// exchanged with, or swap makes it each time.
type kind struct {
	name  string
	where place
	plant func(w *world, at string)
	swap  func(w *world, over string) (undo func() error, err error)
	known bool // only if the output's inode is on record: without it this is, by its path, the job's output
	hangs bool // a process that touches it sleeps until it is undone
}

// kinds are all that is put in a place.
var kinds = []kind{
	{name: "link-to-root", where: outFile, plant: link("root")},
	{name: "link-to-open", where: outFile, plant: link("open-root")},
	{name: "link-to-precious", where: outFile, plant: link("precious")},
	{name: "link-to-closed", where: outFile, plant: link("closed/out")},
	{name: "link-to-device", where: outFile, plant: link("null")},
	{name: "link-to-itself", where: outFile,
		plant: func(w *world, at string) { rig.Try(os.Symlink(filepath.Base(at), at)) }},
	{name: "two-names", where: outFile, plant: func(w *world, at string) {
		own(user, 0o644, touched)(w, at)
		rig.Try(os.Link(at, w.kept("second name")))
	}},
	{name: "fifo", where: outFile, plant: fifo(user, touched, "")},
	{name: "directory", where: outFile, plant: func(w *world, at string) { w.dir(at, user, 0o755) }},
	{name: "device", where: outFile, plant: device(user, 0o666, 3, touched)},
	{name: "root-file", where: outFile, plant: own(0, 0o600, opened|touched)},
	{name: "root-open-file", where: outFile, plant: own(0, 0o666, touched)},
	{name: "other-open-file", where: outFile, plant: own(other, 0o666, touched)},
	{name: "own-read-only", where: outFile, plant: own(user, 0o400, touched), known: true},
	{name: "own-other-file", where: outFile, plant: own(user, 0o644, touched), known: true},
	{name: "missing", where: outFile, swap: hide},
	{name: "named-twice", where: outFile, swap: nameTwice},
	{name: "given-away", where: outFile, swap: giveAway},
	{name: "mounted-root-file", where: outFile, swap: bind("root")},
	{name: "mounted-open-file", where: outFile, swap: bind("open-root")},
	{name: "mounted-own-file", where: outFile, swap: bind("precious"), known: true},
	{name: "mounted-full", where: outFile, swap: bind("full/out"), known: true},
	{name: "mounted-read-only", where: outFile, swap: bind("read-only/out"), known: true},
	{name: "hanging-file", where: outFile, swap: mount(unix.S_IFREG, ",allow_other"), hangs: true},

	{name: "folder-link-root", where: outDir, plant: link("of-root")},
	{name: "folder-link-open", where: outDir, plant: link("of-open")},
	{name: "folder-link-other", where: outDir, plant: link("of-other")},
	{name: "folder-link-own", where: outDir, plant: link("of-own"), known: true},
	{name: "folder-file", where: outDir, plant: own(user, 0o644, touched)},
	{name: "folder-private", where: outDir, swap: mount(unix.S_IFDIR, "")}, // root's: it refuses all other users
	{name: "folder-hanging", where: outDir, swap: mount(unix.S_IFDIR, ",allow_other"), hangs: true},

	{name: "above-link-open", where: outAbove, plant: link("above/of-open")},
	{name: "above-link-own", where: outAbove, plant: link("above/of-own"), known: true},
	{name: "above-missing", where: outAbove, plant: func(w *world, at string) { w.dir(at, user, 0o755) }},

	{name: "drop-link-root", where: dropFile, plant: link("pool-root")},
	{name: "drop-link-closed", where: dropFile, plant: link("pool-closed/job.json")},
	{name: "drop-two-names", where: dropFile, plant: func(w *world, at string) {
		w.record("drop-two-names", at, 0, 0o600)
		rig.Try(os.Link(at, at+"-too"))
	}},
	{name: "drop-own", where: dropFile, plant: forbiddenDrop(user, 0o600)},
	{name: "drop-other", where: dropFile, plant: forbiddenDrop(other, 0o666)},
	{name: "drop-fifo", where: dropFile, plant: func(w *world, at string) {
		fifo(0, opened|touched, w.claim("drop-fifo"))(w, at)
	}},
	{name: "drop-device", where: dropFile, plant: device(0, 0o666, 5, opened|touched)},
	{name: "drop-directory", where: dropFile, plant: func(w *world, at string) { w.dir(at, 0, 0o700) }},
	{name: "drop-huge", where: dropFile, plant: func(w *world, at string) {
		w.file(at, 0, 0o600, "")
		rig.Try(os.Truncate(at, 256<<20)) // no hook may read so many bytes into memory
	}},
	{name: "drop-missing", where: dropFile, swap: hide},
	{name: "drop-mounted", where: dropFile, swap: bind("record/job.json")},
	{name: "drop-hanging", where: dropFile, swap: mount(unix.S_IFREG, ",allow_other"), hangs: true},
}

// link plants a symbolic link to one of the kept things, or in the drop to one of those there.
func link(to string) func(*world, string) {
	return func(w *world, at string) {
		target := w.kept(to)
		if filepath.Dir(at) == w.pool {
			target = filepath.Join(w.drop, to)
		}
		rig.Try(os.Symlink(target, at))
	}
}

func own(uid int, mode os.FileMode, forbidden uint32) func(*world, string) {
	return func(w *world, at string) {
		w.file(at, uid, mode, precious)
		w.guard(filepath.Base(at), at, forbidden)
	}
}

// forbiddenDrop plants a drop record that no hook may open.
func forbiddenDrop(uid int, mode os.FileMode) func(*world, string) {
	return func(w *world, at string) { w.record(filepath.Base(at), at, uid, mode) }
}

// device plants a character device of major number 1: 3 is null, 5 zero.
func device(uid int, mode uint32, minor uint32, forbidden uint32) func(*world, string) {
	return func(w *world, at string) {
		w.node(at, uid, unix.S_IFCHR|mode, int(unix.Mkdev(1, minor)))
		w.guard(filepath.Base(at), at, forbidden)
	}
}

// fifo plants a FIFO that this process holds open at both ends, with a text in it.
func fifo(uid int, forbidden uint32, text string) func(*world, string) {
	return func(w *world, at string) {
		w.node(at, uid, unix.S_IFIFO|0o666, 0)
		fd := rig.Have(unix.Open(at, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0))
		rig.Have(unix.Write(fd, []byte(text)))
		w.fds = append(w.fds, fd)
		w.guard(filepath.Base(at), at, forbidden)
	}
}

// hide takes a thing away. What is in its place when it is put back, a hook has made.
func hide(_ *world, over string) (func() error, error) {
	away := filepath.Join(filepath.Dir(over), ".hidden")
	back := func() (made error) {
		if _, err := os.Lstat(over); err == nil {
			made = errMade
		}
		return errors.Join(made, os.Rename(away, over))
	}
	return back, os.Rename(over, away)
}

var errMade = errors.New("made: a file where there was none")

func nameTwice(_ *world, over string) (func() error, error) {
	second := filepath.Join(filepath.Dir(over), ".second")
	return func() error { return os.Remove(second) }, os.Link(over, second)
}

func giveAway(_ *world, over string) (func() error, error) {
	return func() error { return os.Lchown(over, user, user) }, os.Lchown(over, other, user)
}

func bind(kept string) func(*world, string) (func() error, error) {
	return func(w *world, over string) (func() error, error) {
		undo := func() error { return unix.Unmount(over, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) }
		return undo, unix.Mount(w.kept(kept), over, "", unix.MS_BIND, "")
	}
}

// mount mounts a file system whose server never answers over a file or directory.
func mount(format uint32, options string) func(*world, string) (func() error, error) {
	return func(_ *world, over string) (func() error, error) {
		return faultinject.MountSilent(over, format|0o755, options)
	}
}

func exchange(a, b string) error {
	if err := unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE); err != nil {
		return fmt.Errorf("exchange %q and %q: %w", a, b, err)
	}
	return nil
}
