package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"bookend/internal/safefile"
	"bookend/internal/slurm"
)

// DropFile is the one name that root reads in a job's drop folder.
const DropFile = "job.json"

const (
	maxReport    = 16 << 10
	maxDrop      = 4 << 10
	maxDropFiles = 1 << 16 // that RemoveDrop removes; the drop file system is to have far fewer inodes
	maxDropDepth = 64
)

// StartReport is what a task prolog prints.
type StartReport struct {
	Clean bool   `json:"clean"`
	Text  string `json:"text"`
}

// PutReport leaves a job's start report where its task hooks find it, readable for the job's user alone. It is root's: a
// user who owned it could fill the file system of all records.
func (s *Store) PutReport(job slurm.Job, report StartReport) error {
	err := s.check(job)
	if err != nil {
		return fmt.Errorf("put report: %w", err)
	}
	data, err := json.Marshal(report)
	if err == nil && len(data) > maxReport {
		err = fmt.Errorf("%d bytes: %w", len(data), safefile.ErrTooLarge)
	}
	for _, name := range userNames(s.node, slurm.Owner{ID: job.ID, SLUID: job.SLUID}) {
		if err == nil {
			err = safefile.ReplaceReadable(filepath.Join(s.run, "report"), name, data, job.UID)
		}
	}
	if err != nil {
		return fmt.Errorf("put report of job %d: %w", job.ID, err)
	}
	return nil
}

// RemoveReport removes what an earlier run of the job id left.
func (s *Store) RemoveReport(job slurm.Job) error {
	err := s.check(job)
	for _, name := range userNames(s.node, slurm.Owner{ID: job.ID, SLUID: job.SLUID}) {
		if err == nil {
			err = removeOwn(filepath.Join(s.run, "report"), name)
		}
	}
	if err != nil {
		return fmt.Errorf("remove report of job %d: %w", job.ID, err)
	}
	return nil
}

// GetReport reads a job's start report as that job's user. What task hooks claim to be is tried, not believed:
// the kernel lets a user read their own reports only.
func GetReport(run, node string, owner slurm.Owner) (StartReport, error) {
	var report StartReport
	name, err := userName(node, owner)
	if err != nil {
		return report, fmt.Errorf("get report: %w", err)
	}
	data, err := safefile.Read(filepath.Join(run, "report"), name, maxReport)
	if err != nil {
		return report, fmt.Errorf("get report: %w", err)
	}
	if err := json.Unmarshal(data, &report); err != nil {
		return StartReport{}, fmt.Errorf("get report: %w", err)
	}
	return report, nil
}

// aside follows the name of a drop folder that is an earlier run's, of another user: Slurm began to count jobs anew, and
// that run's end never came.
const aside = ".aside"

// MakeDrop makes the folder in which the job's task hook leaves DropFile.
func (s *Store) MakeDrop(job slurm.Job) error {
	if err := s.check(job); err != nil {
		return fmt.Errorf("make drop folder: %w", err)
	}
	for _, name := range userNames(s.node, slurm.Owner{ID: job.ID, SLUID: job.SLUID}) {
		err := safefile.MakeDir(filepath.Join(s.run, "drop"), name, 0o700, job.UID, job.GID)
		if errors.Is(err, safefile.ErrNotOurs) {
			// Threat: a user's file system may be mounted there; rename opens nothing, and refuses a mount point.
			path := filepath.Join(s.run, "drop", name)
			if os.Rename(path, path+aside) == nil {
				err = safefile.MakeDir(filepath.Join(s.run, "drop"), name, 0o700, job.UID, job.GID)
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
		data, err = safefile.ReadForeign(filepath.Join(s.run, "drop", name), DropFile, job.UID, maxDrop)
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

// RemoveDrop removes a job's drop folders with everything the user put there. It belongs in a child: a user can
// have a FUSE file system mounted there.
func RemoveDrop(run, node string, job slurm.Owner) error {
	if !slurm.ValidNode(node) {
		return fmt.Errorf("remove drop: node %q: %w", node, ErrName)
	}
	root, err := os.OpenRoot(filepath.Join(run, "drop"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove drop: %w", err)
	}
	defer root.Close()
	left := maxDropFiles
	for _, name := range userNames(node, job) {
		err := errors.Join(removeTree(root, name, &left, maxDropDepth), removeTree(root, name+aside, &left, maxDropDepth))
		if err != nil {
			return fmt.Errorf("remove drop of job %d: %w", job.ID, err)
		}
	}
	return nil
}

// removeTree removes what a user put into a folder. Threat: the user swaps a folder for a link meanwhile. A
// link is removed, not followed, and one that is swapped in later cannot lead out of the folder the user owns:
// each level is opened below the one before.
func removeTree(in *os.Root, name string, left *int, depth int) error {
	err := in.Remove(name)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if !errors.Is(err, unix.ENOTEMPTY) {
		return err
	}
	if depth == 0 {
		return fmt.Errorf("more than %d folders deep", maxDropDepth)
	}
	folder, err := in.OpenRoot(name)
	if err != nil {
		return err
	}
	defer folder.Close()
	// Threat: a process that outlived the job fills the folder as fast as it is emptied. Now it is root's.
	if err := errors.Join(folder.Chown(".", 0, 0), folder.Chmod(".", 0o700)); err != nil {
		return err
	}
	list, err := folder.Open(".")
	if err != nil {
		return err
	}
	names, _ := list.Readdirnames(max(*left, 1)) // what is missing here, the last line reports
	list.Close()
	for _, entry := range names {
		if *left--; *left < 0 {
			return fmt.Errorf("more than %d files", maxDropFiles)
		}
		if err := removeTree(folder, entry, left, depth-1); err != nil {
			return err
		}
	}
	return in.Remove(name)
}

// userNames are the names of a job's report and drop folder: task hooks know the SLUID, or the job id, or both.
// What is not of its grammar gives no name.
func userNames(node string, job slurm.Owner) (names []string) {
	for _, owner := range []slurm.Owner{{SLUID: job.SLUID}, {ID: job.ID}} {
		if name, err := userName(node, owner); err == nil {
			names = append(names, name)
		}
	}
	return names
}

// userName is one of them. Threat: "..", "/" and the like in a user's environment; a node name and what follows
// the last "_" cannot be confused with another's.
func userName(node string, owner slurm.Owner) (string, error) {
	if !slurm.ValidNode(node) {
		return "", fmt.Errorf("node %q: %w", node, ErrName)
	}
	switch {
	case owner.SLUID != "" && slurm.ValidSLUID(string(owner.SLUID)):
		return node + "_" + string(owner.SLUID), nil
	case owner.SLUID == "" && owner.ID != 0:
		return node + "_" + folderName(owner.ID), nil
	}
	return "", fmt.Errorf("job %d, SLUID %q: %w", owner.ID, owner.SLUID, ErrName)
}

// removeOwn removes a file of a folder that only root can write; one that is not there is removed already.
func removeOwn(folder, name string) error {
	if err := os.Remove(filepath.Join(folder, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
