package state

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"bookend/internal/ledger"
	"bookend/internal/safefile"
	"bookend/internal/slurm"
)

const lockArchive = "lock-archive"

// Limits bound what Archive keeps.
type Limits struct {
	// Recent closed runs stay at hand whatever they left: a second epilog, or a process that comes late to a
	// card, is told by them.
	Recent int
	// Findings are further closed runs that stay, because they left something on a card: the next prolog must
	// know whose it is.
	Findings int
	Age      time.Duration // of a record in the history
	Bytes    int64         // of all records of a node in the history
}

// DefaultLimits are 32 recent and 64 further runs in memory, because every hook reads them all, and 90 days or
// 64 MiB on disk.
func DefaultLimits() Limits {
	return Limits{Recent: 32, Findings: 64, Age: 90 * 24 * time.Hour, Bytes: 64 << 20}
}

// Archive writes a node's ended runs to varDir, durably, then removes from memory those that are not kept, with their
// reports and drops, sweeps away what killed hooks left half written, and forgets the oldest of the history. It waits
// for the disk and so belongs in a child. When another Archive is at work it does nothing. The error joins all that
// went wrong; the rest is done.
func Archive(run, varDir, node string, now time.Time, keep Limits) error {
	s, err := Open(run, node)
	if err == nil {
		err = s.unlessLocked(lockArchive, func() error {
			history, err := makeHistory(varDir, node)
			if err != nil {
				return err
			}
			return errors.Join(s.moveOut(history, keep), s.sweep(now), prune(history, now, keep))
		})
	}
	if err != nil {
		return fmt.Errorf("archive: %w", err)
	}
	return nil
}

// moveOut moves ended runs to the history, the oldest first: of too many, the next have their turn once those are
// archived.
func (s *Store) moveOut(history string, keep Limits) error {
	jobs, err := s.jobs()
	runs, damage := s.runsOf(jobs, err)
	var all []error
	for _, d := range damage {
		all = append(all, d)
	}
	kept := 0
	for i, r := range ended(runs) {
		stays := i < keep.Recent || kept < keep.Findings && onCard(r)
		if i >= keep.Recent && stays {
			kept++
		}
		all = append(all, s.retire(history, r, stays))
	}
	return errors.Join(all...)
}

// ended returns the runs that are over, the latest first.
func ended(runs []ledger.Run) []ledger.Run {
	var over []ledger.Run
	for _, r := range runs {
		if r.Closed() || r.Superseded(runs) != nil {
			over = append(over, r)
		}
	}
	slices.SortStableFunc(over, func(a, b ledger.Run) int { return cmp.Compare(b.Last().At, a.Last().At) })
	return over
}

// onCard reports whether a run left something on a card, or may have.
func onCard(r ledger.Run) bool {
	if !r.Closed() {
		return true
	}
	for _, f := range r.Ends[len(r.Ends)-1].Findings {
		if f.GPU != "" {
			return true
		}
	}
	return false
}

// retire writes a run to the history, if it is not there, and marks or removes its record, unless that is not as it was
// seen any more. No lock is held while the disk works.
func (s *Store) retire(history string, seen ledger.Run, stays bool) error {
	if seen.Archived && stays {
		return nil
	}
	marked := seen
	marked.Archived = true
	if !seen.Archived {
		data, err := encode(marked)
		if err == nil {
			name := fmt.Sprintf("%d-%s%s", seen.Job.ID, seen.Key, suffix)
			err = safefile.ReplaceDurable(history, name, data, 0o600)
		}
		if err != nil {
			return err
		}
	}
	// A hook of this job, or of another with its lock, may be at work: then the next time.
	return s.unlessLocked(lockOf(seen.Job.ID), func() error {
		now, err := s.load(seen.Job.ID, seen.Key)
		switch {
		case err != nil || !reflect.DeepEqual(now, seen):
			return nil // another epilog was here: next time
		case stays:
			return s.write(marked)
		}
		return s.remove(seen)
	})
}

// remove removes a run's report, drop and record. The record goes last: while it is there, an interrupted removal is
// taken up again. The job's lock is held, so that nobody begins a run of it meanwhile.
func (s *Store) remove(r ledger.Run) error {
	folder := filepath.Join(s.dir, folderName(r.Job.ID))
	gone := slurm.Owner{SLUID: r.Job.SLUID}
	records := slices.DeleteFunc(byAge(folder),
		func(f fs.FileInfo) bool { return !strings.HasSuffix(f.Name(), suffix) })
	if len(records) == 1 {
		gone.ID = r.Job.ID
	}
	for _, name := range userNames(s.node, gone) {
		if err := removeOwn(filepath.Join(s.run, "report"), name); err != nil {
			return err
		}
	}
	if err := RemoveDrop(s.run, s.node, gone); err != nil {
		return err
	}
	if err := removeOwn(folder, r.Key+suffix); err != nil {
		return err
	}
	return rmdir(folder)
}
