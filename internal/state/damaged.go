package state

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"bookend/internal/ledger"
	"bookend/internal/safefile"
	"bookend/internal/slurm"
)

const (
	maxDamaged  = 16 // files set aside
	damagedName = "damaged"
)

// Damage is a file that cannot be used; as a record it has been set aside where that was possible.
type Damage struct {
	Path string
	Why  string
	// Unread: it stands for records that were not read at all. Whoever goes by the others may miss a job that has a
	// GPU.
	Unread bool
}

// Error makes a Damage an error.
func (d Damage) Error() string { return fmt.Sprintf("damaged state %q: %s", d.Path, d.Why) }

// unusable reports that a file is there and will never be a record.
func unusable(err error) bool {
	return errors.Is(err, errRecord) || errors.Is(err, safefile.ErrNotOurs) || errors.Is(err, safefile.ErrTooLarge) ||
		errors.Is(err, unix.ELOOP)
}

// rescue sets a record aside that cannot be used. It looks again under the lock: whoever holds that may have
// repaired it.
func (s *Store) rescue(id slurm.JobID, key string) (r ledger.Run, err error) {
	lock := s.locked(lockOf(id), func() error {
		if r, err = s.load(id, key); unusable(err) {
			s.setAside(id, key)
		}
		return nil
	})
	if lock != nil {
		return ledger.Run{}, lock
	}
	return r, err
}

func (s *Store) setAside(id slurm.JobID, key string) {
	s.moveAside(filepath.Join(folderName(id), key+suffix), fmt.Sprintf("%d-%s%s", id, key, suffix))
}

// moveAside moves a file below the node's folder among the damaged ones. Where that fails, it stays where it is
// and is reported again. Threat: none, root alone can write in either folder; rename opens nothing.
func (s *Store) moveAside(path, name string) {
	folder := filepath.Join(s.dir, damagedName)
	if makeFolder(folder, 0o700, false) != nil {
		return
	}
	makeRoom(folder, maxDamaged-1)
	for n := range maxDamaged {
		to := filepath.Join(folder, fmt.Sprintf("%s.damaged-%d", name, n))
		if _, err := os.Lstat(to); errors.Is(err, fs.ErrNotExist) {
			_ = os.Rename(filepath.Join(s.dir, path), to)
			return
		}
	}
}

// makeRoom removes the oldest entries of a folder of root's, down to keep.
func makeRoom(folder string, keep int) {
	files := byAge(folder)
	for len(files) > keep {
		_ = os.RemoveAll(filepath.Join(folder, files[0].Name()))
		files = files[1:]
	}
}

// byAge lists a folder of root's, oldest first.
func byAge(folder string) []fs.FileInfo {
	entries, _ := os.ReadDir(folder)
	return sortedByAge(entries)
}

// sortedByAge leaves out what is gone meanwhile.
func sortedByAge(entries []fs.DirEntry) (files []fs.FileInfo) {
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil {
			files = append(files, info)
		}
	}
	slices.SortStableFunc(files, func(a, b fs.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	return files
}
