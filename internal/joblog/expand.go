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
	Job   slurm.Job       // ID, User, Node (the batch host, where this runs) and WorkDir are used
	Array slurm.ArrayTask // as the job's task hook claims: root hooks are not told
}

// Expand does for a batch job's SLURM_JOB_STDOUT what slurmstepd does: it replaces %j, %J, %N, %n, %s, %t and
// %u, of an array task also %A and %a, zero-padded where a width is given, and puts the working directory before
// a relative path. Everything else that begins with % (job name, letters of newer versions) is ErrPattern.
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
		text, rest, err := replace(after, facts)
		if err != nil {
			return "", err
		}
		out.WriteString(text)
		pattern = rest
	}
}

// replace expands what follows a percent sign: digits and a letter.
func replace(s string, facts Facts) (text, rest string, err error) {
	letter := strings.IndexFunc(s, func(r rune) bool { return r < '0' || r > '9' })
	if letter < 0 {
		return "", "", ErrPattern
	}
	width, padded := 0, letter > 0
	if padded {
		width, err = strconv.Atoi(s[:letter])
		if err != nil || width > maxWidth {
			width = maxWidth
		}
	}
	rest = s[letter+1:]
	switch s[letter] {
	case 'j', 'J': // a batch script's output has no step number
		return fmt.Sprintf("%0*d", width, facts.Job.ID), rest, nil
	case 'N':
		return known(facts.Job.Node, rest)
	case 'u':
		return known(facts.Job.User, rest)
	case 'A', 'a':
		return member(s[letter], width, facts.Array, rest)
	}
	if padded { // whether these are padded depends on the version
		return "", "", ErrPattern
	}
	switch s[letter] {
	case '%':
		return "%", rest, nil
	case 'n', 't':
		return "0", rest, nil
	case 's':
		return "batch", rest, nil
	}
	return "", "", ErrPattern
}

// member expands %A and %a; what they are without an array depends on the version.
func member(letter byte, width int, array slurm.ArrayTask, rest string) (string, string, error) {
	number := uint32(array.Master)
	if letter == 'a' {
		number = array.Task
	}
	if array.Master == 0 {
		return "", "", ErrPattern
	}
	return fmt.Sprintf("%0*d", width, number), rest, nil
}

func known(text, rest string) (string, string, error) {
	if text == "" {
		return "", "", ErrPattern
	}
	return text, rest, nil
}
