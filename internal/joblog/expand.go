package joblog

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"bookend/internal/slurm"
)

// ErrPattern: what the pattern expands to is not known outside the job, or not the same in all Slurm versions.
var ErrPattern = errors.New("cannot be expanded here")

// Facts are what a pattern is expanded with.
type Facts struct {
	Job slurm.Job // ID, SLUID, User, Node (the batch host, where this runs) and WorkDir are used
	// Told: a task hook of the job left a record. What it claims of an array and of the job's name holds, and a job of
	// which it names no array is none. Root hooks are told neither.
	Told  bool
	Array slurm.ArrayTask
	Name  string
}

// Expand does for a batch job's SLURM_JOB_STDOUT what slurmstepd does: it replaces what follows a percent sign, and
// puts the working directory before a relative path. What is not known here, may not be the same in all versions of
// Slurm, such as a backslash, or is rare, such as a width, is ErrPattern.
func Expand(pattern string, facts Facts) (string, error) {
	path, err := facts.expand(pattern)
	// Slurm takes a number for a task
	if _, number := strconv.Atoi(pattern); err == nil && !filepath.IsAbs(pattern) {
		if pattern == "" || number == nil || !filepath.IsAbs(facts.Job.WorkDir) {
			err = ErrPattern
		}
		path = facts.Job.WorkDir + "/" + path
	}
	if err == nil {
		err = Target{Path: path}.check()
	}
	if err != nil {
		return "", fmt.Errorf("expand %.100q: %w", pattern, err)
	}
	return path, nil
}

func (f Facts) expand(pattern string) (string, error) {
	if strings.ContainsRune(pattern, '\\') {
		return "", ErrPattern
	}
	before, rest, found := strings.Cut(pattern, "%")
	for found {
		text := ""
		if rest != "" {
			text = f.replace(rest[0])
		}
		if text == "" {
			return "", ErrPattern
		}
		var more string
		more, rest, found = strings.Cut(rest[1:], "%")
		before += text + more
	}
	return before, nil
}

// replace is what a letter stands for behind a percent sign, empty where that is not known.
func (f Facts) replace(letter byte) string {
	switch {
	case letter == 'j', letter == 'A' && f.Told && f.Array.Master == 0:
		return fmt.Sprint(f.Job.ID)
	case letter == 'A' && f.Array.Master != 0:
		return fmt.Sprint(f.Array.Master)
	case letter == 'a' && f.Array.Master != 0:
		return fmt.Sprint(f.Array.Task)
	case letter == 'u':
		return f.Job.User
	case letter == 'x':
		return f.Name
	case letter == 'N' && f.Job.SLUID != "": // a Slurm of slurm.TellsRun or later
		return f.Job.Node
	case letter == '%':
		return "%"
	}
	return ""
}
