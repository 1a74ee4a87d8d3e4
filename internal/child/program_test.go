package child

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"bookend/test/must"
)

// A program's own last words say why it failed. No other user's program is run, nor one that could not be killed.
func TestPrograms(t *testing.T) {
	dir := must.RootsDir(t)
	program := filepath.Join(dir, "program")
	must.Do(t, os.WriteFile(program, []byte("#!/bin/sh\necho out; echo \"last $1\"; exec 2>&1; exit $2\n"), 0o755))
	p := Programs{Limit: time.Minute}
	text, ended, err := p.Run(program, "a", "0")
	must.Not(t, text != "out\nlast a\n" || !ended || err != nil, "%q, %v, %v", text, ended, err)
	text, ended, err = p.Run(program, "b", "3")
	must.Not(t, !ended || !strings.Contains(text, "out") || !strings.Contains(err.Error(), `program": exited (exit 3): "last b"`),
		"%q, %v, %v", text, ended, err)
	must.Do(t, os.WriteFile(program, []byte("#!/bin/sh\nexec sleep 600\n"), 0o755))
	short := Programs{Limit: time.Second}
	_, ended, err = short.Run(program, "c", "0")
	must.Not(t, ended || err == nil, "it was killed: %v, %v", ended, err)
	p.stuck = []string{program}
	_, ended, err = p.Run(program, "d", "0")
	must.Not(t, ended || !errors.Is(err, ErrStuck), "a stuck program was run again: %v, %v", ended, err)
	p.stuck = nil
	must.Do(t, os.Chmod(program, 0o777))
	_, ended, err = p.Run(program, "e", "0")
	must.Not(t, ended || err == nil, "another user's program was run: %v, %v", ended, err)
}

func TestJournal(t *testing.T) {
	j := Journal[[]string]{filepath.Join(must.RootsDir(t), "var"), "journal.json"}
	none, err := j.Read()
	must.Not(t, none != nil || err != nil, "%q, %v", none, err)
	must.Do(t, j.Write([]string{"a", "b"}))
	got, err := j.Read()
	must.Not(t, !slices.Equal(got, []string{"a", "b"}) || err != nil, "%q, %v", got, err)
	must.Do(t, os.WriteFile(filepath.Join(j.Dir, j.Name), []byte("[\"a\""), 0o600))
	_, err = j.Read()
	must.Not(t, err == nil, "half a file counts as none")
}
