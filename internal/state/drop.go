package state

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"bookend/internal/ledger"
	"bookend/internal/safefile"
	"bookend/internal/slurm"
)

// DropFile is the one name that root reads in a job's drop folder.
const DropFile = "job.json"

// maxDrop is its size at most, bytes.
const maxDrop = 4 << 10

// aside and a number follow the name of a drop folder that is nobody's any more: its job is over, or it was there when
// another job of that id began, because Slurm counts jobs anew. Who removes it may take his time: its name is free.
const aside = ".aside-"

func (s *Store) dropFolder() string { return filepath.Join(s.run, "drop") }

// MakeDrop makes the folder in which the job's task hook leaves DropFile. The run's record is there before it: a folder
// without one is taken for a leftover.
func (s *Store) MakeDrop(job slurm.Job) error {
	if err := s.check(job); err != nil {
		return fmt.Errorf("make drop folder: %w", err)
	}
	for _, name := range userNames(s.node, slurm.Owner{ID: job.ID, SLUID: job.SLUID}) {
		err := safefile.MakeDir(s.dropFolder(), name, 0o700, job.UID, job.GID)
		if errors.Is(err, safefile.ErrNotOurs) {
			if moved, _ := s.putAside(name); moved {
				err = safefile.MakeDir(s.dropFolder(), name, 0o700, job.UID, job.GID)
			}
		}
		if err != nil {
			return fmt.Errorf("make drop folder of job %d: %w", job.ID, err)
		}
	}
	return nil
}

// ReadDrop returns what the job's task hook left: the user's claim, at most 4 KiB. Any error means no record.
func (s *Store) ReadDrop(job slurm.Job) ([]byte, error) {
	err := s.check(job)
	if err != nil {
		return nil, fmt.Errorf("read drop: %w", err)
	}
	for _, name := range userNames(s.node, slurm.Owner{ID: job.ID, SLUID: job.SLUID}) {
		var data []byte
		data, err = safefile.ReadForeign(filepath.Join(s.dropFolder(), name), DropFile, job.UID, maxDrop)
		if err == nil {
			return data, nil
		}
	}
	return nil, fmt.Errorf("read drop of job %d: %w", job.ID, err)
}

// DropDir is the drop folder of the job that a task hook finds itself in; empty when that names no job.
func DropDir(run, node string, owner slurm.Owner) string {
	name, err := userName(node, owner)
	if err != nil {
		return ""
	}
	return filepath.Join(run, "drop", name)
}

// RetireDrop puts the drop folders of a job that is over aside: from now on they are what RemoveDrops removes.
func RetireDrop(run, node string, job slurm.Owner) error {
	if !slurm.ValidNode(node) {
		return fmt.Errorf("retire drop: node %q: %w", node, ErrName)
	}
	s := &Store{run: run, node: node}
	var all []error
	for _, name := range userNames(node, job) {
		_, err := s.putAside(name)
		all = append(all, err)
	}
	if err := errors.Join(all...); err != nil {
		return fmt.Errorf("retire drop of job %d: %w", job.ID, err)
	}
	return nil
}

// RemoveDrops removes the node's drop folders that were put aside, with everything that users put there. It asks more
// before each entry; where that says no, the next call goes on. It belongs in a child: what users put there decides how
// long it takes.
func RemoveDrops(run, node string, more func() bool) error {
	s := &Store{run: run, node: node}
	names, err := s.drops()
	all := []error{err}
	// Of several that cannot be emptied at once none is to keep the others from their turn.
	rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	for _, name := range names {
		if _, old := s.dropOf(name); !old {
			continue
		}
		if err := safefile.RemoveTree(s.dropFolder(), name, more); !errors.Is(err, safefile.ErrUnfinished) {
			all = append(all, err)
		}
	}
	if err := errors.Join(all...); err != nil {
		return fmt.Errorf("remove drops: %w", err)
	}
	return nil
}

// drops are the names in the folder of drops.
func (s *Store) drops() ([]string, error) {
	// Threat: none from users, who cannot write here.
	entries, err := os.ReadDir(s.dropFolder())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names, nil
}

// dropOf reads the name of a drop folder of this node; nobody for any other name. Old: it was put aside.
func (s *Store) dropOf(name string) (job slurm.Owner, old bool) {
	text, ours := strings.CutPrefix(name, s.node+"_")
	if !ours {
		return job, false
	}
	text, number, old := strings.Cut(text, aside)
	if _, err := strconv.ParseUint(number, 10, 32); old && err != nil {
		return job, false
	}
	if slurm.ValidSLUID(text) {
		return slurm.Owner{SLUID: slurm.SLUID(text)}, old
	}
	id, ok := slurm.ParseJobID(text)
	return slurm.Owner{ID: id}, old && ok
}

// putAside gives a drop folder a name of nobody's; moved is false where there was none, too.
func (s *Store) putAside(name string) (moved bool, err error) {
	path := filepath.Join(s.dropFolder(), name)
	for n := 0; ; n++ {
		// Threat: a user's file system may be mounted there; rename opens nothing, and refuses a mount point.
		err := os.Rename(path, path+aside+strconv.Itoa(n))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return false, nil
		case !errors.Is(err, fs.ErrExist):
			return err == nil, err
		}
	}
}

// clearDrops puts aside, of the drops that were there before the records were read, those whose job has no run any
// more: its end was killed, or never came.
func (s *Store) clearDrops(names []string, runs []ledger.Run, now time.Time) error {
	var all []error
	for _, name := range names {
		job, old := s.dropOf(name)
		if !job.Found() || old || s.served(job, runs, now) {
			continue
		}
		all = append(all, s.unlessLocked(lockOf(jobID(job, runs)), func() error {
			// A run of that id may have begun meanwhile: its record comes first, under this lock, and the folder then.
			again, _, damage := s.ofJob(outline, jobID(job, runs))
			if len(damage) > 0 || s.served(job, append(again, runs...), now) {
				return nil
			}
			_, err := s.putAside(name)
			return err
		}))
	}
	return errors.Join(all...)
}

// served reports that a run of a job is not over, or so lately that its epilog may still read the drop.
func (s *Store) served(job slurm.Owner, runs []ledger.Run, now time.Time) bool {
	for _, r := range runs {
		if r.Job.ID != job.ID && (job.SLUID == "" || r.Job.SLUID != job.SLUID) {
			continue
		}
		if r.Superseded(runs) != nil {
			continue
		}
		if !r.Closed() || now.Sub(wall(r)) < abandonedAfter {
			return true
		}
	}
	return false
}

// jobID is the job id of a job that may be known by its SLUID; 0 where no record knows it.
func jobID(job slurm.Owner, runs []ledger.Run) slurm.JobID {
	for _, r := range runs {
		if job.ID == 0 && r.Job.SLUID == job.SLUID {
			return r.Job.ID
		}
	}
	return job.ID
}
