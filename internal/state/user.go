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

	"bookend/internal/record"
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
	// Avoid says whether the start found a reason to use another node, and Why which; empty by an earlier release.
	// Since is what the recorder has seen since then that may be a reason.
	Avoid record.Answer `json:"avoid,omitempty"`
	Why   string        `json:"avoid_why,omitempty"`
	Since string        `json:"avoid_since,omitempty"`
	// GPU is the type of the job's smallest GPU, and Memory its bytes: earlier runs are compared with it, with 0 none.
	GPU    string `json:"gpu,omitempty"`
	Memory uint64 `json:"memory_bytes,omitempty"`
}

// Users has the files for the users of a node's jobs: reports, which they read, and drop files, which they write to.
// It can be used by a user, who gets at no other's files.
type Users struct{ Run, Node string }

// Trees of users' files below the root.
const (
	reports = "report"
	drops   = "drop"
)

// locks is the node's directory.
func (u Users) locks() string { return filepath.Join(u.Run, "state", u.Node) }

// PutReport writes a job's reports so that only its user can read them. Root owns them, or users could fill the tmpfs.
func (u Users) PutReport(job slurm.Job, report Report) error {
	return u.named(job, "put report", func(name string) error {
		data, err := json.Marshal(report)
		if err == nil && len(data) > maxReport {
			err = fmt.Errorf("%d bytes: %w", len(data), safefile.ErrTooLarge)
		}
		if err != nil {
			return err
		}
		return u.inDir(reports, job.UID, func(dir string) error {
			return safefile.ReplaceReadable(dir, name, data, job.UID)
		})
	})
}

// ChangeReport edits a job's reports if there are any. Both the recorder and the job's epilog do so.
func (u Users) ChangeReport(job slurm.Job, edit func(*Report)) error {
	return locked(u.locks(), lockOf(job.ID), func() error {
		report, err := u.Report(job.UID, job.Owner())
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		edit(&report)
		return u.PutReport(job, report)
	})
}

// RemoveReport removes the reports of an earlier run of the job id.
func (u Users) RemoveReport(job slurm.Job) error {
	return about(job, "remove report", u.remove(reports, job.UID, job.Owner()))
}

// Report reads a job's reports. The kernel lets users read only their own.
func (u Users) Report(uid uint32, owner slurm.Owner) (report Report, err error) {
	var data []byte
	name, err := u.name(owner)
	if err == nil {
		data, err = safefile.Read(u.dir(reports, uid), name, maxReport)
	}
	if err == nil {
		err = json.Unmarshal(data, &report)
	}
	if err != nil {
		return Report{}, fmt.Errorf("get report: %w", err)
	}
	return report, nil
}

// named calls do with each of a job's file names, until an error.
func (u Users) named(job slurm.Job, doing string, do func(name string) error) error {
	err := check(u.Node, job)
	for _, name := range u.names(job.Owner()) {
		if err == nil {
			err = do(name)
		}
	}
	return about(job, doing, err)
}

// names returns a job's file names: task hooks have its SLUID, job id, or both. Malformed ones are left out.
func (u Users) names(job slurm.Owner) (names []string) {
	for _, owner := range []slurm.Owner{{SLUID: job.SLUID}, {ID: job.ID}} {
		if name, err := u.name(owner); err == nil {
			names = append(names, name)
		}
	}
	return names
}

// name returns one of them.
// Threat: "..", "/" and the like in a user's environment. The last "_" separates node and job, so no two names collide.
func (u Users) name(owner slurm.Owner) (string, error) {
	if !slurm.ValidNode(u.Node) {
		return "", fmt.Errorf("node %q: %w", u.Node, ErrName)
	}
	switch {
	case slurm.ValidSLUID(string(owner.SLUID)):
		return u.Node + "_" + string(owner.SLUID), nil
	case owner.SLUID == "" && owner.ID != 0:
		return u.Node + "_" + dirName(owner.ID), nil
	}
	return "", fmt.Errorf("job %d, SLUID %q: %w", owner.ID, owner.SLUID, ErrName)
}

// removeOwn removes a file of a directory that only root can write. A missing file is no error.
func removeOwn(dir, name string) error {
	if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

const maxDrop = 4 << 10 // bytes reserved for the user's claim

// jobsName is the directory of a user's files in a tree: TREE/UID/jobs.
const jobsName = "jobs"

// dir returns the directory of a user's files in a tree. As its parent's name can be guessed, other users can see when
// that was created, but nothing below it: neither how many jobs there are, nor when one began or was written about.
func (u Users) dir(tree string, uid uint32) string {
	return filepath.Join(u.Run, tree, strconv.FormatUint(uint64(uid), 10), jobsName)
}

// inDir calls do with a user's directory, which it creates if it is missing.
func (u Users) inDir(tree string, uid uint32, do func(dir string) error) error {
	dir := u.dir(tree, uid)
	err := do(dir)
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	above := filepath.Dir(dir)
	err = safefile.MakeDirFor(filepath.Dir(above), filepath.Base(above), uid)
	if err == nil {
		err = safefile.MakeDir(above, jobsName, 0o711)
	}
	if err == nil {
		err = do(dir)
	}
	return err
}

// MakeDrop creates the file in which task hooks report to root what they saw between the start and the end of the run.
func (u Users) MakeDrop(job slurm.Job) error {
	return u.named(job, "make drop", func(name string) (err error) {
		const tries = 3 // filling the file system takes a user longer than the two calls in between
		for try := 0; try == 0 || try < tries && errors.Is(err, unix.ENOSPC); try++ {
			if try > 0 {
				u.reclaim()
			}
			err = u.inDir(drops, job.UID, func(dir string) error {
				return safefile.Share(dir, name, job.UID, maxDrop)
			})
		}
		return err
	})
}

// reclaim frees what users have written beyond the space reserved for them: no valid record is that large.
func (u Users) reclaim() {
	// Threat: none by the names, which are root's; a file not as Share made it is refused, a mount is not even opened.
	files, _ := filepath.Glob(filepath.Join(u.Run, drops, "*", jobsName, "*"))
	for _, path := range files {
		_ = safefile.Clear(filepath.Dir(path), filepath.Base(path), int64(max(maxDrop, os.Getpagesize())))
	}
}

// ReadDrop returns what the job's task hooks wrote: the user's claim, at most 4 KiB. Any error means no record.
func (u Users) ReadDrop(job slurm.Job) (data []byte, err error) {
	unread := fs.ErrNotExist
	err = u.named(job, "read drop", func(name string) error {
		if len(data) == 0 {
			data, unread = safefile.ReadShared(u.dir(drops, job.UID), name, maxDrop)
		}
		return nil
	})
	if err == nil && len(data) == 0 {
		err = about(job, "read drop", errors.Join(unread, fs.ErrNotExist))
	}
	return data, err
}

// EditDrop changes the drop file of a task hook's job, which the prolog made, and waits for another hook that does.
func (u Users) EditDrop(
	uid uint32, owner slurm.Owner, wait time.Duration, change func(raw []byte) ([]byte, error),
) error {
	name, err := u.name(owner)
	if err != nil {
		return err
	}
	return safefile.Edit(u.dir(drops, uid), name, wait, maxDrop, change)
}

func (u Users) RemoveDrop(uid uint32, job slurm.Owner) error { return u.remove(drops, uid, job) }

func (u Users) remove(tree string, uid uint32, job slurm.Owner) error {
	var all []error
	for _, name := range u.names(job) {
		err := removeOwn(u.dir(tree, uid), name)
		// Threat: a user's file system may be mounted there: it is not opened, and stays.
		if !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.ENOTEMPTY) {
			all = append(all, err)
		}
	}
	return errors.Join(all...)
}

// sweep removes files that killed hooks left half-written in the users' directories of a tree, and directories without
// a file for a month, so that a directory does not reveal whether its user has a job now.
func (u Users) sweep(tree string, now time.Time) error {
	const unused = 30 * 24 * time.Hour
	entries, _ := os.ReadDir(filepath.Join(u.Run, tree))
	var all []error
	for _, entry := range entries {
		uid, err := strconv.ParseUint(entry.Name(), 10, 32)
		if err != nil || !entry.IsDir() {
			continue // left by an earlier release
		}
		jobs := u.dir(tree, uint32(uid))
		all = append(all, sweepDir(jobs, now))
		if info, err := os.Lstat(jobs); err == nil && now.Sub(info.ModTime()) > unused && os.Remove(jobs) == nil {
			_ = os.Remove(filepath.Dir(jobs)) // a hook that needs them now creates both again
		}
	}
	return errors.Join(all...)
}
