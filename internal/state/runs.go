package state

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"bookend/internal/record"
	"bookend/internal/slurm"
)

// Version is the format version of a record. A record of another version is set aside like a damaged one.
const Version = 1

const (
	suffix    = ".json"
	maxRecord = 1 << 20 // bytes; half of it with evidence: every hook on a GPU that is not clean reads all records
	maxEnds   = 4       // a second epilog is rare, a fifth is a mistake
)

// maxRuns bounds the records that a hook reads: far more than Archive keeps. Tests set a smaller one.
var maxRuns = 512

// record returns the file of one run, whose content must be of this node, job id and key.
func (s *Store) record(id slurm.JobID, key string) File[record.Run] {
	return File[record.Run]{
		name: filepath.Join(dirName(id), key+suffix), most: maxRecord, lock: lockOf(id), bare: record.Run.Bare,
		wrong: func(r record.Run) string { return wrongRun(r, s.node, id, key) },
	}
}

// wrongRun returns why this program cannot have written a record as that of this run; empty if it can.
func wrongRun(r record.Run, node string, id slurm.JobID, key string) string {
	switch {
	case r.Version != Version:
		return fmt.Sprintf("version %d, not %d", r.Version, Version)
	case r.Job.SLUID != "" && !slurm.ValidSLUID(string(r.Job.SLUID)) || !record.ValidKey(r.Key):
		return fmt.Sprintf("SLUID %q, key %q", r.Job.SLUID, r.Key)
	case r.Job.Node != node || r.Job.ID != id || r.Key != key:
		return fmt.Sprintf("of job %d, run %q on node %q", r.Job.ID, r.Key, r.Job.Node)
	}
	return ""
}

// kept returns an end as records have it, the same for equal ends.
func kept(e record.End) record.End {
	e.Wall = e.Wall.UTC().Round(0)
	e.Processes = slices.Clone(e.Processes)
	slices.SortFunc(e.Processes, func(a, b record.Process) int { return cmp.Compare(a.PID, b.PID) })
	return e.Bounded()
}

// Begin records the start of a run, or returns ErrExists: only the first sample is from before the job's processes.
func (s *Store) Begin(run record.Run) error {
	run.Version, run.Key = Version, cmp.Or(run.Key, run.NewKey())
	return s.change("begin run", run, func(now *record.Run) error {
		if now.Key != "" {
			return ErrExists
		}
		if run.Start != nil {
			run.Start = new(kept(*run.Start))
		}
		*now = run
		return nil
	})
}

// Close adds an epilog's end to a run that Find returned, or to a new one. Start and earlier ends are the record's.
func (s *Store) Close(run record.Run, end record.End) error {
	if run.Key == "" {
		run.Key = record.Run{Job: run.Job, Start: cmp.Or(run.Start, &end)}.NewKey()
	}
	return s.change("close run", run, func(now *record.Run) error {
		if now.Key != "" {
			run.Start, run.Ends = now.Start, now.Ends
		}
		if run.Start != nil { // compared by now
			start := *run.Start
			start.SharedMemory, run.Start = nil, &start
		}
		run.Ends = append(slices.Clone(run.Ends[:min(len(run.Ends), maxEnds-1)]), kept(end))
		run.Version, run.Archived = Version, false
		*now = run
		return nil
	})
}

// change edits the record of a run, unless that must not become part of a path.
func (s *Store) change(doing string, run record.Run, edit func(now *record.Run) error) error {
	err := check(s.node, run.Job)
	if err == nil && !record.ValidKey(run.Key) {
		err = fmt.Errorf("key %q: %w", run.Key, ErrName)
	}
	if err == nil {
		err = errors.Join(s.record(run.Job.ID, run.Key).Update(s, edit), unix.Utimes(s.dir, nil)) // for Openings
	}
	return about(run.Job, doing, err)
}

// Find returns the run that an epilog is for, by record.Match. If the error is a Damage, the rest is valid.
func (s *Store) Find(job slurm.Job) (record.Run, error) {
	if err := check(s.node, job); err != nil {
		return record.Run{}, fmt.Errorf("find run: %w", err)
	}
	runs, damage := s.ofJob(job.ID)
	var err error
	if len(damage) > 0 {
		err = damage[0]
	}
	return record.Match(runs, job), err
}

// Runs returns every usable record of the node, and the damage: if there are too many, the newest, and an Unread one.
func (s *Store) Runs() ([]record.Run, []Damage) { return s.readRuns(true) }

func (s *Store) readRuns(newest bool) (runs []record.Run, damage []Damage) {
	jobs, err := s.jobs()
	if err != nil {
		return nil, []Damage{{Path: s.dir, Why: err.Error(), Unread: true}}
	}
	if newest {
		slices.Reverse(jobs)
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

// jobs returns the jobs with records, the last written to at the end.
func (s *Store) jobs() (ids []slurm.JobID, err error) {
	files, err := byAge(s.dir)
	for _, f := range files {
		if id, ok := slurm.ParseJobID(f.Name()); ok && f.IsDir() { // links are not followed
			ids = append(ids, id)
		}
	}
	return ids, err
}

func (s *Store) ofJob(id slurm.JobID) (runs []record.Run, damage []Damage) {
	dir := filepath.Join(s.dir, dirName(id))
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, []Damage{{Path: dir, Why: err.Error(), Unread: true}}
	}
	for _, entry := range entries {
		key, ok := strings.CutSuffix(entry.Name(), suffix)
		if !ok {
			continue
		}
		switch r, err := s.record(id, key).Load(s); {
		case r.Key != "":
			runs = append(runs, r)
		case err != nil: // if it was removed meanwhile, there is neither
			d := Damage{Path: filepath.Join(dir, entry.Name()), Why: err.Error(), Unread: true}
			_ = errors.As(err, &d)
			damage = append(damage, d)
		}
	}
	return runs, damage
}
