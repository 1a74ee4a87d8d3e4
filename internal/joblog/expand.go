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
// may not be the same in all versions of Slurm, is ErrPattern.
func Expand(pattern string, facts Facts) (string, error) {
	path, err := expand(pattern, facts)
	if err != nil {
		return "", fmt.Errorf("expand %.100q: %w", pattern, err)
	}
	if !filepath.IsAbs(pattern) {
		// Slurm forgets the directory before a path with a backslash, and takes a number for a task.
		_, number := strconv.Atoi(pattern)
		if pattern == "" || number == nil || strings.ContainsRune(pattern, '\\') || !filepath.IsAbs(facts.Job.WorkDir) {
			return "", fmt.Errorf("expand %.100q: %w", pattern, ErrPattern)
		}
		path = facts.Job.WorkDir + "/" + path
	}
	if err := (Target{Path: path}).check(); err != nil {
		return "", fmt.Errorf("expand %.100q: %w", pattern, err)
	}
	return path, nil
}

func expand(pattern string, facts Facts) (string, error) {
	if strings.Contains(pattern, `\\`) { // kept or removed, by version
		return "", ErrPattern
	}
	if strings.ContainsRune(pattern, '\\') { // any backslash turns replacement off
		return strings.ReplaceAll(pattern, `\`, ""), nil
	}
	var out strings.Builder
	for {
		before, after, found := strings.Cut(pattern, "%")
		out.WriteString(before)
		if !found {
			return out.String(), nil
		}
		text, rest, err := facts.replace(after)
		if err != nil {
			return "", err
		}
		out.WriteString(text)
		pattern = rest
	}
}

// replace expands what follows a percent sign: digits and a letter.
func (f Facts) replace(s string) (text, rest string, err error) {
	at := strings.IndexFunc(s, func(r rune) bool { return r < '0' || r > '9' })
	if at < 0 {
		return "", "", ErrPattern
	}
	width, err := strconv.Atoi(s[:at])
	if err != nil || width > maxWidth {
		width = maxWidth
	}
	if at == 0 {
		width = 0
	}
	letter, rest := s[at], s[at+1:]
	if n, ok := f.number(letter); ok {
		return fmt.Sprintf("%0*d", width, n), rest, nil
	}
	if text := f.text(letter); text != "" {
		return text, rest, nil
	}
	// A letter of no version stays as it is, with its sign. What becomes of a width before it depends on the version.
	if at > 0 || strings.IndexByte("%AabJjNnrSstux", letter) >= 0 && letter != '%' {
		return "", "", ErrPattern
	}
	if letter == '%' {
		return "%", rest, nil
	}
	return "%" + s[:1], rest, nil
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
	case 'b':
		return f.Array.Task % 10, f.Array.Master != 0 && f.Job.Version().Has(slurm.OutputArrayTask)
	case 'r': // of a run that is being requeued an epilog is told the next one's number
		return 0, f.Job.Version().Has(slurm.TellsRun) && f.Job.Restarts == 0
	}
	return 0, false
}

// text is what a letter stands for that no width pads; empty where it is not known.
func (f Facts) text(letter byte) string {
	switch letter {
	case 's':
		return "batch"
	case 'S':
		return string(f.Job.SLUID)
	case 'u':
		return f.Job.User
	case 'x':
		return f.Name
	case 'N':
		if f.Job.Version().Has(slurm.TellsRun) {
			return f.Job.Node
		}
		return f.Host
	}
	return ""
}
