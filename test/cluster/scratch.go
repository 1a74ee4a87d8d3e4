package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"bookend/test/must"
)

// base holds the folders of test clusters. Not /tmp, which others may write to: root's hooks trust no
// program or configuration there. Not /run, which is often mounted noexec and nodev.
const base = "/var/lib/bookend-test"

// Scratch makes a new folder fit for a cluster: root's, searchable by all, on a file system that allows programs and
// devices. SweepDead leaves it alone while this process lives, which holds a lock on it.
func Scratch() (dir string, err error) {
	err = locked(func() error {
		if dir, err = os.MkdirTemp(base, "site-"); err == nil {
			err = os.Chmod(dir, 0o755)
		}
		if err == nil {
			_, err = lock(dir, unix.LOCK_NB) // the end of this process closes it
		}
		return err
	})
	return dir, err
}

// locked works in base while no other process makes or sweeps folders there.
func locked(do func() error) error {
	if err := errors.Join(os.MkdirAll(base, 0o755), os.Chmod(base, 0o755)); err != nil {
		return err
	}
	fd, err := lock(base, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return do()
}

// lock locks a folder until its descriptor is closed.
func lock(dir string, how int) (fd int, err error) {
	fd, err = unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err == nil {
		err = unix.Flock(fd, unix.LOCK_EX|how)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("lock %q: %w", dir, err)
	}
	return fd, nil
}

// SweepDead ends the clusters of Scratch folders whose process is gone, with what their jobs left, and removes
// the folders.
func SweepDead() error {
	return locked(func() error {
		dirs, _ := filepath.Glob(filepath.Join(base, "*-*"))
		var errs []error
		for _, dir := range dirs {
			fd, err := lock(dir, unix.LOCK_NB)
			if err != nil { // a file, or a living process's, wherever that runs
				continue
			}
			errs = append(errs, discard(dir))
			_ = unix.Close(fd)
		}
		return errors.Join(errs...)
	})
}

// discard ends what runs in dir and removes it. Whoever the folder was made by is known to be gone. The cluster is
// dir's, or that of a folder in it, where it is part of something larger.
func discard(dir string) error {
	within, _ := filepath.Glob(recordFile(filepath.Join(dir, "*")))
	for _, file := range append(within, recordFile(dir)) {
		cluster := filepath.Dir(file)
		if err := errors.Join(Sweep(cluster), endLeftovers(cluster)); err != nil {
			return err
		}
	}
	return Remove(dir)
}

// Remove removes a folder that Scratch made, but never through a mount into what is mounted there.
func Remove(dir string) error {
	if err := unmountBelow(dir); err != nil {
		return err
	}
	if mounts := mountsBelow(dir); len(mounts) > 0 {
		return fmt.Errorf("remove %q: still mounted below: %q", dir, mounts)
	}
	return os.RemoveAll(dir)
}

// TempDir is Scratch for a test. The folder goes with the test, unless that failed: then the next run's goes
// first (SweepDead).
func TempDir(t testing.TB) string {
	t.Helper()
	must.Do(t, SweepDead())
	dir := must.Have(Scratch())(t)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("kept for a look: %s", dir)
		} else if err := Remove(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// Start is Up for a test: when the test ends the cluster is taken down and what its jobs left is ended. A
// failed test shows the tail of the logs. An empty Dir becomes TempDir.
func Start(t testing.TB, o Options) *Cluster {
	t.Helper()
	if o.Dir == "" {
		o.Dir = TempDir(t)
	}
	c := must.Have(Up(o))(t)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(c.Logs(40))
		}
		if err := errors.Join(c.Down(), c.EndLeftovers()); err != nil {
			t.Error(err)
		}
	})
	return c
}
