package state

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/safefile"
	"bookend/test/must"
)

// What hooks that were killed left half written goes after an hour, and so does the folder of a job that came to no
// record. What is being written stays, and records, and what is no folder of a job's or leads elsewhere.
func TestSweep(t *testing.T) {
	const leftover = safefile.TempPrefix + "0123456789abcdef"
	s, elsewhere, varDir := open(t, folder(t)), folder(t), filepath.Join(folder(t), "lib")
	begin(t, s, job(42), 1)
	must.Do(t, os.WriteFile(filepath.Join(elsewhere, leftover), nil, 0o600))
	must.Do(t, os.Symlink(elsewhere, filepath.Join(s.dir, "57")))
	var all []string
	for _, folder := range []string{"state/" + node, "state/" + node + "/41", "state/" + node + "/42", "report"} {
		all = append(all, filepath.Join(s.run, folder, leftover))
	}
	all = append(all, filepath.Join(s.dir, visitFile("append", 7).name))
	for _, tt := range []struct {
		age   time.Duration
		stays bool
	}{{time.Second, true}, {2 * time.Hour, false}} {
		for _, path := range all {
			must.Do(t, os.MkdirAll(filepath.Dir(path), 0o700))
			must.Do(t, os.WriteFile(path, []byte("{"), 0o600))
			must.Do(t, os.Chtimes(path, now.Add(-tt.age), now.Add(-tt.age)))
		}
		_ = Archive(s.run, varDir, node, now, DefaultLimits()) // which complains of the link
		for _, path := range append(all, filepath.Join(s.dir, "41")) {
			if _, err := os.Lstat(path); (err == nil) != tt.stays {
				t.Errorf("%s, %v old: %v", path, tt.age, err)
			}
		}
	}
	if files := byAge(elsewhere); len(files) != 1 {
		t.Errorf("elsewhere there is %v", files)
	}
	must.Do(t, os.Remove(filepath.Join(s.dir, "57")))
	if runs, damage := s.Runs(); len(runs) != 1 || len(damage) > 0 {
		t.Errorf("%d records, %v", len(runs), damage)
	}
	must.Do(t, os.Mkdir(filepath.Join(s.dir, "41"), 0o700))
	release := must.Have(safefile.Lock(filepath.Join(s.dir, lockOf(41)), 0, true))(t)
	must.Do(t, s.sweep(now))
	must.Be(t, "the directory of a job that begins", unix.Access(filepath.Join(s.dir, "41"), unix.F_OK), nil)
	release()
}
