package state

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"

	"bookend/internal/safefile"
	"bookend/internal/slurm"
)

const maxDrop = 4 << 10 // bytes of the user's claim

func dropFolder(run string) string { return filepath.Join(run, "drop") }

// MakeDrop makes the file in which the job's task hooks tell root what they saw: the user's, in root's folder. The
// run's
// record is there before it, and is removed after it.
func (s *Store) MakeDrop(job slurm.Job) (err error) {
	defer of(job, "make drop", &err)
	err = s.check(job)
	for _, name := range userNames(s.node, slurm.Owner{ID: job.ID, SLUID: job.SLUID}) {
		if err == nil {
			err = safefile.Give(dropFolder(s.run), name, job.UID, job.GID)
		}
	}
	return err
}

// ReadDrop returns what the job's task hooks left: the user's claim, at most 4 KiB. Any error means no record.
func (s *Store) ReadDrop(job slurm.Job) (data []byte, err error) {
	defer of(job, "read drop", &err)
	if err = s.check(job); err != nil {
		return nil, err
	}
	for _, name := range userNames(s.node, slurm.Owner{ID: job.ID, SLUID: job.SLUID}) {
		data, err = safefile.ReadForeign(dropFolder(s.run), name, job.UID, maxDrop)
		if len(data) > 0 {
			return data, nil
		}
	}
	return nil, errors.Join(err, fs.ErrNotExist)
}

// DropFile is the drop of the job that a task hook finds itself in; empty names where that is no job.
func DropFile(run, node string, owner slurm.Owner) (dir, name string) {
	name, err := userName(node, owner)
	if err != nil {
		return "", ""
	}
	return dropFolder(run), name
}

// RemoveDrop removes the drop of a job that is over.
func RemoveDrop(run, node string, job slurm.Owner) error {
	var all []error
	for _, name := range userNames(node, job) {
		err := removeOwn(dropFolder(run), name)
		// Threat: a user's file system may be mounted there: it is not opened, and stays. So do files of an earlier
		// release, which made directories.
		if !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.ENOTEMPTY) {
			all = append(all, err)
		}
	}
	if err := errors.Join(all...); err != nil {
		return fmt.Errorf("remove drop of job %d: %w", job.ID, err)
	}
	return nil
}
