package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"bookend/internal/safefile"
	"bookend/internal/slurm"
)

const maxReport = 16 << 10 // bytes of the file

// StartReport is what a task prolog prints.
type StartReport struct {
	Clean bool   `json:"clean"`
	Text  string `json:"text"`
}

// PutReport leaves a job's start report where its task hooks find it, readable for the job's user alone. It is root's:
// a user who owned it could fill the file system of all records.
func (s *Store) PutReport(job slurm.Job, report StartReport) (err error) {
	defer of(job, "put report", &err)
	if err = s.check(job); err != nil {
		return err
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
	return err
}

// RemoveReport removes what an earlier run of the job id left.
func (s *Store) RemoveReport(job slurm.Job) (err error) {
	defer of(job, "remove report", &err)
	err = s.check(job)
	for _, name := range userNames(s.node, slurm.Owner{ID: job.ID, SLUID: job.SLUID}) {
		if err == nil {
			err = removeOwn(filepath.Join(s.run, "report"), name)
		}
	}
	return err
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
