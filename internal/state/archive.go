package state

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/record"
	"bookend/internal/safefile"
	"bookend/internal/slurm"
)

// Limits of Archive; tests set smaller ones.
var (
	// keepRecent closed runs stay in memory, for second epilogs and late processes. They are few: every hook reads all.
	keepRecent = 32
	// keepFindings further runs stay because they left something on a GPU, so that the next prolog can attribute it.
	keepFindings = 64
	// keepUnarchived bounds all records in memory while ended runs cannot be archived. It is below maxRuns: hooks can
	// still read all of them, so none that a live job needs is left out.
	keepUnarchived = 384
	keepDays       = 90              // maximum age of a record in the history
	keepBytes      = int64(64 << 20) // maximum size of a node's history
)

// Archive writes a node's ended runs to varDir and syncs them, removes from memory those that need not stay, with their
// reports and drop files, removes half-written files, and prunes the history. It waits for the disk, so it belongs in a
// child, one at a time. The error joins all failures.
func Archive(run, varDir, node string, now time.Time) error {
	history := historyDir(varDir, node)
	s, err := Open(run, node)
	if err == nil {
		err = makeDirs(made{varDir, 0o755, true}, made{filepath.Dir(history), 0o700, false},
			made{history, 0o700, false})
	}
	if err == nil {
		err = errors.Join(moveOut(s, history), sweep(s, now), prune(history, now))
	}
	if err != nil {
		return fmt.Errorf("archive: %w", err)
	}
	return nil
}

func historyDir(varDir, node string) string { return filepath.Join(varDir, "history", node) }

// moveOut moves ended runs to the history. It reads at most maxRuns records, the oldest first; the rest follow later.
func moveOut(s *Store, history string) error {
	runs, damage := s.readRuns(false)
	var all []error
	for _, d := range damage {
		all = append(all, d)
	}
	kept := 0
	for i, r := range ended(runs) {
		stays := i < keepRecent || kept < keepFindings && mayBeNeeded(r)
		if i >= keepRecent && stays {
			kept++
		}
		err := retire(s, history, r, stays)
		all = append(all, err)
		of := func(e error) bool { return errors.Is(err, e) }
		if slices.ContainsFunc([]error{unix.ENOSPC, unix.EDQUOT, unix.EROFS, unix.EIO}, of) { // the next would fail too
			break
		}
	}
	return errors.Join(all...)
}

// Shed removes records from memory while ended runs cannot be archived: the oldest without findings on a GPU first,
// then the oldest. It returns how many of them are in no history. With too many records, hooks could not read all of
// them and would doubt every finding. Shed does not touch the disk.
func Shed(run, node string) (lost int, err error) {
	s, err := Open(run, node)
	if err != nil {
		return 0, fmt.Errorf("shed: %w", err)
	}
	runs, _ := s.readRuns(false)
	excess := max(0, len(runs)-keepUnarchived)
	over := ended(runs)
	over = over[min(len(over), keepRecent):]
	slices.Reverse(over)
	needed := slices.DeleteFunc(slices.Clone(over), func(r record.Run) bool { return !mayBeNeeded(r) })
	over = append(slices.DeleteFunc(over, mayBeNeeded), needed...)
	for _, r := range over[:min(len(over), excess)] {
		gone, wrong := exchange(s, r, nil)
		err = errors.Join(err, wrong)
		if gone && !r.Archived {
			lost++
		}
	}
	return lost, err
}

func ended(runs []record.Run) []record.Run {
	return record.Newest(slices.DeleteFunc(slices.Clone(runs), func(r record.Run) bool { return r.Running(runs) }))
}

// mayBeNeeded reports whether a run may be needed for attribution: it left something on a GPU, or its end is not known.
func mayBeNeeded(r record.Run) bool {
	return !r.Closed() || slices.ContainsFunc(r.Last().Findings, func(f record.Finding) bool { return f.GPU != "" })
}

// retire archives a run and then marks or removes its record, unless it has changed. No lock is held during the write.
func retire(s *Store, history string, seen record.Run, stays bool) error {
	if seen.Archived && stays {
		return nil
	}
	marked := seen
	marked.Archived = true
	if !seen.Archived {
		data, err := json.Marshal(marked)
		if err == nil {
			err = safefile.ReplaceDurable(history, seen.Name()+suffix, append(data, '\n'), 0o600)
		}
		if err != nil {
			return err
		}
	}
	next := &marked
	if !stays {
		next = nil
	}
	_, err := exchange(s, seen, next)
	return err
}

// exchange replaces the record of an ended run or, if next is nil, removes all that is kept of the run. If a hook has
// changed the record or holds its lock, exchange leaves it for the next time.
func exchange(s *Store, seen record.Run, next *record.Run) (done bool, err error) {
	err = s.record(seen.Job.ID, seen.Key).Update(s, func(now *record.Run) error {
		done = reflect.DeepEqual(*now, seen)
		switch {
		case !done:
			return ErrUnchanged
		case next != nil:
			*now = *next
			return nil
		}
		return cmp.Or(forget(s, seen), ErrNone)
	})
	if errors.Is(err, ErrLocked) {
		return false, nil
	}
	return done && err == nil, err
}

// forget removes a run's report and drop file. The record goes last, so that an interrupted removal is resumed.
func forget(s *Store, r record.Run) error {
	gone := slurm.Owner{SLUID: r.Job.SLUID}
	records, _ := filepath.Glob(filepath.Join(s.dir, dirName(r.Job.ID), "*"+suffix))
	if len(records) == 1 {
		gone.ID = r.Job.ID
	}
	return errors.Join(s.Users.remove(reports, r.Job.UID, gone), s.Users.RemoveDrop(r.Job.UID, gone))
}

// prune removes from the history what is too old, the oldest records if it is too large, and files of killed writers.
// As a clock may be wrong by months, old records stay until there are records of keepDays later days.
func prune(history string, now time.Time) error {
	files, _ := byAge(history)
	total := int64(0)
	for _, f := range files {
		total += f.Size()
	}
	limit, lately := now.AddDate(0, 0, -keepDays), newestDays(files)
	var all []error
	for i, f := range files {
		stale := strings.HasPrefix(f.Name(), safefile.TempPrefix)
		old := i < lately && f.ModTime().Before(limit)
		if !stale && !old && total <= keepBytes {
			continue
		}
		all = append(all, removeOwn(history, f.Name()))
		total -= f.Size()
	}
	return errors.Join(all...)
}

// newestDays returns the index of the first file that was written on one of the newest keepDays days that have files.
// The files must be sorted by age, oldest first.
func newestDays(files []fs.FileInfo) int {
	first, days, last := len(files), 0, int64(-1)
	for ; first > 0; first-- {
		if day := files[first-1].ModTime().Unix() / (24 * 60 * 60); day != last {
			last, days = day, days+1
		}
		if days > keepDays {
			break
		}
	}
	return first
}

// abandonedAfter is longer than any hook takes: a file of that age is not being written any more.
const abandonedAfter = time.Hour

// sweep removes files that killed hooks left half-written an hour ago, and directories of jobs without a record.
func sweep(s *Store, now time.Time) error {
	all := []error{s.Users.sweep(reports, now), s.Users.sweep(drops, now), sweepDir(s.dir, now)}
	jobs, _ := s.jobs()
	for _, id := range jobs {
		dir := filepath.Join(s.dir, dirName(id))
		all = append(all, sweepDir(dir, now))
		if files, _ := byAge(dir); len(files) > 0 {
			continue
		}
		err := locked(s.dir, lockOf(id), func() error { return removeOwn(s.dir, dirName(id)) })
		if !errors.Is(err, ErrLocked) && !errors.Is(err, unix.ENOTEMPTY) { // a hook uses it: retried next time
			all = append(all, err)
		}
	}
	return errors.Join(all...)
}

// sweepDir removes half-written files by age, as their writers may still run.
// Threat: a user can mount a hanging file system over a drop file. Its name lacks the prefix, so it is not stat'ed.
func sweepDir(dir string, now time.Time) error {
	entries, _ := os.ReadDir(dir)
	var all []error
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), safefile.TempPrefix) {
			continue
		}
		if info, err := e.Info(); err == nil && now.Sub(info.ModTime()) > abandonedAfter {
			all = append(all, removeOwn(dir, e.Name()))
		}
	}
	return errors.Join(all...)
}

// Copied returns the runs, each once and by node, of a copy of paths.var or paths.run, or of a directory in them. It
// writes nothing, and accepts files of any owner: the content is their owner's claim.
func Copied(dir string) (map[string][]record.Run, []Damage, error) {
	runs := map[string]record.Run{}
	var damage []Damage
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("read records: %w", err)
	}
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() && e.Name() == damagedName {
			return fs.SkipDir
		}
		if errors.Is(err, fs.ErrNotExist) && path != dir { // removed meanwhile
			return nil
		}
		id, key, ok := recordName(path)
		if err != nil || e.IsDir() || !ok {
			return err
		}
		switch r, err := copied(path, id, key); {
		case errors.Is(err, fs.ErrNotExist): // removed meanwhile
		case err != nil:
			damage = append(damage, Damage{Path: path, Why: err.Error()})
		default: // a run may be in memory and in the history: the one with more ends is newer
			one := r.Job.Node + "/" + r.Name()
			if old, met := runs[one]; !met || len(r.Ends) > len(old.Ends) {
				runs[one] = r
			}
		}
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("read records: %w", err)
	}
	byNode := map[string][]record.Run{}
	var all []record.Run
	for _, name := range slices.Sorted(maps.Keys(runs)) {
		all = append(all, runs[name])
	}
	for _, r := range record.Newest(all) {
		byNode[r.Job.Node] = append(byNode[r.Job.Node], r)
	}
	return byNode, damage, nil
}

// recordName parses the name of a run's record: JOB-KEY.json in a history, JOB/KEY.json in memory.
func recordName(path string) (id slurm.JobID, key string, ok bool) {
	base, ok := strings.CutSuffix(filepath.Base(path), suffix)
	number, key, archived := strings.Cut(base, "-")
	if !archived {
		number, key = filepath.Base(filepath.Dir(path)), base
	}
	id, isJob := slurm.ParseJobID(number)
	return id, key, ok && isJob && record.ValidKey(key)
}

func copied(path string, id slurm.JobID, key string) (record.Run, error) {
	data, err := safefile.ReadGiven(path, maxRecord)
	if err != nil {
		return record.Run{}, err
	}
	return decode(data, func(r record.Run) string {
		if !slurm.ValidNode(r.Job.Node) {
			return fmt.Sprintf("of node %q", r.Job.Node)
		}
		return wrongRun(r, r.Job.Node, id, key)
	})
}

// History returns a node's archived runs, the latest first, and the files of its history that cannot be used.
func History(varDir, node string) ([]record.Run, []Damage) {
	if !slurm.ValidNode(node) {
		return nil, []Damage{{Path: varDir, Why: fmt.Sprintf("node %q: %v", node, ErrName)}}
	}
	dir := historyDir(varDir, node)
	runs, damage, err := Copied(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		damage = append(damage, Damage{Path: dir, Why: err.Error()})
	}
	return runs[node], damage
}

// Nodes returns the nodes with state below run or a history below varDir (if set), sorted. An error leaves the rest.
func Nodes(run, varDir string) (nodes []string, err error) {
	dirs := []string{filepath.Join(run, "state")}
	if varDir != "" {
		dirs = append(dirs, filepath.Join(varDir, "history"))
	}
	for _, dir := range dirs {
		// Threat: none from users, who cannot write here; names that are not node names are skipped.
		entries, wrong := os.ReadDir(dir)
		if wrong != nil && !errors.Is(wrong, fs.ErrNotExist) {
			err = errors.Join(err, fmt.Errorf("find the node's records: %w", wrong))
		}
		for _, e := range entries {
			if e.IsDir() && slurm.ValidNode(e.Name()) {
				nodes = append(nodes, e.Name())
			}
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes), err
}
