package state

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/safefile"
)

const leftover = safefile.TempPrefix + "0123456789abcdef"

// interrupted are the places in which a killed hook leaves what it was writing.
var interrupted = []string{"state/" + node, "state/" + node + "/41", "state/" + node + "/42", "report"}

func leave(t *testing.T, run string, age time.Duration) {
	t.Helper()
	for _, folder := range interrupted {
		path := filepath.Join(run, folder, leftover)
		must(t, os.MkdirAll(filepath.Dir(path), 0o700))
		must(t, os.WriteFile(path, []byte("{"), 0o600))
		must(t, os.Chtimes(path, now.Add(-age), now.Add(-age)))
	}
}

func left(t *testing.T, run string) (names []string) {
	t.Helper()
	for _, folder := range interrupted {
		if _, err := os.Lstat(filepath.Join(run, folder, leftover)); err == nil {
			names = append(names, folder)
		}
	}
	return names
}

// What hooks that were killed left half written goes, and so does the folder of a job that came to no record; records
// stay.
func TestSweep(t *testing.T) {
	s := open(t, folder(t))
	j := job(42)
	begin(t, s, j, 1)
	leave(t, s.run, 2*time.Hour)

	archive(t, s.run, filepath.Join(folder(t), "lib"), DefaultLimits())

	if names := left(t, s.run); len(names) > 0 {
		t.Errorf("left: %q", names)
	}
	if _, err := os.Lstat(filepath.Join(s.dir, "41")); !os.IsNotExist(err) {
		t.Errorf("the folder without a record is there: %v", err)
	}
	if runs, damage := s.Runs(); len(runs) != 1 || len(damage) > 0 {
		t.Errorf("%d records, %v", len(runs), damage)
	}
}

// A report has no lock: what is being written may be so right now. Elsewhere a lock keeps writers out.
func TestSweepSparesTheWriter(t *testing.T) {
	s := open(t, folder(t))
	leave(t, s.run, time.Second)
	var locks []func()
	for _, name := range []string{lockOther, lockOf(41), lockOf(42)} {
		release, err := safefile.Lock(filepath.Join(s.dir, name), 0, true)
		must(t, err)
		locks = append(locks, release)
	}

	archive(t, s.run, filepath.Join(folder(t), "lib"), DefaultLimits())

	if names := left(t, s.run); len(names) != len(interrupted) {
		t.Errorf("left: %q", names)
	}
	for _, release := range locks {
		release()
	}
	archive(t, s.run, filepath.Join(folder(t), "lib"), DefaultLimits())
	if names := left(t, s.run); len(names) != 1 || names[0] != "report" {
		t.Errorf("left: %q", names)
	}
}

// What is no folder of a job's, or leads elsewhere, is nobody's to tidy.
func TestSweepStrangers(t *testing.T) {
	s, elsewhere := open(t, folder(t)), folder(t)
	stranger := filepath.Join(elsewhere, leftover)
	must(t, os.WriteFile(stranger, nil, 0o600))
	must(t, os.Symlink(elsewhere, filepath.Join(s.dir, "57")))
	must(t, os.WriteFile(filepath.Join(s.dir, "58"), nil, 0o600))
	_ = Archive(s.run, filepath.Join(folder(t), "lib"), node, now, DefaultLimits()) // which complains of them
	for _, path := range []string{stranger, filepath.Join(s.dir, "57"), filepath.Join(s.dir, "58")} {
		if _, err := os.Lstat(path); err != nil {
			t.Error(err)
		}
	}
}

// One part of sweep that fails keeps no other from its work, and is reported.
func TestSweepHindered(t *testing.T) {
	s := open(t, folder(t))
	if err := refused(t, listing(unix.EIO), func() error { return s.sweep(now) }); !errors.Is(err, unix.EIO) {
		t.Errorf("%v, want %v", err, unix.EIO)
	}
	leave(t, s.run, 2*time.Hour)
	must(t, os.RemoveAll(s.dir))
	if err := s.sweep(now); !errors.Is(err, unix.ENOENT) {
		t.Errorf("%v, want %v", err, unix.ENOENT)
	}
	if names := left(t, s.run); len(names) > 0 {
		t.Errorf("left: %q", names)
	}
}

// Who came back from a user's files is worth knowing for a second, and does not pile up.
func TestSweepForgetsVisits(t *testing.T) {
	s := open(t, folder(t))
	s.SetVisited("append", 7, time.Hour)
	s.SetVisited("append", 8, time.Hour)
	old := filepath.Join(s.dir, visitFile("append", 7).name)
	must(t, os.Chtimes(old, now.Add(-2*abandonedAfter), now.Add(-2*abandonedAfter)))
	must(t, os.Chtimes(filepath.Join(s.dir, visitFile("append", 8).name), now, now))
	must(t, s.sweep(now))
	if s.VisitedLately("append", 7, time.Hour) || !s.VisitedLately("append", 8, time.Hour) {
		t.Error("the old one is there, or the new one is gone")
	}
}
