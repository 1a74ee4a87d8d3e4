package state

import (
	"fmt"
	"path/filepath"
	"time"

	"bookend/internal/safefile"
	"bookend/internal/slurm"
)

// Claim makes the caller the one hook of a job's start, or end, that is at work, until release or the process's end.
// Slurm may run such a hook a second time beside the first, and the card is the next job's once either has ended. It
// gives ErrLocked where another hook came first and did not end within wait.
func (s *Store) Claim(job slurm.Job, phase slurm.Context, wait time.Duration) (release func(), err error) {
	if err := s.check(job); err != nil {
		return nil, fmt.Errorf("claim job: %w", err)
	}
	name := "lock-ends"
	if phase == slurm.Prolog {
		name = "lock-starts"
	}
	return safefile.LockNumber(filepath.Join(s.dir, name), uint32(job.ID), wait)
}
