// Package frozen gives tests a file system that stops taking writes: what writes to it sleeps in state D, and not even
// SIGKILL ends it before the thaw. Nothing of that is faked, and any host with loop devices can do it.
package frozen

import (
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// FS is such a file system.
type FS struct {
	Dir    string // where it is mounted
	t      testing.TB
	mu     sync.Mutex // a timer may thaw it
	keeper io.Closer  // closing it makes the keeper thaw
	thawed func()     // waits for that
}

// New mounts an empty ext4 at a new directory, from an image on a loop device that goes with the mount.
func New(t testing.TB, dir string) *FS {
	t.Helper()
	f := &FS{Dir: dir, t: t}
	image := dir + ".image"
	f.must(os.WriteFile(image, nil, 0o600))
	f.must(os.Truncate(image, 2<<20))
	f.must(os.Mkdir(dir, 0o755))
	f.run("mkfs.ext4", "-q", "-m", "0", "-O", "^has_journal", image)
	f.run("mount", "-o", "loop", image, dir)
	t.Cleanup(func() {
		f.Thaw()
		_ = unix.Unmount(dir, unix.MNT_DETACH)
	})
	return f
}

// Freeze stops all writes until Thaw. A keeper thaws also when this process dies in between: a file system that stays
// frozen outlives its mount, and wedges the machine.
func (f *FS) Freeze() {
	f.t.Helper()
	keeper := exec.Command("/bin/sh", "-c", `read -r end; exec fsfreeze --unfreeze "$1"`, "thaw", f.Dir)
	keeper.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	in, err := keeper.StdinPipe()
	f.must(err)
	f.must(keeper.Start())
	f.mu.Lock()
	defer f.mu.Unlock()
	f.keeper, f.thawed = in, func() { f.must(keeper.Wait()) }
	f.run("fsfreeze", "--freeze", f.Dir)
}

// Thaw lets all writers go on. A file system that is not frozen stays as it is.
func (f *FS) Thaw() {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.keeper == nil {
		return
	}
	f.must(f.keeper.Close())
	f.keeper = nil
	f.thawed()
}

func (f *FS) run(name string, args ...string) {
	f.t.Helper()
	if text, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		f.t.Fatalf("%s: %v: %s", name, err, text)
	}
}

func (f *FS) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}
