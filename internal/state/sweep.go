package state

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/safefile"
	"bookend/internal/slurm"
)

// abandonedAfter is longer than any hook takes: what is that old nobody is writing any more.
const abandonedAfter = time.Hour

// sweep removes what killed hooks left of their writing: files without a name, and folders of jobs that came to no
// record. Where a lock tells whether a writer is at work, and one is, it is left for the next time.
func (s *Store) sweep(now time.Time) error {
	all := []error{s.unlessLocked(lockOther, func() error {
		_, err := removeTemps(s.dir)
		return err
	})}
	// Threat: none from users, who cannot write here. What is no folder of a job's, a link above all, is not looked
	// into.
	entries, err := os.ReadDir(s.dir)
	all = append(all, err)
	for _, entry := range entries {
		if id, ok := slurm.ParseJobID(entry.Name()); ok && entry.IsDir() {
			all = append(all, s.sweepJob(id))
		}
		if strings.HasPrefix(entry.Name(), visitedBy) && older(entry, now) {
			all = append(all, removeOwn(s.dir, entry.Name()))
		}
	}
	return errors.Join(append(all, s.sweepReports(now))...)
}

// older reports that an entry was written so long ago that nobody is at it, nor needs it.
func older(entry os.DirEntry, now time.Time) bool {
	info, err := entry.Info()
	return err == nil && now.Sub(info.ModTime()) > abandonedAfter
}

// sweepJob takes the job's lock only where there is something to remove.
func (s *Store) sweepJob(id slurm.JobID) error {
	folder := filepath.Join(s.dir, folderName(id))
	records := 0
	names := namesIn(folder)
	for _, name := range names {
		if !strings.HasPrefix(name, safefile.TempPrefix) {
			records++
		}
	}
	if records > 0 && records == len(names) {
		return nil
	}
	return s.unlessLocked(lockOf(id), func() error {
		others, err := removeTemps(folder)
		if err != nil || others > 0 {
			return err
		}
		if err := unix.Rmdir(folder); err != nil && !errors.Is(err, unix.ENOENT) {
			return &os.PathError{Op: "remove", Path: folder, Err: err}
		}
		return nil
	})
}

// sweepReports goes by age: reports are written without a lock.
func (s *Store) sweepReports(now time.Time) error {
	folder := filepath.Join(s.run, "report")
	var all []error
	for _, f := range byAge(folder) {
		if strings.HasPrefix(f.Name(), safefile.TempPrefix) && now.Sub(f.ModTime()) > abandonedAfter {
			all = append(all, removeOwn(folder, f.Name()))
		}
	}
	return errors.Join(all...)
}

// unlessLocked runs f under a lock, or not at all.
func (s *Store) unlessLocked(name string, f func() error) error {
	release, err := safefile.Lock(filepath.Join(s.dir, name), 0, true)
	if errors.Is(err, ErrLocked) {
		return nil
	}
	if err != nil {
		return err
	}
	defer release()
	return f()
}
