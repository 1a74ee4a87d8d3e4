package faultinject

import (
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"bookend/test/must"
)

// FS is a file system that can be frozen. A process that writes to it then sleeps in state D, and not even SIGKILL ends
// it before the thaw. Nothing of that is simulated, and any host with loop devices can do it.
type FS struct {
	Dir    string // where it is mounted
	t      testing.TB
	mu     sync.Mutex // a timer may call Thaw
	keeper io.Closer  // closing it makes the keeper thaw
	thawed func()     // waits for that
}

// NewFS mounts an empty ext4 at a new directory, from an image on a loop device that goes with the mount.
func NewFS(t testing.TB, dir string) *FS {
	t.Helper()
	f := &FS{Dir: dir, t: t}
	image := dir + ".image"
	must.Do(t, os.WriteFile(image, nil, 0o600))
	must.Do(t, os.Truncate(image, 2<<20))
	must.Do(t, os.Mkdir(dir, 0o755))
	f.run("mkfs.ext4", "-q", "-m", "0", "-O", "^has_journal", image)
	f.run("mount", "-o", "loop", image, dir)
	t.Cleanup(func() {
		f.Thaw()
		_ = unix.Unmount(dir, unix.MNT_DETACH)
	})
	return f
}

// Freeze stops all writes until Thaw. A keeper thaws also when this process dies in between: a file system that stays
// frozen outlives its mount and wedges the machine.
func (f *FS) Freeze() {
	f.t.Helper()
	keeper := exec.Command("/bin/sh", "-c", `read -r end; exec fsfreeze --unfreeze "$1"`, "thaw", f.Dir)
	keeper.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	in := must.Have(keeper.StdinPipe())(f.t)
	must.Do(f.t, keeper.Start())
	f.mu.Lock()
	defer f.mu.Unlock()
	f.keeper, f.thawed = in, func() { must.Do(f.t, keeper.Wait()) }
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
	must.Do(f.t, f.keeper.Close())
	f.keeper = nil
	f.thawed()
}

func (f *FS) run(name string, args ...string) {
	f.t.Helper()
	if text, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		f.t.Fatalf("%s: %v: %s", name, err, text)
	}
}
