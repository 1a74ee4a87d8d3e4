package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// measure runs tests with instrumented programs and returns the profile of all their processes; failed says that a
// test did.
func measure(packages, tests []string) (profile []byte, failed, err error) {
	dir, err := os.MkdirTemp("", "bookend-coverage-")
	if err != nil {
		return nil, nil, err
	}
	defer os.RemoveAll(dir)
	data, overlay := filepath.Join(dir, "data"), filepath.Join(dir, "overlay.json")
	if err := errors.Join(open(dir, data), writeOverlay(dir, overlay, data)); err != nil {
		return nil, nil, err
	}
	// Tests that build a hook with a defect planted do so by an overlay of their own, which would take the place of ours.
	args := []string{"test", "-count=1", "-timeout=30m", "-skip=^TestPanicIn(Main|Goroutine)$"}
	for _, t := range tests {
		args = append(args, "./"+t)
	}
	run := exec.Command("go", append(args, "-args", "-test.gocoverdir="+data)...)
	// The variable, not arguments: it reaches the builds that tests do themselves.
	run.Env = append(os.Environ(), "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" "+flags(packages, overlay)))
	run.Stdout, run.Stderr = os.Stderr, os.Stderr
	if failed = run.Run(); failed != nil {
		failed = fmt.Errorf("tests failed: %w", failed)
	}
	profile, err = merge(dir, data)
	return profile, failed, err
}

// open makes the folder of the data. Every user writes there, over what root has written: a child that has become the
// job's user reports from there. It has a name that nobody knows, and goes when the run ends.
func open(dir, data string) error {
	if err := os.Chmod(dir, 0o711); err != nil {
		return err
	}
	if err := os.Mkdir(data, 0o777); err != nil {
		return err
	}
	return os.Chmod(data, 0o777)
}

// programs are instrumented too, though not measured: one whose main package is not writes nothing at all.
var programs = []string{"prolog", "epilog", "healthcheck", "admin"}

func flags(packages []string, overlay string) string {
	var paths []string
	for _, p := range slices.Concat(packages, programs) {
		paths = append(paths, module+p)
	}
	return "-cover -covermode=set -coverpkg=" + strings.Join(paths, ",") + " -overlay=" + overlay
}

// What the overlay changes in Go's own package for such data. A hook starts its children with an empty environment, as
// it must, so GOCOVERDIR cannot tell them where to write: the folder is built in. The measured code stays as it is.
const (
	writer  = "internal/coverage/cfile/emit.go"
	fromEnv = `goCoverDir = os.Getenv("GOCOVERDIR")`
)

func writeOverlay(dir, overlay, data string) error {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return fmt.Errorf("go env: %w", err)
	}
	path := filepath.Join(strings.TrimSpace(string(root)), "src", writer)
	source, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	changed, err := builtIn(string(source), data)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	ours := filepath.Join(dir, "emit.go")
	list, err := json.Marshal(map[string]map[string]string{"Replace": {path: ours}})
	return errors.Join(err, os.WriteFile(ours, []byte(changed), 0o644), os.WriteFile(overlay, list, 0o644))
}

// builtIn makes the folder known to the source of Go's writer.
func builtIn(source, data string) (string, error) {
	if strings.Count(source, fromEnv) != 1 {
		return "", fmt.Errorf("this version of Go has no line %q: test/coverage must learn its new one", fromEnv)
	}
	return strings.Replace(source, fromEnv, fmt.Sprintf("goCoverDir = %q; _ = os.Getenv", data), 1), nil
}

// merge makes one profile of what all processes have left. A process that was killed in the middle of its writing leaves
// a file that is not whole under a name of its own.
func merge(dir, data string) ([]byte, error) {
	half, err := filepath.Glob(filepath.Join(data, "tmp.*"))
	if err != nil {
		return nil, err
	}
	for _, file := range slices.Sorted(slices.Values(half)) {
		if err := os.Remove(file); err != nil {
			return nil, err
		}
	}
	out := filepath.Join(dir, "profile")
	if text, err := exec.Command("go", "tool", "covdata", "textfmt", "-i="+data, "-o="+out).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("merge the data: %w\n%s", err, text)
	}
	return os.ReadFile(out)
}
