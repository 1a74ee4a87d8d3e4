package state

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/slurm"
	"bookend/test/faultinject"
	"bookend/test/must"
)

// A user can mount a file system over a drop, whose server never answers. Nothing of root's asks it anything.
func TestDropOfAServerThatDoesNotAnswer(t *testing.T) {
	s := fresh(t)
	must.Tmpfs(t, filepath.Join(s.Users.Run, drops), "size=256k,nr_inodes=100,mode=711")
	must.Do(t, s.Users.MakeDrop(job(7)))
	answer, err := faultinject.MountSilent(filepath.Join(s.Users.dir(drops, someUser), "n1_7"), unix.S_IFREG, ",allow_other")
	if err != nil {
		t.Skipf("there is no FUSE: %v", err)
	}
	t.Cleanup(func() { _ = answer() }) // a request that still waits gets an error
	done := make(chan error, 1)
	go func() {
		s.Users.reclaim()
		_, err := s.Users.ReadDrop(job(7))
		must.Not(t, err == nil, "it was read")
		done <- errors.Join(sweep(s, time.Now()), s.Users.RemoveDrop(someUser, slurm.Owner{ID: 7}))
	}()
	select {
	case err := <-done:
		must.Do(t, err)
	case <-time.After(time.Minute):
		t.Fatal("the server was asked")
	}
}
