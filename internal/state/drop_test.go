package state

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/safefile"
	"bookend/internal/slurm"
	"bookend/test/refuse"
)

func always() bool { return true }

// atMost says yes that often.
func atMost(n int) func() bool {
	return func() bool { n--; return n >= 0 }
}

// remove does what the child of a job's end does.
func remove(run string, job slurm.Owner, more func() bool) error {
	return errors.Join(RetireDrop(run, node, job), RemoveDrops(run, node, more))
}

// dropped are the names in the folder of drops.
func dropped(t *testing.T, s *Store) []string {
	t.Helper()
	names, err := s.drops()
	must(t, err)
	return names
}

// claims leaves a file in a job's drop folder.
func claims(t *testing.T, s *Store, name string) {
	t.Helper()
	must(t, os.WriteFile(filepath.Join(s.dropFolder(), name, "theirs"), nil, 0o600))
}

// The folder of an earlier run of another user's, or one that root has taken and not emptied, is put aside, however
// many were before it, and goes with the next job's end. One that is in use as a mount point stays.
func TestMakeDropPutsAnotherUsersAside(t *testing.T) {
	s := open(t, folder(t))
	path := filepath.Join(s.dropFolder(), "n1_7")
	for uid := uint32(nobody - 3); uid <= nobody; uid++ {
		j := job(7)
		j.UID = uid
		must(t, s.MakeDrop(j))
		if left, err := os.ReadDir(path); err != nil || len(left) != 0 {
			t.Errorf("user %d finds %v, %v", uid, left, err)
		}
		claims(t, s, "n1_7")
	}
	must(t, os.Chown(path, 0, 0))
	must(t, s.MakeDrop(job(7)))
	if names := dropped(t, s); len(names) != 5 {
		t.Errorf("%q", names)
	}
	must(t, remove(s.run, slurm.Owner{ID: 7}, always))
	if names := dropped(t, s); len(names) != 0 {
		t.Errorf("left %q", names)
	}
	j := job(7)
	j.UID--
	must(t, errors.Join(s.MakeDrop(j), unix.Mount(path, path, "", unix.MS_BIND, "")))
	defer unix.Unmount(path, unix.MNT_DETACH)
	if err := s.MakeDrop(job(7)); !errors.Is(err, safefile.ErrNotOurs) {
		t.Error(err)
	}
	if err := remove(s.run, slurm.Owner{ID: 7}, always); !errors.Is(err, unix.EBUSY) {
		t.Error(err)
	}
}

func TestRemoveDrop(t *testing.T) {
	run := folder(t)
	s := open(t, run)
	outside := folder(t)
	keep := filepath.Join(outside, "keep")
	deep := filepath.Join(run, "drop/n1_7", strings.Repeat("d/", 100))
	err := errors.Join(s.MakeDrop(bothNames(7)), s.MakeDrop(job(8)), os.WriteFile(keep, nil, 0o600),
		os.MkdirAll(deep, 0o700),
		os.Symlink(outside, filepath.Join(deep, "link")), os.Symlink(outside, filepath.Join(run, "drop/n1_7/link")),
		unix.Mkfifo(filepath.Join(run, "drop/n1_7/pipe"), 0o600))
	for i := range 300 {
		err = errors.Join(err, os.WriteFile(filepath.Join(deep, fmt.Sprint(i)), nil, 0o600))
	}
	must(t, err)
	for range 2 {
		must(t, remove(run, slurm.Owner{ID: 7, SLUID: sluidA}, always))
	}
	if names := dropped(t, s); !slices.Equal(names, []string{"n1_8"}) {
		t.Errorf("left: %q", names)
	}
	if _, err := os.Stat(keep); err != nil {
		t.Errorf("a link led out: %v", err)
	}
	if err := remove(filepath.Join(run, "none"), slurm.Owner{ID: 7}, always); err != nil {
		t.Errorf("no drop at all: %v", err)
	}
}

// A process that outlived its job keeps filling the folder while it is emptied.
func TestRemoveDropOfARestlessUser(t *testing.T) {
	run := folder(t)
	s := open(t, run)
	j := job(7)
	must(t, s.MakeDrop(j))
	filler := exec.Command("/bin/sh", "-c",
		"mkdir sub; while : >sub/$i && : >$i; do i=$((i+1)); [ $i -ne 5 ] || echo busy; done")
	filler.Dir, filler.Env = filepath.Join(run, "drop/n1_7"), []string{"PATH=/usr/bin:/bin", "i=0"}
	filler.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: j.UID, Gid: j.GID}}
	out, err := filler.StdoutPipe()
	must(t, err)
	must(t, filler.Start())
	t.Cleanup(func() {
		_ = filler.Process.Kill()
		_ = filler.Wait()
	})
	_, err = out.Read(make([]byte, 5))
	must(t, err)
	must(t, remove(run, slurm.Owner{ID: 7}, always))
	if names := dropped(t, s); len(names) != 0 {
		t.Errorf("left: %q", names)
	}
}

// What takes longer than one child may is taken up by the next, and the name is free at once.
func TestRemoveDropGoesOn(t *testing.T) {
	s := open(t, folder(t))
	must(t, s.MakeDrop(job(7)))
	for i := range 50 {
		must(t, os.MkdirAll(filepath.Join(s.dropFolder(), "n1_7", fmt.Sprint(i), "d"), 0o700))
	}
	children := 0
	for ; children == 0 || len(dropped(t, s)) > 0; children++ {
		must(t, remove(s.run, slurm.Owner{ID: 7}, atMost(10)))
		if _, err := os.Lstat(filepath.Join(s.dropFolder(), "n1_7")); !errors.Is(err, fs.ErrNotExist) {
			t.Fatal("the name is not free")
		}
		if children > 50 {
			t.Fatal("it does not end")
		}
	}
	if children < 5 {
		t.Errorf("%d children did what takes ten steps each", children)
	}
}

// A drop folder that cannot be taken from the user, or emptied, is told; nothing outside it is gone.
func TestRemoveDropHindered(t *testing.T) {
	for name, c := range map[string]refuse.Call{
		"remove": removing(unix.EIO, true), "take": {Number: unix.SYS_FCHOWN, Errno: unix.EPERM},
		"close": {Number: unix.SYS_FCHMOD, Errno: unix.EIO},
		"open":  {Number: unix.SYS_OPENAT, Errno: unix.EMFILE, When: refuse.Below(0)},
		"list":  listing(unix.EIO), "put aside": {Number: unix.SYS_RENAMEAT, Errno: unix.EROFS},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, folder(t))
			must(t, s.MakeDrop(job(1)))
			must(t, os.Mkdir(filepath.Join(s.dropFolder(), "n1_1/sub"), 0o700))
			err := refused(t, c, func() error { return remove(s.run, slurm.Owner{ID: 1}, always) })
			if !errors.Is(err, c.Errno) {
				t.Errorf("%v, want %v", err, c.Errno)
			}
			must(t, remove(s.run, slurm.Owner{ID: 1}, always))
			if names := dropped(t, s); len(names) != 0 {
				t.Errorf("left: %q", names)
			}
		})
	}
}

func TestDropNames(t *testing.T) {
	id, sluid := slurm.Owner{ID: 7}, slurm.Owner{SLUID: sluidA}
	for name, want := range map[string]struct {
		job slurm.Owner
		old bool
	}{
		"n1_7": {id, false}, "n1_7.aside-0": {id, true}, "n1_" + string(sluidA): {sluid, false},
		"n1_" + string(sluidA) + ".aside-12": {sluid, true},

		"n1_x_7": {}, "n1_7.aside-0_9": {}, "n1_7.aside-": {}, "n1_7.aside-0.aside-1": {}, "n1_07": {},
		"n1_0.aside-1": {}, "n1_": {},
		"n2_7": {}, "n11_7": {}, "other": {}, "n1_7.aside": {},
	} {
		if got, old := (&Store{node: node}).dropOf(name); got != want.job || old != want.old {
			t.Errorf("%q: %+v, old %v", name, got, old)
		}
	}
}

// Drop folders whose job's end was killed, or never came, are put aside; those of jobs that run, of ends that are not
// an hour old, of other nodes and of nobody known stay.
func TestArchiveClearsDrops(t *testing.T) {
	s := open(t, folder(t))
	varDir := filepath.Join(folder(t), "lib")
	lived(t, s, bothNames(1), 10, false)
	begin(t, s, job(2), 20)
	lived(t, s, job(3), 30, false)
	begin(t, s, job(5), 1) // its end never came: it began anew
	lived(t, s, job(5), 40, false)
	for _, j := range []slurm.Job{job(2), job(4)} { // 4 has no record
		must(t, s.MakeDrop(j))
	}
	strangers := []string{"n1_x_1", "n2_1", "other"}
	for _, name := range strangers {
		must(t, os.Mkdir(filepath.Join(s.dropFolder(), name), 0o700))
	}
	soon := at(41).Wall.Add(time.Minute)
	must(t, Archive(s.run, varDir, node, soon, DefaultLimits()))
	stay := []string{"n1_1", "n1_2", "n1_3", "n1_4.aside-0", "n1_5", "n1_" + string(sluidA)}
	if names := dropped(t, s); !slices.Equal(names, slices.Sorted(slices.Values(append(stay, strangers...)))) {
		t.Errorf("a minute later: %q", names)
	}
	archive(t, s.run, varDir, DefaultLimits())
	must(t, remove(s.run, slurm.Owner{ID: 99}, always))
	if names := dropped(t, s); !slices.Equal(names, append([]string{"n1_2"}, strangers...)) {
		t.Errorf("much later: %q", names)
	}
}

// A job that begins while the leftovers are looked through keeps its folder: its record is read anew under the job's
// lock.
func TestClearDropsSparesWhoBegins(t *testing.T) {
	s := open(t, folder(t))
	lived(t, s, job(1), 10, false)
	names := dropped(t, s)
	runs, _ := s.Runs()
	begin(t, s, job(1), 20)
	must(t, s.MakeDrop(job(1)))
	must(t, s.clearDrops(names, runs, now))
	if left := dropped(t, s); !slices.Equal(left, names) {
		t.Errorf("the job finds %q", left)
	}
	must(t, damaged(s, 1))
	must(t, s.clearDrops(names, runs, now))
	if left := dropped(t, s); !slices.Equal(left, names) {
		t.Errorf("with a damaged record it finds %q", left)
	}
}

// While a record cannot be read, no folder is taken for a leftover.
func TestUnreadRecordKeepsDrops(t *testing.T) {
	s := open(t, folder(t))
	begin(t, s, job(1), 10)
	must(t, errors.Join(s.MakeDrop(job(1)), damaged(s, 1)))
	if err := Archive(s.run, filepath.Join(folder(t), "lib"), node, now, DefaultLimits()); !errors.As(err, new(Damage)) {
		t.Error(err)
	}
	if names := dropped(t, s); !slices.Equal(names, []string{"n1_1"}) {
		t.Errorf("left: %q", names)
	}
}
