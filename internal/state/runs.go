package state

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"bookend/internal/finding"
	"bookend/internal/ledger"
	"bookend/internal/slurm"
)

// Version is the format version of a record. A record of another version is set aside like a damaged one.
const Version = 1

const (
	suffix    = ".json"
	maxRecord = 1 << 20   // bytes of the largest record that is read
	fitRecord = 256 << 10 // bytes of the largest written: every hook on a GPU that is not clean reads all of them
	maxEnds   = 4         // a second epilog is rare, a fifth is a mistake
	maxRuns   = 512       // records per hook: far more than Archive keeps; the largest take about half a second
)

// record returns the file of one run, whose content must be of this node, job id and key.
func (s *Store) record(id slurm.JobID, key string) file[ledger.Run] {
	return file[ledger.Run]{
		name: filepath.Join(folderName(id), key+suffix), most: maxRecord, lock: lockOf(id), encode: encode,
		wrong: func(r ledger.Run) string { return wrongRun(r, s.node, id, key) },
	}
}

// wrongRun returns why this program cannot have written a record as that of this run; empty if it can.
func wrongRun(r ledger.Run, node string, id slurm.JobID, key string) string {
	switch {
	case r.Version != Version:
		return fmt.Sprintf("version %d, not %d", r.Version, Version)
	case r.Job.SLUID != "" && !slurm.ValidSLUID(string(r.Job.SLUID)) || !validKey(r.Key):
		return fmt.Sprintf("SLUID %q, key %q", r.Job.SLUID, r.Key)
	case r.Job.Node != node || r.Job.ID != id || r.Key != key:
		return fmt.Sprintf("of job %d, run %q on node %q", r.Job.ID, r.Key, r.Job.Node)
	}
	return ""
}

// keyOf returns a run's key: its SLUID (slurm.TellsRun), start time (slurm.TellsStart), or when it was first seen.
func keyOf(r ledger.Run) string {
	if r.Job.SLUID != "" {
		return string(r.Job.SLUID)
	}
	if !r.Job.Start.IsZero() {
		return "t" + strconv.FormatInt(max(0, r.Job.Start.Unix()), 10)
	}
	return "w" + strconv.FormatInt(max(0, r.First().Wall.UnixNano()), 10)
}

func validKey(s string) bool {
	if slurm.ValidSLUID(s) {
		return true
	}
	if len(s) < 2 || len(s) > 20 || s[0] != 't' && s[0] != 'w' {
		return false
	}
	return strings.Trim(s[1:], "0123456789") == ""
}

// encode returns a record, the same bytes for equal runs. If it is too large, evidence is cut, never the verdict.
func encode(r ledger.Run) ([]byte, error) {
	r.Version = Version
	r.Start, r.Ends = ordered(r.Start), slices.Clone(r.Ends)
	for i := range r.Ends {
		r.Ends[i] = *ordered(&r.Ends[i])
	}
	return fitted(fitRecord, func(level int) any { return r.Bounded(level) })
}

func ordered(e *ledger.End) *ledger.End {
	if e == nil {
		return nil
	}
	o := *e
	o.Wall = o.Wall.UTC().Round(0)
	o.Processes = slices.Clone(o.Processes)
	slices.SortFunc(o.Processes, func(a, b finding.Process) int { return cmp.Compare(a.PID, b.PID) })
	return &o
}

// Begin records the start of a run, or returns ErrExists: only the first sample is from before the job's processes.
func (s *Store) Begin(run ledger.Run) (err error) {
	defer of(run.Job, "begin run", &err)
	if err := s.name(&run); err != nil {
		return err
	}
	err = s.record(run.Job.ID, run.Key).change(s, func(now *ledger.Run) (*ledger.Run, error) {
		if now != nil {
			return nil, ErrExists
		}
		return &run, nil
	})
	return errors.Join(err, s.stir())
}

// stir notifies Openings, which watches only the node's directory, that a run has begun or ended.
func (s *Store) stir() error { return unix.Utimes(s.dir, nil) }

// Close adds an epilog's end to a run that Find returned, or to a new one. Start and earlier ends are the record's.
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
	err = s.record(run.Job.ID, run.Key).change(s, func(now *ledger.Run) (*ledger.Run, error) {
		if now != nil {
			run.Start, run.Ends = now.Start, now.Ends
		}
		run.Ends = append(slices.Clone(run.Ends[:min(len(run.Ends), maxEnds-1)]), end)
		run.Archived = false
		return &run, nil
	})
	return errors.Join(err, s.stir())
}

// Find returns the run that an epilog is for, by ledger.Match. If the error is a Damage, the rest is valid.
func (s *Store) Find(job slurm.Job) (ledger.Run, ledger.Which, error) {
	if err := s.check(job); err != nil {
		return ledger.Run{}, ledger.NoRun, fmt.Errorf("find run: %w", err)
	}
	runs, damage := s.ofJob(job.ID)
	var err error
	if len(damage) > 0 {
		err = damage[0]
	}
	run, which := ledger.Match(runs, job)
	return run, which, err
}

// Runs returns every usable record of the node, and the damage: if there are too many, the newest, and an Unread one.
func (s *Store) Runs() ([]ledger.Run, []Damage) {
	jobs, err := s.jobs()
	slices.Reverse(jobs)
	return s.runsOf(jobs, err)
}

// jobs returns the jobs with records, the last written to at the end.
func (s *Store) jobs() (ids []slurm.JobID, err error) {
	// Threat: none from users, who cannot write here.
	entries, err := os.ReadDir(s.dir)
	for _, entry := range sortedByAge(entries) {
		if id, ok := slurm.ParseJobID(entry.Name()); ok && entry.IsDir() { // links are not followed
			ids = append(ids, id)
		}
	}
	return ids, err
}

// runsOf returns the records of these jobs, as many as can be read. err is why the jobs could not be listed.
func (s *Store) runsOf(jobs []slurm.JobID, err error) (runs []ledger.Run, damage []Damage) {
	if err != nil {
		return nil, []Damage{{Path: s.dir, Why: err.Error(), Unread: true}}
	}
	for i, id := range jobs {
		if len(runs)+len(damage) >= maxRuns {
			why := fmt.Sprintf("records of %d of %d jobs were not read: there are too many", len(jobs)-i, len(jobs))
			return runs, append(damage, Damage{Path: s.dir, Why: why, Unread: true})
		}
		r, d := s.ofJob(id)
		runs, damage = append(runs, r...), append(damage, d...)
	}
	return runs, damage
}

func (s *Store) ofJob(id slurm.JobID) (runs []ledger.Run, damage []Damage) {
	folder := filepath.Join(s.dir, folderName(id))
	entries, err := os.ReadDir(folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, []Damage{{Path: folder, Why: err.Error(), Unread: true}}
	}
	for _, entry := range entries {
		key, ok := strings.CutSuffix(entry.Name(), suffix)
		if !ok {
			continue
		}
		switch r, err := s.record(id, key).get(s); {
		case r != nil:
			runs = append(runs, *r)
		case err != nil: // both are nil if it was removed meanwhile
			d := Damage{Path: filepath.Join(folder, entry.Name()), Why: err.Error(), Unread: true}
			_ = errors.As(err, &d)
			damage = append(damage, d)
		}
	}
	return runs, damage
}

// name sets a missing key and refuses a run that must not become part of a path.
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
