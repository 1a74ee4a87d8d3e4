package state

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"bookend/internal/ledger"
	"bookend/internal/safefile"
	"bookend/internal/slurm"
	"bookend/test/refuse"
)

// Whatever keeps Archive from its work is told, and no record is gone that the history has not.
func TestArchiveHindered(t *testing.T) {
	for name, tt := range map[string]struct {
		harm func(s *Store, varDir string) error
		call refuse.Call
		want error // nil: the call's own; errNone: just any
		gone bool  // the record itself could be removed
	}{
		"a lock that others can write": {harm: func(s *Store, _ string) error { return openLock(s, lockArchive) },
			want: safefile.ErrNotOurs},
		"no folder for the history": {harm: func(_ *Store, varDir string) error {
			return os.WriteFile(filepath.Join(varDir, "history"), nil, 0o600)
		}, want: safefile.ErrNotOurs},
		"no folder for all of it": {harm: func(_ *Store, varDir string) error {
			return errors.Join(os.Remove(varDir), os.Symlink("x", varDir))
		}, want: unix.ENOTDIR},
		"a record that is in use": {harm: func(s *Store, _ string) error { return mounted(s) }, want: unix.EBUSY},
		"a damaged record": {harm: func(s *Store, _ string) error { return damaged(s, 1) },
			want: Damage{}, gone: true},
		"a record that stays": {call: removing(unix.EIO, false)},
		"a folder that stays": {call: removing(unix.EBUSY, true), gone: true},
		"a report that stays": {harm: func(s *Store, _ string) error { return blockedReport(s) },
			want: unix.ENOTEMPTY, gone: true},
		"a temporary that stays": {harm: func(s *Store, _ string) error { return temporaryFolder(s) },
			want: unix.ENOTEMPTY, gone: true},
		"a record that is not read":  {call: reading(unix.EIO)},
		"a folder that is not read":  {call: listing(unix.EIO)},
		"a lock that takes no time":  {call: refuse.Call{Number: unix.SYS_UTIMENSAT, Errno: unix.EPERM}},
		"a disk that does not write": {call: refuse.Call{Number: unix.SYS_FSYNC, Errno: unix.EIO}},
	} {
		t.Run(name, func(t *testing.T) {
			run, varDir := folder(t), filepath.Join(folder(t), "var")
			must(t, os.Mkdir(varDir, 0o755))
			s := open(t, run)
			lived(t, s, job(1), 10, false)
			t.Cleanup(func() { unmount(s) })
			if tt.harm != nil {
				must(t, tt.harm(s, varDir))
			}
			err := refused(t, tt.call, func() error { return Archive(run, varDir, node, now, limits(0, 0)) })
			var damage Damage
			switch {
			case tt.want == nil:
				if text := fmt.Sprint(err); !errors.Is(err, tt.call.Errno) && !strings.Contains(text, tt.call.Errno.Error()) {
					t.Errorf("%v, want %v", err, tt.call.Errno)
				}
			case tt.want == Damage{}:
				if !errors.As(err, &damage) {
					t.Errorf("%v, want a damage", err)
				}
			case !errors.Is(err, tt.want):
				t.Errorf("%v, want %v", err, tt.want)
			}
			runs, _ := s.Runs()
			if !tt.gone && len(runs) != 1 {
				t.Errorf("%d records are left in memory, want 1", len(runs))
			}
			if kept, _ := History(varDir, node); len(kept)+len(runs) == 0 && name != "a damaged record" {
				t.Error("the run is nowhere any more")
			}
		})
	}
}

func damaged(s *Store, id slurm.JobID) error {
	files, err := filepath.Glob(filepath.Join(s.dir, folderName(id), "*"+suffix))
	for _, f := range files {
		err = errors.Join(err, os.WriteFile(f, []byte("{"), 0o600))
	}
	return err
}

func openLock(s *Store, name string) error {
	path := filepath.Join(s.dir, name)
	return errors.Join(os.WriteFile(path, nil, 0o600), os.Chmod(path, 0o666))
}

// mounted makes a record that can be read, and not removed.
func mounted(s *Store) error {
	files, err := filepath.Glob(filepath.Join(s.dir, "1", "*"+suffix))
	if err != nil || len(files) != 1 {
		return fmt.Errorf("%q, %w", files, err)
	}
	return unix.Mount(files[0], files[0], "", unix.MS_BIND, "")
}

func unmount(s *Store) {
	files, _ := filepath.Glob(filepath.Join(s.dir, "1", "*"))
	for _, f := range files {
		_ = unix.Unmount(f, unix.MNT_DETACH) // most are no mount
	}
}

func blockedReport(s *Store) error {
	path := filepath.Join(s.run, "report", node+"_1")
	return errors.Join(os.Remove(path), os.MkdirAll(filepath.Join(path, "x"), 0o700))
}

func temporaryFolder(s *Store) error {
	return os.MkdirAll(filepath.Join(s.dir, "1", safefile.TempPrefix+"1", "x"), 0o700)
}

// An end does not lose a damaged record of its run: that is set aside.
func TestCloseDamaged(t *testing.T) {
	s := open(t, folder(t))
	j := job(1)
	j.Start = now
	begin(t, s, j, 10)
	must(t, damaged(s, 1))
	must(t, s.Close(ledger.Run{Job: j}, *at(11)))
	if aside, err := os.ReadDir(filepath.Join(s.dir, damagedName)); err != nil || len(aside) != 1 {
		t.Errorf("set aside: %v, %v", aside, err)
	}
	if r, _, err := s.Find(j); err != nil || !r.Closed() || r.Start != nil {
		t.Errorf("%+v, %v", r, err)
	}
}
