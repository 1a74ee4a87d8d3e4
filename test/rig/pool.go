package rig

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"bookend/test/build"
	"bookend/test/faultinject"
)

// Bench is a file system of its own in memory: root's all the way up, as root's hooks demand.
type Bench struct{ Dir, module string }

// ground is a folder of root's that is everywhere and holds nothing that is needed. It is hidden in this mount
// namespace alone, and a program that is killed leaves nothing behind.
const ground = "/mnt"

// NewBench makes it in this mount namespace: it ends with it.
func NewBench() (*Bench, error) {
	module, err := Module()
	if err == nil {
		err = unix.Mount("none", ground, "tmpfs", 0, "mode=0755")
	}
	if err != nil {
		return nil, fmt.Errorf("make a bench on %q: %w", ground, err)
	}
	return &Bench{Dir: ground, module: module}, nil
}

// TestBench is one that ends with a test.
func TestBench(t testing.TB) *Bench {
	t.Helper()
	b, err := NewBench()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// Close takes the file system away.
func (b *Bench) Close() error { return unix.Unmount(b.Dir, unix.MNT_DETACH) }

// Folder makes a new folder.
func (b *Bench) Folder(name string) (path string, err error) {
	if path, err = os.MkdirTemp(b.Dir, name+"-"); err == nil {
		err = os.Chmod(path, 0o755)
	}
	return path, err
}

// Build makes programs as the Makefile does, with a mistake where one is named.
func (b *Bench) Build(m faultinject.Mutant, programs ...string) (folder string, err error) {
	if folder, err = b.Folder("programs"); err != nil {
		return "", err
	}
	overlay := ""
	if m.File != "" {
		if overlay, err = m.Overlay(b.module, folder); err != nil {
			return "", err
		}
	}
	return folder, build.Programs(folder, overlay, programs...)
}

// Each gives what next has to workers, each of which has a stand of its own, until there is no more or one has failed.
func Each[S, T any](stands []S, next func() (T, bool), do func(S, T) error) error {
	var all sync.WaitGroup
	var mu sync.Mutex
	var failed error
	draw := func() (item T, more bool) {
		mu.Lock()
		defer mu.Unlock()
		if failed == nil {
			item, more = next()
		}
		return item, more
	}
	for _, s := range stands {
		all.Go(func() {
			for item, more := draw(); more; item, more = draw() {
				if err := do(s, item); err != nil {
					mu.Lock()
					failed = errors.Join(failed, fmt.Errorf("%v: %w", item, err))
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	return failed
}

// ErrWrong says that something was not as it must be; what, is printed already.
var ErrWrong = errors.New("not all is as it must be")

// Program is the main of one that tries the hooks, as root in a mount namespace of its own. Exit codes: 0 all was as it
// must be, 1 something was not, 64 usage, or something that keeps it from being tried.
func Program(name string, work func(b *Bench, args []string) error) {
	err := OwnMounts()
	if err == nil {
		var b *Bench
		if b, err = NewBench(); err == nil {
			var outcome error
			err = errors.Join(Attempt(func() { outcome = work(b, os.Args[1:]) }), outcome, b.Close())
		}
	}
	if err == nil {
		return
	}
	fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
	if errors.Is(err, ErrWrong) {
		os.Exit(1)
	}
	os.Exit(64)
}
