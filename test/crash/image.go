package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// entry is one file or folder of an image.
type entry struct {
	mode     os.FileMode
	uid, gid int
	changed  time.Time
	data     string
}

// image is what the hooks keep, by path below the node's folder.
type image map[string]entry

// capture reads what the hooks keep.
func capture(dir string) (image, error) {
	im := image{}
	for _, top := range kept {
		err := filepath.WalkDir(filepath.Join(dir, top), func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil {
				return err
			}
			e, err := read(path, d)
			im[strings.TrimPrefix(path, dir+"/")] = e
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("capture %q: %w", dir, err)
		}
	}
	return im, nil
}

func read(path string, d fs.DirEntry) (entry, error) {
	info, err := d.Info()
	if err != nil {
		return entry{}, err
	}
	st := info.Sys().(*syscall.Stat_t)
	e := entry{mode: info.Mode(), uid: int(st.Uid), gid: int(st.Gid), changed: info.ModTime()}
	if info.Mode().IsRegular() {
		data, err := os.ReadFile(path)
		e.data = string(data)
		return e, err
	}
	return e, nil
}

// restore makes a folder, of which is is the image, be as im. Files get their times too: what is kept for how long goes
// by them.
func (im image) restore(dir string, is image) error {
	var all []error
	// what lies in a folder first
	gone := slices.SortedFunc(keys(is), func(a, b string) int { return strings.Compare(b, a) })
	for _, name := range gone {
		now, stays := im[name]
		if !stays || now.mode.Type() != is[name].mode.Type() {
			all = append(all, os.Remove(filepath.Join(dir, name)))
			delete(is, name)
		}
	}
	names := slices.Sorted(keys(im))
	for _, name := range names {
		if e, was := is[name]; !was || e != im[name] {
			all = append(all, im[name].write(filepath.Join(dir, name)))
		}
	}
	for _, name := range slices.Backward(names) { // a folder's time last, after what is in it
		all = append(all, os.Chtimes(filepath.Join(dir, name), im[name].changed, im[name].changed))
	}
	if err := errors.Join(all...); err != nil {
		return fmt.Errorf("restore %q: %w", dir, err)
	}
	return nil
}

func (e entry) write(path string) error {
	var err error
	if e.mode.IsDir() {
		if err = os.Mkdir(path, 0o700); errors.Is(err, fs.ErrExist) {
			err = nil
		}
	} else {
		err = os.WriteFile(path, []byte(e.data), 0o600)
	}
	return errors.Join(err, os.Chown(path, e.uid, e.gid), os.Chmod(path, e.mode.Perm()))
}

// copyTo makes a folder a copy of the image, with no more to do than differs from the copy before it.
func (im image) copyTo(dir string) error {
	is, err := capture(dir)
	if err != nil {
		return err
	}
	return im.restore(dir, is)
}

func keys[V any](m map[string]V) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// temporary lists the files of interrupted writers.
func (im image) temporary() (names []string) {
	for name := range im {
		if strings.HasPrefix(filepath.Base(name), ".tmp-") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// lines are the lines of the hooks' log.
func (im image) lines() []string {
	return strings.Split(im["log/bookend.log"].data, "\n")
}

// heldLocks lists the locks that somebody holds though no hook is left.
func (im image) heldLocks(dir string) (held []string) {
	for name, e := range im {
		if !e.mode.IsRegular() || !strings.Contains(filepath.Base(name), "lock") {
			continue
		}
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_RDWR, 0)
		if err != nil {
			continue // removed
		}
		whole := unix.Flock_t{Type: unix.F_WRLCK}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil || unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK,
			&whole) != nil {
			held = append(held, name)
		}
		f.Close()
	}
	return held
}
