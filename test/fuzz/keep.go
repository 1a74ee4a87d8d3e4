package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// What is kept of the inputs that fuzzing has found: go test runs each of them, so they are few and short.
const (
	mostKept  = 8
	longest   = 600 // bytes of a file
	mostTried = 30  // inputs of a target: each is a run of its tests
)

// keep puts into testdata/fuzz those inputs of Go's cache that reach statements of the package which neither the target's
// seeds nor other kept inputs reach, the shortest first.
func (p plan) keep(w io.Writer, chosen []target) error {
	for _, t := range chosen {
		n, err := p.keepOf(t)
		if err != nil {
			return fmt.Errorf("keep inputs of %s: %w", t, err)
		}
		if n > 0 {
			fmt.Fprintf(w, "%s: %d kept\n", t, n)
		}
	}
	return nil
}

func (p plan) keepOf(t target) (kept int, err error) {
	found, err := p.found(t)
	if err != nil || len(found) == 0 {
		return 0, err
	}
	temp, err := os.MkdirTemp("", "bookend-fuzz-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(temp)
	program := filepath.Join(temp, "tests")
	if out, err := p.command("go", "test", "-c", "-cover", "-o", program, t.pkg).CombinedOutput(); err != nil {
		return 0, fmt.Errorf("%w: %s", err, out)
	}
	reached, err := reach(t, program, "")
	if err != nil {
		return 0, err
	}
	folder := filepath.Join(t.folder, "testdata/fuzz", t.name)
	for _, input := range found {
		name := filepath.Base(input)
		if _, err := os.Stat(filepath.Join(folder, name)); err == nil || kept == mostKept {
			continue
		}
		if err := copyInto(folder, input); err != nil {
			return kept, err
		}
		blocks, err := reach(t, program, name) // an error: found when the target took other values
		if err == nil && slices.ContainsFunc(blocks, func(b string) bool { return !slices.Contains(reached, b) }) {
			reached = append(reached, blocks...)
			kept++
			continue
		}
		if err := os.Remove(filepath.Join(folder, name)); err != nil {
			return kept, err
		}
	}
	_, _ = os.Remove(folder), os.Remove(filepath.Dir(folder)) // where nothing is in them
	return kept, nil
}

func (p plan) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir = p.dir
	return cmd
}

// found are the inputs of a target in Go's cache, the shortest first.
func (p plan) found(t target) ([]string, error) {
	out, err := p.command("go", "list", "-f", "{{.ImportPath}}", t.pkg).Output()
	if err != nil {
		return nil, err
	}
	cache := p.cache
	if cache == "" {
		text, err := p.command("go", "env", "GOCACHE").Output()
		if err != nil {
			return nil, err
		}
		cache = filepath.Join(strings.TrimSpace(string(text)), "fuzz")
	}
	folder := filepath.Join(cache, strings.TrimSpace(string(out)), t.name)
	entries, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var short []fs.FileInfo
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.Size() <= longest {
			short = append(short, info)
		}
	}
	slices.SortStableFunc(short, func(a, b fs.FileInfo) int { return cmp.Compare(a.Size(), b.Size()) })
	var paths []string
	step := max(1, len(short)/mostTried)
	for i := 0; i < len(short); i += step { // of many, some of each length
		paths = append(paths, filepath.Join(folder, short[i].Name()))
	}
	return paths, nil
}

func copyInto(folder, file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return errors.Join(os.MkdirAll(folder, 0o755), os.WriteFile(filepath.Join(folder, filepath.Base(file)), data, 0o644))
}

// reach lists the blocks of statements that one input reaches, or with an empty name all that go test runs.
func reach(t target, program, input string) (blocks []string, err error) {
	profile := program + ".cover"
	run := "^" + t.name + "$"
	if input != "" {
		run += "/^" + input + "$"
	}
	cmd := exec.Command(program, "-test.run="+run, "-test.coverprofile="+profile)
	cmd.Dir = t.folder
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("run %s: %w: %s", run, err, out)
	}
	data, err := os.ReadFile(profile)
	if err != nil {
		return nil, err
	}
	for line := range bytes.Lines(data) {
		block, count, ok := bytes.Cut(bytes.TrimSpace(line), []byte(" "))
		if ok && !bytes.HasSuffix(count, []byte(" 0")) && !bytes.HasPrefix(line, []byte("mode:")) {
			blocks = append(blocks, string(block))
		}
	}
	return blocks, nil
}
