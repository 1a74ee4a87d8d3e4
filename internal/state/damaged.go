package state

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/safefile"
	"bookend/internal/slurm"
)

const (
	damagedName = "damaged"
	maxDamaged  = 16         // files set aside that keep their content
	unsettled   = ".damaged" // suffix of a file that was set aside
	settled     = ".settled" // suffix of one that no longer matters
)

// clearFile lists, by the name of each file set aside, the GPUs on which a health check has since seen neither memory
// nor a process. It names only files that are still there.
var clearFile = File[map[string][]gpu.ID]{name: "clear.json", most: 512 << 10, isValue: true}

// setAside moves a file of the node's directory to the damaged ones and replaces an earlier one of that name. If it
// fails, the file stays and is reported again. A record's name identifies the job that may still run, so it is kept.
// Threat: none, only root can write to either directory, and rename opens nothing.
func (s *Store) setAside(path string) (done bool) {
	dir := filepath.Join(s.dir, damagedName)
	if makeDirs(made{dir, 0o700, false}) != nil || !makeRoom(dir) {
		return false
	}
	name := strings.ReplaceAll(path, "/", "-") + unsettled
	return os.Rename(filepath.Join(s.dir, path), filepath.Join(dir, name)) == nil
}

// makeRoom removes the oldest of too many files, but only the content of a record whose job may still run.
func makeRoom(dir string) bool {
	files, _ := byAge(dir)
	if len(files) >= maxRuns {
		return false
	}
	files = slices.DeleteFunc(files, func(f fs.FileInfo) bool { return f.Mode().IsRegular() && f.Size() == 0 })
	for ; len(files) >= maxDamaged; files = files[1:] {
		name := files[0].Name()
		if _, is := jobOf(name, unsettled); !is || safefile.Replace(dir, name, nil, 0o600) != nil {
			_ = os.RemoveAll(filepath.Join(dir, name))
		}
	}
	return true
}

// jobOf returns the job of a record that was set aside, if its file name has the suffix end: unsettled or settled.
func jobOf(name, end string) (id slurm.JobID, is bool) {
	record, is := strings.CutSuffix(name, suffix+end)
	number, _, _ := strings.Cut(record, "-")
	id, isJob := slurm.ParseJobID(number)
	return id, is && isJob
}

// Damaged returns the records that were set aside and whose jobs may still run.
func (s *Store) Damaged() ([]record.Damaged, error) {
	var list []record.Damaged
	names, err := s.aside()
	clear := clearFile.Peek(s)
	for _, name := range names {
		if id, is := jobOf(name, unsettled); is {
			list = append(list, record.Damaged{File: name, Job: id, Clear: clear[name]})
		}
	}
	return list, err
}

// LostRecord reports whether a job's record was set aside, settled or not, so that its content is no longer on record.
// The directory is in memory, so this is since boot.
func (s *Store) LostRecord() (bool, error) {
	names, err := s.aside()
	return slices.ContainsFunc(names, func(name string) bool {
		_, open := jobOf(name, unsettled)
		_, over := jobOf(name, settled)
		return open || over
	}), err
}

func (s *Store) aside() (names []string, err error) {
	// Threat: none from users, who cannot write here. Only names are read.
	entries, err := os.ReadDir(filepath.Join(s.dir, damagedName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names, err
}

// SeenClear records that a sample showed neither memory nor a process on the GPUs in clear. It counts for the records
// that were set aside before the sample. A record is settled when all GPUs have been seen clear.
func (s *Store) SeenClear(before []record.Damaged, clear, all []gpu.ID) error {
	if len(before) == 0 || len(clear) == 0 {
		return nil
	}
	next := map[string][]gpu.ID{}
	for _, d := range before {
		ids := slices.Concat(d.Clear, clear)
		slices.Sort(ids)
		ids = slices.Compact(ids)
		if open := slices.ContainsFunc(all, func(id gpu.ID) bool { return !slices.Contains(ids, id) }); !open {
			s.settle(d.File)
			continue
		}
		next[d.File] = ids
	}
	return clearFile.Save(s, next)
}

// Settle settles a job's damaged records: its end is on record, and Slurm runs one job id only once at a time.
func (s *Store) Settle(id slurm.JobID) error {
	list, err := s.Damaged()
	for _, d := range list {
		if d.Job == id {
			s.settle(d.File)
		}
	}
	return err
}

// settle keeps a file only for the admin. If it fails, the next health check tries again.
func (s *Store) settle(name string) {
	dir := filepath.Join(s.dir, damagedName)
	_ = os.Rename(filepath.Join(dir, name), filepath.Join(dir, strings.TrimSuffix(name, unsettled)+settled))
}
