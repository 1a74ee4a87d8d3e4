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

// maxWidth is Slurm's limit for zero padding.
const maxWidth = 10

// Facts are what a pattern is expanded with.
type Facts struct {
	Job slurm.Job // ID, SLUID, User, Node (the batch host, where this runs), Restarts and WorkDir are used
	// Host is the short name of this host: %N of versions that tell no SLUID.
	Host string
	// Told: a task hook of the job left a record. What it claims of an array and of the job's name holds, and a job of
	// which it names no array is none. Root hooks are told neither.
	Told  bool
	Array slurm.ArrayTask
	Name  string
}

// Expand does for a batch job's SLURM_JOB_STDOUT what slurmstepd does: it replaces what follows a percent sign,
// zero-padded where a width is given, and puts the working directory before a relative path. What is not known here, or
// may not be the same in all versions of Slurm, such as a backslash, is ErrPattern.
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
		letters := strings.TrimLeft(rest, "0123456789")
		if letters == "" {
			return "", ErrPattern
		}
		text, known := f.replace(letters[0], rest[:len(rest)-len(letters)])
		if !known {
			return "", ErrPattern
		}
		var more string
		more, rest, found = strings.Cut(letters[1:], "%")
		before += text + more
	}
	return before, nil
}

// replace is what a letter stands for behind a percent sign and a width, which pads numbers.
func (f Facts) replace(letter byte, width string) (text string, known bool) {
	if n, ok := f.number(letter); ok {
		digits, err := strconv.Atoi(width)
		if err != nil && width != "" {
			digits = maxWidth
		}
		return fmt.Sprintf("%0*d", min(digits, maxWidth), n), true
	}
	switch {
	case letter == 'u':
		text = f.Job.User
	case letter == 'x':
		text = f.Name
	case letter == 'N' && f.Job.SLUID != "": // a Slurm of slurm.TellsRun or later
		text = f.Job.Node
	case letter == 'N':
		text = f.Host
	case letter == '%' && width == "":
		text = "%"
	}
	return text, text != ""
}

// number is what a letter stands for that a width pads.
func (f Facts) number(letter byte) (n uint32, known bool) {
	switch letter {
	case 'j', 'J': // a batch script's output has no step number
		return uint32(f.Job.ID), true
	case 'n', 't': // the batch script is task 0 on node 0
		return 0, true
	case 'A':
		if f.Array.Master != 0 {
			return uint32(f.Array.Master), true
		}
		return uint32(f.Job.ID), f.Told
	case 'a':
		return f.Array.Task, f.Array.Master != 0
	}
	return 0, false
}
