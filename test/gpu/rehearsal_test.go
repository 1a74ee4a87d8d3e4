package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"bookend/test/build"
	"bookend/test/gpu/runrecord"
	"bookend/test/pidns"
)

// built makes the lane's own programs, and Bookend's.
func built(t *testing.T) (programs string) {
	t.Helper()
	programs = t.TempDir()
	if err := build.Programs(programs, "", build.Shipped...); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("./build.sh", programs).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return programs
}

// TestRehearsal runs all scenarios and controls with fake GPUs under a real Slurm, so that they work when they meet
// real ones.
func TestRehearsal(t *testing.T) {
	programs, out := built(t), t.TempDir()
	said, err := exec.Command(filepath.Join(programs, "gpu-lane"), "--fake", "4", "--fake-nodes", "3", "--runs", "1",
		"--budget", "1h", // go test has a time limit of its own
		"--programs", programs, "--out", out).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	runs, controls, timed, paired := map[string]int{}, map[string]int{}, 0, 0
	for _, f := range rehearsed(t, out) {
		for _, r := range f.Runs {
			if !r.AsItShould() || r.Judge() != r.Outcome {
				t.Errorf("%s is %s, control %q", r.Scenario, r.Outcome, r.Control)
			}
			if r.Control != "" {
				controls[r.Scenario]++
			} else {
				runs[r.Scenario] += len(r.Checks)
			}
		}
		if f.Timings != nil {
			timed, paired = len(f.Timings.Programs), len(f.Timings.Pairs)
		}
	}
	for _, c := range chains() {
		for _, s := range c.steps {
			if !c.real && !c.rehearsable() {
				t.Logf("%s is left out: it wants a search of all processes, which %s hides", s.name, pidns.Own())
			}
			if runs[s.name] < 4 && c.rehearsable() {
				t.Errorf("%s: %d checks, want at least 4", s.name, runs[s.name])
			}
			if n := controls[s.name]; (n == 1) != (s.control() != "") && c.rehearsable() {
				t.Errorf("%s: %d controls of %q", s.name, n, s.control())
			}
		}
	}
	if timed < 4 || paired != 12 {
		t.Errorf("%d programs were timed, want at least 4; %d pairs, want 12", timed, paired)
	}
	// What a rehearsal wrote must never be published.
	if _, err := runrecord.Load(out); err == nil {
		t.Error("a rehearsal's record was loaded for publication")
	}
}

// What is true in a scenario is told.
func TestTold(t *testing.T) {
	for _, c := range chains() {
		for _, s := range c.steps {
			if title, truth := s.told(); title == "" || truth == "" {
				t.Errorf("truths.md does not tell of %s: %q, %q", s.name, title, truth)
			}
		}
	}
}

func rehearsed(t *testing.T, folder string) (all []runrecord.File) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(folder, "rehearsal-*"+runrecord.Suffix))
	if err != nil || len(paths) != 2 {
		t.Fatalf("records %q, error %v: want two", paths, err)
	}
	for _, path := range paths {
		f, err := runrecord.Read(path)
		if err != nil || !f.Fake {
			t.Fatalf("%s: fake is %v, error %v", path, f.Fake, err)
		}
		all = append(all, f)
	}
	return all
}

// TestUnknownScenario: a typing error must not pass for a run in which all was right.
func TestUnknownScenario(t *testing.T) {
	if _, err := parse([]string{"--only", "orphan-observ"}); err == nil ||
		!strings.Contains(err.Error(), "orphan-observe") {
		t.Errorf("error %v, want one that lists the scenarios", err)
	}
	if _, err := parse([]string{"--story", "orphans"}); err == nil || !strings.Contains(err.Error(), "  orphan ") {
		t.Errorf("error %v, want one that lists the stories", err)
	}
}
