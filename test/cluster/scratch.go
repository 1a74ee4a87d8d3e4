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
// programs and devices. Its name carries our pid, so that SweepDead knows when it is nobody's.
func Scratch() (dir string, err error) {
	for {
		err := os.MkdirAll(base, 0o755)
		if err == nil {
			dir, err = os.MkdirTemp(base, strconv.Itoa(os.Getpid())+"-")
		}
		switch {
		case err == nil:
			return dir, errors.Join(os.Chmod(base, 0o755), os.Chmod(dir, 0o755))
		case !errors.Is(err, os.ErrNotExist): // another process's Remove was just the last
			return "", err
		}
	}
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
		if text, _, ok := strings.Cut(e.Name(), "-"); ok && e.IsDir() && isDead(text) {
			errs = append(errs, discard(filepath.Join(base, e.Name())))
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
