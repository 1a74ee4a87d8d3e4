package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/safefile"
	"bookend/internal/slurm"
)

const maxReport = 16 << 10 // bytes of the file

// Report is what the user of a job may read about it.
type Report struct {
	Clean   bool   `json:"clean"` // the GPUs were clean at its start
	Text    string `json:"text"`  // the report at its start
	Running string `json:"running,omitempty"`
	End     string `json:"end,omitempty"`
}

// PutReport writes a job's reports so that only its user can read them. Root owns them, or users could fill the tmpfs.
func (s *Store) PutReport(job slurm.Job, report Report) error {
	return s.named(job, "put report", func(name string) error {
		data, err := json.Marshal(report)
		if err == nil && len(data) > maxReport {
			err = fmt.Errorf("%d bytes: %w", len(data), safefile.ErrTooLarge)
		}
		if err != nil {
			return err
		}
		return inUserDir(reportDir(s.run), job.UID, func(dir string) error {
			return safefile.ReplaceReadable(dir, name, data, job.UID)
		})
	})
}

// ChangeReport edits a job's reports if there are any. Both the recorder and the job's epilog do so.
func (s *Store) ChangeReport(job slurm.Job, edit func(*Report)) error {
	return s.locked(lockOf(job.ID), func() error {
		report, err := s.Report(job)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		edit(&report)
		return s.PutReport(job, report)
	})
}

// RemoveReport removes the reports of an earlier run of the job id.
func (s *Store) RemoveReport(job slurm.Job) error {
	return s.named(job, "remove report", func(name string) error {
		return removeOwn(userDir(reportDir(s.run), job.UID), name)
	})
}

func (s *Store) named(job slurm.Job, doing string, do func(name string) error) error {
	err := s.check(job)
	for _, name := range userNames(s.node, slurm.Owner{ID: job.ID, SLUID: job.SLUID}) {
		if err == nil {
			err = do(name)
		}
	}
	return about(job, doing, err)
}

// Report returns a job's reports.
func (s *Store) Report(job slurm.Job) (Report, error) {
	return GetReport(s.run, s.node, job.UID, slurm.Owner{ID: job.ID, SLUID: job.SLUID})
}

// GetReport reads a job's reports as its user: the kernel lets users read only their own.
func GetReport(run, node string, uid uint32, owner slurm.Owner) (report Report, err error) {
	var data []byte
	name, err := userName(node, owner)
	if err == nil {
		data, err = safefile.Read(userDir(reportDir(run), uid), name, maxReport)
	}
	if err == nil {
		err = json.Unmarshal(data, &report)
	}
	if err != nil {
		return Report{}, fmt.Errorf("get report: %w", err)
	}
	return report, nil
}

// userNames returns a job's file names: task hooks have its SLUID, job id, or both. Malformed ones are left out.
func userNames(node string, job slurm.Owner) (names []string) {
	for _, owner := range []slurm.Owner{{SLUID: job.SLUID}, {ID: job.ID}} {
		if name, err := userName(node, owner); err == nil {
			names = append(names, name)
		}
	}
	return names
}

// userName returns one of them.
// Threat: "..", "/" and the like in a user's environment. The last "_" separates node and job, so no two names collide.
func userName(node string, owner slurm.Owner) (string, error) {
	if !slurm.ValidNode(node) {
		return "", fmt.Errorf("node %q: %w", node, ErrName)
	}
	switch {
	case slurm.ValidSLUID(string(owner.SLUID)):
		return node + "_" + string(owner.SLUID), nil
	case owner.SLUID == "" && owner.ID != 0:
		return node + "_" + dirName(owner.ID), nil
	}
	return "", fmt.Errorf("job %d, SLUID %q: %w", owner.ID, owner.SLUID, ErrName)
}

// removeOwn removes a file of a directory that only root can write. A missing file is no error.
func removeOwn(folder, name string) error {
	if err := os.Remove(filepath.Join(folder, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

const maxDrop = 4 << 10 // bytes reserved for the user's claim

func dropDir(run string) string { return filepath.Join(run, "drop") }

func reportDir(run string) string { return filepath.Join(run, "report") }

// jobsName is the directory of a user's files in a tree: TREE/UID/jobs.
const jobsName = "jobs"

// userDir returns the directory of a user's files in a tree. As its parent's name can be guessed, other users can see
// when that was created, but nothing below it: neither how many jobs there are, nor when one began or was written
// about.
func userDir(tree string, uid uint32) string {
	return filepath.Join(tree, strconv.FormatUint(uint64(uid), 10), jobsName)
}

// inUserDir calls do with a user's directory, which it creates if it is missing.
func inUserDir(tree string, uid uint32, do func(dir string) error) error {
	dir := userDir(tree, uid)
	err := do(dir)
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	above := filepath.Dir(dir)
	err = safefile.MakeDirFor(tree, filepath.Base(above), uid)
	if err == nil {
		err = safefile.MakeDir(above, jobsName, 0o711)
	}
	if err != nil {
		return err
	}
	return do(dir)
}

// MakeDrop creates the file in which task hooks report to root what they saw between the start and the end of the run.
func (s *Store) MakeDrop(job slurm.Job) error {
	return s.named(job, "make drop", func(name string) (err error) {
		const tries = 3 // filling the file system takes a user longer than the two calls in between
		for try := 0; try == 0 || try < tries && errors.Is(err, unix.ENOSPC); try++ {
			if try > 0 {
				s.reclaim()
			}
			err = inUserDir(dropDir(s.run), job.UID, func(dir string) error {
				return safefile.Share(dir, name, job.UID, maxDrop)
			})
		}
		return err
	})
}

// reclaim frees what users have written beyond the space reserved for them: no valid record is that large.
func (s *Store) reclaim() {
	// Threat: none by the names, which are root's; a file not as Share made it is refused, a mount is not even opened.
	files, _ := filepath.Glob(filepath.Join(dropDir(s.run), "*", jobsName, "*"))
	for _, path := range files {
		_ = safefile.Clear(filepath.Dir(path), filepath.Base(path), int64(max(maxDrop, os.Getpagesize())))
	}
}

// ReadDrop returns what the job's task hooks wrote: the user's claim, at most 4 KiB. Any error means no record.
func (s *Store) ReadDrop(job slurm.Job) (data []byte, err error) {
	var unread error
	err = s.named(job, "read drop", func(name string) error {
		if len(data) == 0 {
			data, unread = safefile.ReadShared(userDir(dropDir(s.run), job.UID), name, maxDrop)
		}
		return nil
	})
	if err == nil && len(data) == 0 {
		err = about(job, "read drop", errors.Join(unread, fs.ErrNotExist))
	}
	return data, err
}

// DropFile returns the drop file of the job that a task hook runs in; empty names if that is no job.
func DropFile(run, node string, uid uint32, owner slurm.Owner) (dir, name string) {
	name, err := userName(node, owner)
	if err != nil {
		return "", ""
	}
	return userDir(dropDir(run), uid), name
}

// RemoveDrop removes the drop file of a user's job that has ended.
func RemoveDrop(run, node string, uid uint32, job slurm.Owner) error {
	return removeNamed(dropDir(run), node, uid, job)
}

// removeNamed removes a job's files of a tree, including those of earlier releases, which are at its top.
func removeNamed(tree, node string, uid uint32, job slurm.Owner) error {
	var all []error
	for _, name := range userNames(node, job) {
		for _, dir := range []string{userDir(tree, uid), tree} {
			err := removeOwn(dir, name)
			// Threat: a user's file system may be mounted there: it is not opened, and stays.
			if !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.ENOTEMPTY) {
				all = append(all, err)
			}
		}
	}
	return errors.Join(all...)
}

// sweepUsers removes files that killed hooks left half-written in the users' directories of a tree, and directories
// without a file for a month, so that a directory does not reveal whether its user has a job now.
func sweepUsers(tree string, now time.Time) error {
	const unused = 30 * 24 * time.Hour
	entries, _ := os.ReadDir(tree)
	var all []error
	for _, entry := range entries {
		if _, err := strconv.ParseUint(entry.Name(), 10, 32); err != nil || !entry.IsDir() {
			continue // left by an earlier release
		}
		jobs := filepath.Join(tree, entry.Name(), jobsName)
		all = append(all, sweepDir(jobs, now))
		if info, err := os.Lstat(jobs); err == nil && now.Sub(info.ModTime()) > unused && os.Remove(jobs) == nil {
			_ = os.Remove(filepath.Dir(jobs)) // a hook that needs them now creates both again
		}
	}
	return errors.Join(all...)
}
