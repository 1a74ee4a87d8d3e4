// Package state keeps what the hooks of a node must remember, in a tmpfs directory that only root can write:
//
//	RUN/                        0755
//	  state/NODE/JOBID/KEY.json 0700  one run of a job: runs.go
//	  state/NODE/*.json               one value each, replaced as a whole: file.go. Verdicts and tests (baseline,
//	                                  probes, drain, check, numbering, faults), stuck children (stuck*)
//	  state/NODE/no-mps/              an empty directory: turns.go
//	  state/NODE/recorded/            what the recorder saw of runs that have not ended: values.go
//	  state/NODE/probe-*.lock         held by a memory test of a GPU, which excludes judging its memory: turns.go
//	  state/NODE/slurmd-PID/          what a hook's slurmd -G reads while it runs: internal/slurmcmd
//	  state/NODE/damaged/             records set aside, the newest few: damaged.go
//	  state/NODE/lock-*               locks; like probe-* never removed: a lock on a removed file excludes no process
//	  report/UID/jobs/NODE_JOBID      a job's reports, owned by root, readable by the job's user: user.go
//	  drop/UID/jobs/NODE_JOBID        what the job's task hooks report to root, writable by its user: user.go
//	VAR/history/NODE/           0700  closed runs on disk: archive.go
//
// Reports and drop files also exist under the SLUID if there is one: a task hook may have nothing else. Files are
// replaced as a whole and read without a lock (file.go); writers of one job take its lock for at most 50 ms. A file
// that cannot be used is set aside and reported, and the hook continues.
package state

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"bookend/internal/safefile"
	"bookend/internal/slurm"
)

// Errors that callers distinguish, besides unix.ENOSPC, unix.EROFS and safefile.ErrNotOurs.
var (
	// ErrLocked means that another hook held the lock for longer than this one may wait. The answer is unknown.
	ErrLocked = safefile.ErrLocked
	// ErrName means that a node name, job id, SLUID or key is malformed or not of this node, and was not used.
	ErrName = errors.New("not a name to be used in a path")
	// ErrExists means that this run already has a record.
	ErrExists = errors.New("the run has a record already")
)

const (
	lockWait  = 50 * time.Millisecond // the longest wait for a lock
	jobLocks  = 64                    // lock files shared by all jobs, chosen by job id
	lockOther = "lock-shared"
)

// Store is the state of one node.
type Store struct {
	Turns Turns
	Users Users
	node  string
	dir   string // RUN/state/NODE
}

// Open returns the store of a node below run, and creates missing directories.
func Open(run, node string) (*Store, error) {
	s, err := storeAt(run, node)
	if err == nil {
		err = makeDirs(made{run, 0o755, true}, made{filepath.Join(run, "state"), 0o700, false},
			made{s.dir, 0o700, false},
			made{filepath.Join(run, reports), 0o711, false}, // searchable, not listable: no user sees others' job ids
			made{filepath.Join(run, drops), 0o711, true})
	}
	if err != nil {
		return nil, fmt.Errorf("open state: %w", err)
	}
	return s, nil
}

func storeAt(run, node string) (*Store, error) {
	if !slurm.ValidNode(node) {
		return nil, fmt.Errorf("node %q: %w", node, ErrName)
	}
	users := Users{run, node}
	return &Store{Turns: Turns{users.locks()}, Users: users, node: node, dir: users.locks()}, nil
}

type made struct {
	path  string
	mode  os.FileMode
	mount bool // may be a mount point: used as it is, and checked at each use
}

func makeDirs(all ...made) error {
	for _, f := range all {
		if f.mount {
			// Threat: none yet: everything created in it later checks its owner and mode on the open directory.
			if _, err := os.Lstat(f.path); err == nil {
				continue
			}
		}
		if err := safefile.MakeDir(filepath.Dir(f.path), filepath.Base(f.path), f.mode); err != nil {
			return err
		}
	}
	return nil
}

// Dir is the node's directory, which only root can write.
func (s *Store) Dir() string { return s.dir }

// locked runs f under a lock in a node's directory; an empty name is the lock of the shared files.
func locked(dir, name string, f func() error) error {
	release, err := safefile.Lock(filepath.Join(dir, cmp.Or(name, lockOther)), lockWait, true)
	if err != nil {
		return err
	}
	defer release()
	return f()
}

func lockOf(id slurm.JobID) string { return "lock-" + strconv.Itoa(int(id%jobLocks)) }

func about(job slurm.Job, doing string, err error) error {
	if err != nil {
		err = fmt.Errorf("%s of job %d: %w", doing, job.ID, err)
	}
	return err
}

// check refuses a job that must not become part of a path. Threat: "..", "/" and the like that a user gave Slurm.
func check(node string, job slurm.Job) error {
	switch {
	case job.ID == 0:
		return fmt.Errorf("job id 0: %w", ErrName)
	case job.Node != node:
		return fmt.Errorf("node %q in the state of %q: %w", job.Node, node, ErrName)
	case job.SLUID != "" && !slurm.ValidSLUID(string(job.SLUID)):
		return fmt.Errorf("SLUID %q: %w", job.SLUID, ErrName)
	}
	return nil
}

func dirName(id slurm.JobID) string { return strconv.FormatUint(uint64(id), 10) }
