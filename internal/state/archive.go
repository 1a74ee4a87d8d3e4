package state

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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

// Archive writes a node's ended runs to varDir, durably, then removes from memory those that are not kept, with
// their reports, puts aside the drop folders of jobs that are over, sweeps away what killed hooks left half written, and
// once an hour forgets the oldest of the history. It waits for the disk and so belongs in a child. When another Archive is
// at work it does nothing. The error joins all that went wrong; the rest is done.
func Archive(run, varDir, node string, now time.Time, keep Limits) error {
	s, err := Open(run, node)
	if err != nil {
		return fmt.Errorf("archive: %w", err)
	}
	_, booted := s.lastPruned()
	release, err := safefile.Lock(filepath.Join(s.dir, lockArchive), 0, true)
	if errors.Is(err, ErrLocked) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("archive: %w", err)
	}
	defer release()
	last, _ := s.lastPruned()
	if booted != nil || now.Sub(last).Abs() >= pruneEvery {
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
	runs, damage := s.outlines()
	all := []error{err}
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
		if _, superseded := r.Superseded(runs); superseded || r.Closed() {
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

// retire writes a run of which o is the outline to the history, if it is not there, and marks or removes its record. No lock
// is held while the disk works.
func (s *Store) retire(history string, o ledger.Run, stays bool) error {
	if o.Archived && stays {
		return nil
	}
	seen, marked, err := s.preserve(history, o)
	if err != nil || seen == nil {
		return err
	}
	return s.letGo(o, seen, marked, stays)
}

// preserve writes a run's record to the history. It returns the record as read and as marked: both nil if the record is
// gone or has changed since o was read.
func (s *Store) preserve(history string, o ledger.Run) (seen, marked []byte, err error) {
	seen, err = s.read(o.Job.ID, o.Key)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	if r, err := outlined(seen); err != nil || len(r.Ends) != len(o.Ends) || r.Archived != o.Archived {
		return nil, nil, nil // another epilog was here: next time
	}
	if o.Archived {
		return seen, seen, nil
	}
	if marked, err = mark(seen); err != nil {
		return nil, nil, err
	}
	name := fmt.Sprintf("%d-%s%s", o.Job.ID, o.Key, suffix)
	return seen, marked, safefile.ReplaceDurable(history, name, marked, 0o600)
}

// letGo marks or removes the record of a run that is in the history, unless it has changed since it was seen.
func (s *Store) letGo(o ledger.Run, seen, marked []byte, stays bool) error {
	err := s.locked(lockOf(o.Job.ID), func() error {
		if !s.unchanged(o, seen) {
			return nil // another epilog was here: next time
		}
		if stays {
			return s.put(o, marked)
		}
		return s.remove(o)
	})
	if errors.Is(err, ErrLocked) { // a hook of this job, or of another with its lock, is at work: next time
		return nil
	}
	return err
}

func (s *Store) unchanged(r ledger.Run, seen []byte) bool {
	now, err := s.read(r.Job.ID, r.Key)
	return err == nil && bytes.Equal(now, seen)
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
