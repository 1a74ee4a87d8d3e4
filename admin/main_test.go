package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"bookend/internal/clock"
	"bookend/internal/doctor"
	"bookend/internal/ledger"
	"bookend/internal/slurm"
	"bookend/internal/stage"
	"bookend/internal/state"
)

// TestMain serves as the children that commands start: they are this program again.
func TestMain(m *testing.M) {
	if exit, done := stage.ServeChild(stage.Env{Args: os.Args, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}, doctor.Operations()); done {
		os.Exit(exit)
	}
	if filepath.Base(os.Args[0]) == "bookend" { // a copy that stands for the program: standIn
		main()
	}
	os.Exit(m.Run())
}

// typed is what a command line wrote.
type typed struct {
	exit     int
	out, err string
}

// bookend runs the command line as root, or as somebody else, with a configuration.
func bookend(euid int, config string, args ...string) typed {
	return typing(euid, map[string]string{"BOOKEND_CONFIG": config}, args...)
}

// bookendWith is root's command line where Slurm's configuration is at hand.
func bookendWith(slurmConf, config string, args ...string) typed {
	return typing(0, map[string]string{"BOOKEND_CONFIG": config, "SLURM_CONF": slurmConf}, args...)
}

func typing(euid int, environment map[string]string, args ...string) typed {
	var out, err bytes.Buffer
	env := stage.Env{
		Args: append([]string{"bookend"}, args...), Stdout: &out, Stderr: &err, EUID: euid, Clock: clock.System(), Version: "1.2",
		Getenv: func(name string) string { return environment[name] },
	}
	exit := run(env, args)
	return typed{exit, out.String(), err.String()}
}

// home is a folder that only root can write, with a configuration whose backend could be started.
func home(t *testing.T) (dir, config string) {
	t.Helper()
	dir, err := os.MkdirTemp("/run", "admin-test-")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o755))
	config = filepath.Join(dir, "bookend.yaml")
	write(t, filepath.Join(dir, "gpu"), "#!/bin/sh\n", 0o755)
	write(t, config, valid(dir), 0o644)
	return dir, config
}

func valid(dir string) string {
	return strings.ReplaceAll("backend: DIR/gpu\npaths: {run: DIR/run, var: DIR/var, log: DIR/log}\n", "DIR", dir)
}

func write(t *testing.T, file, text string, mode os.FileMode) {
	t.Helper()
	must(t, os.WriteFile(file, []byte(text), mode))
	must(t, os.Chmod(file, mode))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// tree is every command.
func tree(t *testing.T) (all []*cobra.Command) {
	t.Helper()
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		all = append(all, c)
		for _, sub := range c.Commands() {
			if !sub.Hidden {
				walk(sub)
			}
		}
	}
	walk((&app{env: stage.Env{Getenv: func(string) string { return "" }}}).root())
	return all
}

func TestHelpIsSaidOnce(t *testing.T) {
	lines := [][]string{{"help"}, {"-h"}, {"--help"}, {"config", "check", "-h"}, {"show", "28", "--help"}}
	for _, c := range tree(t) {
		path := strings.Fields(c.CommandPath())[1:]
		lines = append(lines, append(slices.Clone(path), "-h"), append(slices.Clone(path), "--help"), append([]string{"help"}, path...))
	}
	for _, args := range lines {
		got := bookend(0, "", args...)
		if got.exit != 0 || got.err != "" || strings.Count(got.out, "usage: bookend") != 1 {
			t.Errorf("%q: %+v", args, got)
		}
	}
	for _, args := range [][]string{
		{}, {"nope"}, {"show"}, {"show", "1", "2"}, {"show", "--nod", "n1", "1"}, {"show", "x"}, {"status", "1"}, {"snapshot", "--node", "n1"},
		{"baseline", "take"}, {"baseline", "accept"}, {"baseline", "reset"}, {"baseline", "reset", "all", "now"}, {"baseline", "--force"},
		{"config"}, {"config", "look"}, {"config", "check", "a", "b"}, {"status", "--color", "red"}, {"help", "nope"}, {"history", "7"},
		{"baseline", "reset", "all", "--force"}, {"completion"}, {"completion", "tcsh"}, {"explain"}, {"show", "1", "--output", "x"},
		{"report"}, {"report", "--json"}, {"report", "--html", "-", "--since", "1h", "--until", "2h"}, {"history", "--since", "2026-11-21", "--until", "2026-11-20"},
		{"history", "--since", "soon"}, {"history", "--code", "nope"}, {"history", "--job", "x"}, {"history", "--limit", "-1"},
	} {
		got := bookend(0, "", args...)
		if got.exit != exitUsage || got.out != "" || strings.Count(got.err, "usage: bookend") != 1 || !strings.Contains(got.err, " --help\n") {
			t.Errorf("%q: %+v", args, got)
		}
	}
	if got := bookend(0, "", "baseline", "-h"); !strings.Contains(got.out, "\n  reset        forget") {
		t.Errorf("%+v", got)
	}
	if got := bookend(0, "", "baseline", "accept", "-h"); !strings.Contains(got.out, "up to 64 MiB") || !strings.Contains(got.out, "\n  --force ") {
		t.Errorf("%+v", got)
	}
	if got := bookend(0, "", "sttaus"); got.exit != exitUsage || !strings.Contains(got.err, `no such command: "sttaus" (status?)`) {
		t.Errorf("%+v", got)
	}
	for _, args := range [][]string{{"version"}, {"--version"}, {"-version"}} {
		if got := bookend(0, "", args...); got != (typed{0, "bookend 1.2\n", ""}) {
			t.Errorf("%q: %+v", args, got)
		}
	}
}

func TestWhichNode(t *testing.T) {
	dir, config := home(t)
	empty := bookend(0, config, "status")
	if empty.exit != exitNotFound || !strings.Contains(empty.err, "has a GPU job run here yet?") {
		t.Errorf("no records: %+v", empty)
	}
	store, err := state.Open(filepath.Join(dir, "run"), "n1")
	must(t, err)
	must(t, store.Begin(ledger.Run{Job: slurm.Job{ID: 28, Node: "n1"}, Start: &ledger.End{At: time.Second}}))
	for _, args := range [][]string{
		{"status"}, {"status", "--node", "n1"}, {"show", "28"}, {"show", "28", "--node", "n1"}, {"show", "--node=n1", "28"},
	} {
		if got := bookend(0, config, args...); got.exit != 0 || !strings.Contains(got.out, "28") || got.err != "" {
			t.Errorf("%q: %+v", args, got)
		}
	}
	for _, args := range [][]string{{"status", "--node", "nope"}, {"show", "28", "--node", "nope"}} {
		if got := bookend(0, config, args...); got.exit != exitNotFound || !strings.Contains(got.err, `no such node: "nope"`) {
			t.Errorf("%q: %+v", args, got)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "run/state/nope")); err == nil {
		t.Error("asking for a node made its folder")
	}
	if got := bookend(0, config, "show", "29"); got.exit != exitNotFound || got.err != "bookend: no record of job 29 on node n1\n" {
		t.Errorf("%+v", got)
	}
	if got := bookend(65534, config, "status"); got.exit != exitDenied || !strings.HasPrefix(got.err, "bookend: needs root: ") {
		t.Errorf("not root: %+v", got)
	}
	must(t, os.MkdirAll(filepath.Join(dir, "var/history/n2"), 0o700))
	if got := bookend(0, config, "status"); got.exit != exitTrouble || !strings.Contains(got.err, "with --node") {
		t.Errorf("two nodes: %+v", got)
	}
}

func TestConfigCheck(t *testing.T) {
	dir, config := home(t)
	for name, tt := range map[string]struct {
		text    string
		exit    int
		verdict string
		says    []string
	}{
		"valid": {valid(dir), 0, "configuration would be valid: mode observe, backend " + dir + "/gpu", []string{
			"checked: FILE: every key", "checked: " + dir + "/gpu: there, executable; only root can write it"}},
		"mistakes": {"mdoe: enforce\nlog: {file: 'true'}\n", exitTrouble, "configuration would not be valid: the hooks would observe with the shipped policy",
			[]string{"FILE:1: mdoe: no such key (mode?)\n", "FILE:2: log.file: \"true\" is neither true nor false: remove the quotes\n"}},
		"no backend": {"backend: " + dir + "/absent\n", exitTrouble, "would be valid, but the hooks cannot start the backend and would look at no GPU",
			[]string{"BKD-BK-MISSING: stat " + dir + "/absent: no such file or directory\n"}},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(dir, "new.yaml")
			write(t, file, tt.text, 0o644)
			got := bookend(0, config, "config", "check", file)
			if got.exit != tt.exit || !strings.HasSuffix(got.out, tt.verdict+"\n") {
				t.Errorf("%+v", got)
			}
			for _, s := range tt.says {
				if !strings.Contains(got.out, strings.ReplaceAll(s, "FILE", file)) {
					t.Errorf("lacks %q:\n%s", s, got.out)
				}
			}
		})
	}
	t.Chdir(dir)
	if got := bookend(0, "", "config", "check", "bookend.yaml"); got.exit != 0 {
		t.Errorf("a relative path: %+v", got)
	}
	if got := bookend(0, config, "config", "check"); got.exit != 0 || !strings.Contains(got.out, "configuration is valid: mode observe") {
		t.Errorf("the one in force: %+v", got)
	}
	if got := bookend(0, "", "config", "check", "/nope"); got.exit != exitTrouble || strings.Count(got.out, "/nope") != 1 {
		t.Errorf("missing: %+v", got)
	}
}
