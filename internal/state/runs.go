package state

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"bookend/internal/ledger"
	"bookend/internal/safefile"
	"bookend/internal/slurm"
)

const (
	suffix  = ".json"
	maxRuns = 4096     // records of a node that one hook reads: far more than are kept by Archive
	maxRead = 64 << 20 // bytes of them, which take about a second
)

// Begin records the start of a run. It returns ErrExists, and changes nothing, when the run has a record: the
// first look, from before the job's own processes, is the one that counts.
func (s *Store) Begin(run ledger.Run) (err error) {
	defer of(run.Job, "begin run", &err)
	if err := s.name(&run); err != nil {
		return err
	}
	return s.locked(lockOf(run.Job.ID), func() error {
		_, err := s.load(run.Job.ID, run.Key)
		switch {
		case err == nil:
			return ErrExists
		case unusable(err):
			s.setAside(run.Job.ID, run.Key)
		case !errors.Is(err, fs.ErrNotExist):
			return err
		}
		return s.write(run)
	})
}

// Close adds an epilog's end to a run that Find returned, or to a new one where it found none. Start and earlier
// ends are taken from the record, the rest from run.
func (s *Store) Close(run ledger.Run, end ledger.End) (err error) {
	defer of(run.Job, "close run", &err)
	if run.Key == "" {
		seen := run
		seen.Ends = []ledger.End{end}
		run.Key = keyOf(seen)
	}
	if err := s.name(&run); err != nil {
		return err
	}
	return s.locked(lockOf(run.Job.ID), func() error {
		now, err := s.load(run.Job.ID, run.Key)
		switch {
		case err == nil:
			run.Start, run.Ends = now.Start, now.Ends
		case unusable(err):
			s.setAside(run.Job.ID, run.Key)
		case !errors.Is(err, fs.ErrNotExist) && run.Start == nil:
			return err // a record that cannot be read now, and that nobody has read, is not written over
		}
		if len(run.Ends) >= maxEnds {
			run.Ends = run.Ends[:maxEnds-1]
		}
		run.Ends = append(slices.Clone(run.Ends), end)
		run.Archived = false
		return s.write(run)
	})
}

// Find returns the record of the run that an epilog is for, as ledger.Match picks it. The error is a Damage when
// a record of this job id could not be used; the rest of the answer holds all the same.
func (s *Store) Find(job slurm.Job) (ledger.Run, ledger.Which, error) {
	if err := s.check(job); err != nil {
		return ledger.Run{}, ledger.NoRun, fmt.Errorf("find run: %w", err)
	}
	runs, _, damage := s.ofJob(job.ID)
	var err error
	if len(damage) > 0 {
		err = damage[0]
	}
	run, which := ledger.Match(runs, job)
	return run, which, err
}

// Runs returns every record of the node that can be used, and what cannot. Of more than one hook can read it returns
// those that were written last, and a Damage that is Unread.
func (s *Store) Runs() ([]ledger.Run, []Damage) {
	jobs, err := s.jobs()
	slices.Reverse(jobs)
	return s.runsOf(jobs, err)
}

// jobs are the jobs with records, the one that was written to last at the end.
func (s *Store) jobs() (ids []slurm.JobID, err error) {
	// Threat: none from users, who cannot write here.
	entries, err := os.ReadDir(s.dir)
	for _, entry := range sortedByAge(entries) {
		if id, ok := slurm.ParseJobID(entry.Name()); ok {
			ids = append(ids, id)
		}
	}
	return ids, err
}

// runsOf returns the records of these jobs, as many as can be read; err says that the jobs could not be listed.
func (s *Store) runsOf(jobs []slurm.JobID, err error) (runs []ledger.Run, damage []Damage) {
	if err != nil {
		return nil, []Damage{{Path: s.dir, Why: err.Error(), Unread: true}}
	}
	bytes := 0
	for i, id := range jobs {
		if len(runs) >= maxRuns || bytes >= maxRead {
			why := fmt.Sprintf("records of %d of %d jobs were not read: there are too many", len(jobs)-i, len(jobs))
			return runs, append(damage, Damage{Path: s.dir, Why: why, Unread: true})
		}
		r, size, d := s.ofJob(id)
		runs, damage, bytes = append(runs, r...), append(damage, d...), bytes+size
	}
	return runs, damage
}

// ofJob returns the records of one job id, and how many bytes were read.
func (s *Store) ofJob(id slurm.JobID) (runs []ledger.Run, bytes int, damage []Damage) {
	folder := filepath.Join(s.dir, folderName(id))
	entries, err := os.ReadDir(folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, 0, []Damage{{Path: folder, Why: err.Error()}}
	}
	for _, entry := range entries {
		key, ok := strings.CutSuffix(entry.Name(), suffix)
		if !ok {
			continue
		}
		r, size, err := s.loadSize(id, key)
		bytes += size
		if unusable(err) {
			r, err = s.rescue(id, key)
		}
		if err == nil {
			runs = append(runs, r)
		} else if !errors.Is(err, fs.ErrNotExist) { // removed meanwhile
			damage = append(damage, Damage{Path: filepath.Join(folder, entry.Name()), Why: err.Error()})
		}
	}
	return runs, bytes, damage
}

func (s *Store) load(id slurm.JobID, key string) (ledger.Run, error) {
	r, _, err := s.loadSize(id, key)
	return r, err
}

// loadSize returns a record, and its size.
func (s *Store) loadSize(id slurm.JobID, key string) (r ledger.Run, size int, err error) {
	data, err := safefile.Read(filepath.Join(s.dir, folderName(id)), key+suffix, maxRecord)
	if err == nil {
		r, err = decode(data, s.node, id, key)
	}
	return r, len(data), err
}

// name completes a run's key and refuses one that must not become a path.
func (s *Store) name(run *ledger.Run) error {
	if err := s.check(run.Job); err != nil {
		return err
	}
	if run.Key == "" {
		run.Key = keyOf(*run)
	}
	if !validKey(run.Key) {
		return fmt.Errorf("key %q: %w", run.Key, ErrName)
	}
	return nil
}

// write replaces a run's record; its job's lock is held.
func (s *Store) write(run ledger.Run) error {
	data, err := encode(run)
	if err != nil {
		return err
	}
	folder := filepath.Join(s.dir, folderName(run.Job.ID))
	if err := makeFolder(folder, 0o700, false); err != nil {
		return err
	}
	return safefile.Replace(folder, run.Key+suffix, data, 0o600)
}
