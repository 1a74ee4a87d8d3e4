// Package frozen gives tests a file system that stops taking writes: what writes to it sleeps in state D, and not even
// SIGKILL ends it before the thaw. Nothing of that is faked, and any host with loop devices can do it.
package frozen

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// FS is such a file system.
type FS struct {
	Dir    string // where it is mounted
	t      testing.TB
	keeper io.Closer // closing it makes the keeper thaw
	thawed func()    // waits for that
}

// New mounts an empty ext4 at a new directory, from an image on a loop device that goes with the mount.
func New(t testing.TB, dir string) *FS {
	t.Helper()
	f := &FS{Dir: dir, t: t}
	image, err := os.OpenFile(dir+".image", os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	f.must(err)
	defer image.Close()
	f.must(image.Truncate(2 << 20))
	mkfs := exec.Command("mkfs.ext4", "-q", "-m", "0", "-O", "^has_journal", image.Name())
	if text, err := mkfs.CombinedOutput(); err != nil {
		t.Fatalf("mkfs.ext4: %v: %s", err, text)
	}
	f.must(os.Mkdir(dir, 0o755))
	device := f.attach(image)
	defer device.Close() // the mount holds it from now on
	f.must(unix.Mount(device.Name(), dir, "ext4", 0, ""))
	t.Cleanup(func() {
		f.Thaw()
		_ = unix.Unmount(dir, unix.MNT_DETACH)
	})
	return f
}

// attach gives an image a loop device that is detached with its last user.
func (f *FS) attach(image *os.File) *os.File {
	f.t.Helper()
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	f.must(err)
	defer control.Close()
	for range 100 {
		number, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		f.must(err)
		device, err := os.OpenFile(fmt.Sprintf("/dev/loop%d", number), os.O_RDWR, 0)
		f.must(err)
		config := unix.LoopConfig{Fd: uint32(image.Fd()), Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR}}
		if err = unix.IoctlLoopConfigure(int(device.Fd()), &config); err == nil {
			return device
		}
		device.Close()
		if err != unix.EBUSY { // another process took it meanwhile
			f.must(err)
		}
	}
	f.t.Fatal("no free loop device")
	return nil
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
	if text, err := exec.Command("fsfreeze", "--freeze", f.Dir).CombinedOutput(); err != nil {
		f.t.Errorf("freeze: %v: %s", err, text)
	}
	f.keeper, f.thawed = in, func() { f.must(keeper.Wait()) }
}

// Thaw lets all writers go on. A file system that is not frozen stays as it is.
func (f *FS) Thaw() {
	f.t.Helper()
	if f.keeper == nil {
		return
	}
	f.must(f.keeper.Close())
	f.keeper = nil
	f.thawed()
}

func (f *FS) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}
