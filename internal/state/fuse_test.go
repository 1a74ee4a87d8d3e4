package state

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/slurm"
	"bookend/test/must"
)

// A user can mount a file system over a drop, whose server never answers. Nothing of root's asks it anything.
func TestDropOfAServerThatDoesNotAnswer(t *testing.T) {
	s := open(t, folder(t))
	must.Do(t, unix.Mount("none", dropDir(s.run), "tmpfs", 0, "size=256k,nr_inodes=100,mode=711"))
	t.Cleanup(func() { _ = unix.Unmount(dropDir(s.run), unix.MNT_DETACH) })
	must.Do(t, s.MakeDrop(job(7)))
	silent(t, filepath.Join(userDir(dropDir(s.run), nobody), "n1_7"))
	done := make(chan error, 1)
	go func() {
		s.reclaim()
		_, err := s.ReadDrop(job(7))
		must.Not(t, err == nil, "it was read")
		done <- errors.Join(s.sweep(time.Now()), RemoveDrop(s.run, node, nobody, slurm.Owner{ID: 7}))
	}()
	select {
	case err := <-done:
		must.Do(t, err)
	case <-time.After(time.Minute):
		t.Fatal("the server was asked")
	}
}

// silent mounts a FUSE file system over a file, which ends with the test.
func silent(t *testing.T, path string) {
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err == nil {
		options := fmt.Sprintf("fd=%d,rootmode=100000,user_id=0,group_id=0,allow_other", fd)
		err = unix.Mount("silent", path, "fuse", 0, options)
	}
	if err != nil {
		t.Skipf("there is no FUSE: %v", err)
	}
	t.Cleanup(func() { // whoever asks it still gets an error
		unix.Close(fd)
		_ = unix.Unmount(path, unix.MNT_DETACH)
	})
}
