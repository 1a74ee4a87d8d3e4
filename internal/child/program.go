package child

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"bookend/internal/safefile"
)

// Programs runs programs of the node's, one at a time. One that could not be killed is not run again.
type Programs struct {
	Limit time.Duration             // for each
	Stuck func(failed *Error) error // Stuck stores that a program could not be killed; failed has its PID
	stuck []string
}

// Run runs a program to its end and returns what it printed, and whether it ended by itself. Its errors are of type
// *Error, with the last line of that if the program wrote none to stderr.
func (p *Programs) Run(command ...string) (text string, ended bool, err error) {
	path := command[0]
	// Threat: it runs as root: a user who can write it, or a directory above it, would run code as root here.
	err = safefile.Trusted(path)
	if slices.Contains(p.stuck, path) {
		err = ErrStuck
	}
	if err != nil {
		return "", false, &Error{Op: path, Result: Result{Outcome: NotStarted}, Err: err}
	}
	res := Run(Spec{Path: path, Args: command[1:], MaxOutput: 1 << 20, Timeout: p.Limit,
		Env: []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}})
	text, ended = string(res.Stdout), res.Outcome == Exited
	if ended && res.ExitCode == 0 && res.Err == nil {
		return text, ended, nil
	}
	last := func(text []byte) string { return string(text[bytes.LastIndexByte(text, '\n')+1:]) }
	res.Stderr = []byte(cmp.Or(last(bytes.TrimSpace(res.Stderr)), last(bytes.TrimSpace(res.Stdout))))
	failed := &Error{Op: filepath.Base(path), Result: res, Err: res.Err}
	if res.Outcome != Abandoned {
		return text, ended, failed
	}
	p.stuck = append(p.stuck, path)
	return text, ended, errors.Join(failed, p.Stuck(failed))
}

// Journal is a file on disk with what a program of root's has done and has yet to do, for its next run.
type Journal[T any] struct{ Dir, Name string }

// Read returns the content, the zero value if there is no file.
func (j Journal[T]) Read() (content T, err error) {
	data, err := safefile.Read(j.Dir, j.Name, 1<<20)
	if errors.Is(err, fs.ErrNotExist) {
		return content, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &content)
	}
	if err != nil {
		err = fmt.Errorf("read %q: %w", filepath.Join(j.Dir, j.Name), err)
	}
	return content, err
}

// Write replaces the content, and makes the directory. It waits for the disk.
func (j Journal[T]) Write(content T) error {
	data, err := json.Marshal(content)
	return errors.Join(err, safefile.MakeDir(filepath.Dir(j.Dir), filepath.Base(j.Dir), 0o755),
		safefile.ReplaceDurable(j.Dir, j.Name, data, 0o600))
}
