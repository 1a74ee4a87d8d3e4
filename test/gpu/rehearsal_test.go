package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"bookend/test/gpu/record"
)

// build makes the lane's own programs beside those of "make build".
func build(t *testing.T) (programs string) {
	t.Helper()
	programs = t.TempDir()
	if out, err := exec.Command("./build.sh", programs).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, name := range []string{"bookend-prolog", "bookend-epilog", "bookend", "bookend-gpu"} {
		path, err := filepath.Abs(filepath.Join("../../bin", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(programs, name)); err != nil {
			t.Fatal(err)
		}
	}
	return programs
}

// TestRehearsal runs the lane with fake GPUs under a real Slurm, so that it works when it meets a real one.
func TestRehearsal(t *testing.T) {
	programs, out := build(t), t.TempDir()
	names := "cuda-clean,no-gpu,orphan-observe,inherited,freed,timings"
	said, err := exec.Command(filepath.Join(programs, "gpu-lane"), "--fake", "2", "--runs", "1", "--only", names,
		"--programs", programs, "--out", out).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	count := map[string]int{}
	for _, f := range rehearsed(t, out) {
		for _, r := range f.Runs {
			if r.Outcome != record.Right || r.Judge() != record.Right {
				t.Errorf("%s is %s", r.Scenario, r.Outcome)
			}
			count[r.Scenario] += len(r.Checks)
		}
		if f.Timings != nil {
			count[timingsName] = len(f.Timings.Programs)
		}
	}
	for _, name := range strings.Split(names, ",") {
		if count[name] < 4 {
			t.Errorf("%s: %d checks or programs, want at least 4", name, count[name])
		}
	}
	// What a rehearsal wrote must never be published.
	if _, err := record.Load(out); err == nil {
		t.Error("a rehearsal's record was loaded for publication")
	}
}

func rehearsed(t *testing.T, folder string) (all []record.File) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(folder, "rehearsal-*.json"))
	if err != nil || len(paths) != 2 {
		t.Fatalf("records %q, error %v: want two", paths, err)
	}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var f record.File
		if err := json.Unmarshal(data, &f); err != nil || !f.Fake {
			t.Fatalf("%s: fake is %v, error %v", path, f.Fake, err)
		}
		all = append(all, f)
	}
	return all
}

// TestUnknownScenario: a typing error must not pass for a run in which all was right.
func TestUnknownScenario(t *testing.T) {
	if _, err := parse([]string{"--only", "orphan-observ"}); err == nil || !strings.Contains(err.Error(), "orphan-observe") {
		t.Errorf("error %v, want one that lists the scenarios", err)
	}
}
