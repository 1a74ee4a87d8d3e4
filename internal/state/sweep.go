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

// sweep removes what killed hooks left of their writing an hour ago: files without a name, who came back from users'
// files, and folders of jobs that came to no record.
func (s *Store) sweep(now time.Time) error {
	all := []error{sweepFolder(filepath.Join(s.run, "report"), now)}
	// Threat: none from users, who cannot write here. What is no folder of a job's, a link above all, is not looked
	// into.
	for _, entry := range byAge(s.dir) {
		if id, ok := slurm.ParseJobID(entry.Name()); ok && entry.IsDir() {
			folder := filepath.Join(s.dir, entry.Name())
			all = append(all, sweepFolder(folder, now))
			if len(byAge(folder)) == 0 {
				all = append(all, s.unlessLocked(lockOf(id), func() error { return rmdir(folder) }))
			}
		}
	}
	return errors.Join(append(all, sweepFolder(s.dir, now))...)
}

// rmdir removes a folder unless something is in it.
func rmdir(folder string) error {
	err := unix.Rmdir(folder)
	if err == nil || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTEMPTY) {
		return nil
	}
	return &os.PathError{Op: "remove", Path: folder, Err: err}
}

// sweepFolder goes by age: writers may be at work.
func sweepFolder(folder string, now time.Time) error {
	var all []error
	for _, f := range byAge(folder) {
		mere := strings.HasPrefix(f.Name(), safefile.TempPrefix) || strings.HasPrefix(f.Name(), visitedBy)
		if mere && now.Sub(f.ModTime()) > abandonedAfter {
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
