package state

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
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
// reports, puts aside the drop folders of jobs that are over, sweeps away what killed hooks left half written, and
// once an hour forgets the oldest of the history. It waits for the disk and so belongs in a child. When another
// Archive is at work it does nothing. The error joins all that went wrong; the rest is done.
func Archive(run, varDir, node string, now time.Time, keep Limits) error {
	s, err := Open(run, node)
	if err != nil {
		return fmt.Errorf("archive: %w", err)
	}
	last := s.lastPruned() // before the lock makes its file
	release, err := safefile.Lock(filepath.Join(s.dir, lockArchive), 0, true)
	if errors.Is(err, ErrLocked) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("archive: %w", err)
	}
	defer release()
	if now.Sub(last).Abs() >= pruneEvery {
		last = unfinished
	}
	if err := s.setPruned(unfinished); err != nil {
		return fmt.Errorf("archive: %w", err)
	}
	history, err := makeHistory(varDir, node)
	if err != nil {
		return fmt.Errorf("archive: %w", err)
	}
	if err := s.moveOut(history, now, last, keep); err != nil {
		return fmt.Errorf("archive: %w", err)
	}
	return nil
}

// moveOut is what Archive does with the lock held; last is when the history was last gone through.
func (s *Store) moveOut(history string, now, last time.Time, keep Limits) error {
	drops, err := s.drops() // before the records: a job that begins meanwhile has its record before its folder
	all := []error{err}
	// The oldest first: of too many, the next have their turn once those are archived.
	jobs, err := s.jobs()
	runs, damage := s.runsOf(outline, jobs, err)
	for _, d := range damage {
		all = append(all, d)
	}
	if len(damage) == 0 { // else a folder may be of a run that could not be read
		all = append(all, s.clearDrops(drops, runs, now))
	}
	kept := 0
	for i, r := range ended(runs) {
		stays := i < keep.Recent || kept < keep.Findings && onCard(r)
		if i >= keep.Recent && stays {
			kept++
		}
		all = append(all, s.retire(history, r, stays))
	}
	all = append(all, s.sweep(now))
	if last.Equal(unfinished) {
		last = now
		all = append(all, prune(history, now, keep))
	}
	return errors.Join(append(all, s.setPruned(last))...)
}

// ended returns the runs that are over, the latest first.
func ended(runs []ledger.Run) []ledger.Run {
	var over []ledger.Run
	for _, r := range runs {
		if r.Closed() || r.Superseded(runs) != nil {
			over = append(over, r)
		}
	}
	slices.SortStableFunc(over, func(a, b ledger.Run) int { return cmp.Compare(lastSeen(b), lastSeen(a)) })
	return over
}

func lastSeen(r ledger.Run) time.Duration {
	if r.Closed() {
		return r.Ends[len(r.Ends)-1].At
	}
	return r.Began()
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

// retire writes a run, of which o is the outline, to the history, if it is not there, and marks or removes its record.
// No lock is held while the disk works.
func (s *Store) retire(history string, o ledger.Run, stays bool) error {
	if o.Archived && stays {
		return nil
	}
	seen, err := s.load(o.Job.ID, o.Key)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case len(seen.Ends) != len(o.Ends) || seen.Archived != o.Archived:
		return nil // another epilog was here: next time
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
	return s.letGo(seen, marked, stays)
}

// letGo writes the record of a run that is in the history anew, marked so, or removes it; unless it is not as it was
// seen any more.
func (s *Store) letGo(seen, marked ledger.Run, stays bool) error {
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

// remove removes a run's report and record. The record goes last: while it is there, an interrupted removal is taken up
// again. The job's lock is held, so that nobody begins a run of it meanwhile, and files of interrupted writers are
// nobody's.
func (s *Store) remove(r ledger.Run) error {
	folder := filepath.Join(s.dir, folderName(r.Job.ID))
	others, err := removeTemps(folder)
	if err != nil {
		return err
	}
	gone := slurm.Owner{SLUID: r.Job.SLUID}
	if others == 1 {
		gone.ID = r.Job.ID
	}
	for _, name := range userNames(s.node, gone) {
		if err := removeOwn(filepath.Join(s.run, "report"), name); err != nil {
			return err
		}
	}
	if err := removeOwn(folder, r.Key+suffix); err != nil || others > 1 {
		return err
	}
	return removeOwn(s.dir, folderName(r.Job.ID))
}

// removeTemps removes what interrupted writers left in a folder, and counts what else is there.
func removeTemps(folder string) (others int, err error) {
	for _, name := range namesIn(folder) {
		if !strings.HasPrefix(name, safefile.TempPrefix) {
			others++
		} else if err := removeOwn(folder, name); err != nil {
			return others, err
		}
	}
	return others, nil
}

// namesIn lists a folder of root's; what cannot be listed has none.
func namesIn(folder string) (names []string) {
	entries, _ := os.ReadDir(folder)
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}
