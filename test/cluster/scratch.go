package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"bookend/test/must"
	"bookend/test/rig"
)

// base holds the folders of test clusters. Not /tmp, which others may write to: root's hooks trust no
// program or configuration there. Not /run, which is often mounted noexec and nodev.
const base = "/var/lib/bookend-test"

// Scratch makes a new folder fit for a cluster: root's, searchable by all, on a file system that allows
// programs and devices. SweepDead leaves it alone while this process lives: the name carries our PID, and we hold a lock
// on it, which is seen from other PID namespaces too.
func Scratch() (dir string, err error) {
	for {
		err := os.MkdirAll(base, 0o755)
		if err == nil {
			dir, err = os.MkdirTemp(base, strconv.Itoa(os.Getpid())+"-")
		}
		switch {
		case err == nil:
			return dir, errors.Join(own(dir), os.Chmod(base, 0o755), os.Chmod(dir, 0o755))
		case !errors.Is(err, os.ErrNotExist): // another process's Remove was just the last
			return "", err
		}
	}
}

// own locks a folder until this process ends, which closes the descriptor.
func own(dir string) error {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err == nil {
		err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
	}
	if err != nil {
		return fmt.Errorf("lock %q: %w", dir, err)
	}
	return nil
}

// owned reports a folder that a living process locked, wherever that process runs.
func owned(dir string) bool {
	f, err := os.Open(dir)
	if err != nil {
		return false
	}
	defer f.Close()
	return errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK)
}

// Remove removes a folder that Scratch made, and what Scratch made around it if nobody uses that any more.
func Remove(dir string) error {
	err := removeTree(dir)
	_ = os.Remove(base) // not empty: others have folders there
	return err
}

// SweepDead ends the clusters of Scratch folders whose process is gone, with what their jobs left, and removes
// the folders.
func SweepDead() error {
	lock, err := os.Open(base)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock %q: %w", base, err)
	}
	entries, err := os.ReadDir(base)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	var errs []error
	for _, e := range entries {
		dir := filepath.Join(base, e.Name())
		if text, _, ok := strings.Cut(e.Name(), "-"); ok && e.IsDir() && isDead(text) && !owned(dir) {
			errs = append(errs, discard(dir))
		}
	}
	return errors.Join(errs...)
}

func isDead(pid string) bool {
	n, err := strconv.Atoi(pid)
	return err == nil && rig.ReadProcess(n).Over()
}

// discard ends what runs in dir and removes it. Whoever the folder was made by is known to be gone. The cluster is
// dir's, or that of a folder in it, where it is part of something larger.
func discard(dir string) error {
	within, _ := filepath.Glob(recordFile(filepath.Join(dir, "*")))
	for _, file := range append(within, recordFile(dir)) {
		cluster := filepath.Dir(file)
		if err := Sweep(cluster); err != nil {
			return err
		}
		if err := endLeftovers(cluster); err != nil {
			return err
		}
	}
	return removeTree(dir)
}

// removeTree removes a folder, but never through a mount into what is mounted there.
func removeTree(dir string) error {
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
		} else if err := removeTree(dir); err != nil {
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
