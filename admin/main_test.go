package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"bookend/internal/child"
	"bookend/test/must"
)

// TestMain serves as the children that commands start: they are this program again.
func TestMain(m *testing.M) {
	if exit, done := (child.Env{Args: os.Args, Stdin: os.Stdin, Stdout: os.Stdout,
		Stderr: os.Stderr}).Serve(); done {
		os.Exit(exit)
	}
	if filepath.Base(os.Args[0]) == "bookend" { // a copy that stands for the program: standIn
		main()
	}
	os.Exit(m.Run())
}

type typed struct {
	exit     int
	out, err string
}

// bookend runs the command line as root, or as somebody else, with a configuration.
func bookend(euid int, config string, args ...string) typed {
	return typing(euid, map[string]string{"BOOKEND_CONFIG": config}, args...)
}

func typing(euid int, environment map[string]string, args ...string) typed {
	var out bytes.Buffer
	exit, err := onto(&out, euid, environment, args...)
	return typed{exit, out.String(), err}
}

// onto runs the command line with a standard output, and returns its standard error.
func onto(out io.Writer, euid int, environment map[string]string, args ...string) (exit int, said string) {
	var err bytes.Buffer
	exit = run(child.Env{
		Args: append([]string{"bookend"}, args...), Stdout: out, Stderr: &err, EUID: euid, Clock: child.SystemClock(),
		Version: "1.2", Getenv: func(name string) string { return environment[name] },
	}, args)
	return exit, err.String()
}

type tester interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// home is a folder that only root can write, with a configuration whose backend could be started.
func home(t *testing.T) (dir, config string) {
	t.Helper()
	dir = must.RootsDir(t)
	return dir, homeIn(t, dir)
}

func homeIn(t tester, dir string) (config string) {
	t.Helper()
	must.Do(t, os.Chmod(dir, 0o755))
	config = filepath.Join(dir, "bookend.yaml")
	write(t, filepath.Join(dir, "gpu"), "#!/bin/sh\n", 0o755)
	write(t, config, valid(dir), 0o644)
	return config
}

func valid(dir string) string {
	return strings.ReplaceAll("backend: DIR/gpu\npaths: {run: DIR/run, var: DIR/var, log: DIR/log}\n", "DIR", dir)
}

func write(t tester, file, text string, mode os.FileMode) {
	t.Helper()
	must.Do(t, os.WriteFile(file, []byte(text), mode))
	must.Do(t, os.Chmod(file, mode))
}

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
	walk(rootCommand(&app{env: child.Env{Getenv: func(string) string { return "" }}}))
	return all
}

func TestHelpIsSaidOnce(t *testing.T) {
	lines := [][]string{{"help"}, {"-h"}, {"--help"}, {"config", "check", "-h"}, {"show", "28", "--help"}}
	for _, c := range tree(t) {
		path := strings.Fields(c.CommandPath())[1:]
		lines = append(lines, append(slices.Clone(path), "-h"), append(slices.Clone(path), "--help"),
			append([]string{"help"}, path...))
	}
	for _, args := range lines {
		got := bookend(0, "", args...)
		if got.exit != 0 || got.err != "" || strings.Count(got.out, "usage: bookend") != 1 {
			t.Errorf("%q: %+v", args, got)
		}
	}
	for _, line := range []string{
		"", "nope", "show", "show 1 2", "show --nod n1 1", "show x", "status 1", "snapshot --node n1", "baseline take",
		"baseline accept", "baseline reset", "baseline reset all now", "baseline --force", "baseline --json", "config", "config look",
		"config check a b", "help nope", "history 7", "baseline reset all --force", "completion", "completion tcsh",
		"explain", "report", "report --json", "report --html - --since 1h --until 2h", "history --since soon",
		"history --since 2026-11-21 --until 2026-11-20", "history --code nope", "history --limit -1",
	} {
		args := strings.Fields(line)
		got := bookend(0, "", args...)
		if got.exit != exitUsage || got.out != "" || strings.Count(got.err, "usage: bookend") != 1 ||
			!strings.Contains(got.err, " --help\n") {
			t.Errorf("%q: %+v", args, got)
		}
	}
	if got := bookend(0, "", "baseline", "-h"); !strings.Contains(got.out, "\n  reset        remove") {
		t.Errorf("%+v", got)
	}
	if got := bookend(0, "", "baseline", "accept", "-h"); !strings.Contains(got.out, "up to 64 MiB") {
		t.Errorf("%+v", got)
	}
	if got := bookend(0, "", "sttaus"); got.exit != exitUsage || !strings.Contains(got.err,
		`no such command: "sttaus"; did you mean status?`) {
		t.Errorf("%+v", got)
	}
	for _, args := range [][]string{{"version"}, {"--version"}} {
		if got := bookend(0, "", args...); got != (typed{0, "bookend 1.2\n", ""}) {
			t.Errorf("%q: %+v", args, got)
		}
	}
}

// Each text of help.txt is that of a command, and each command has one.
func TestHelpTexts(t *testing.T) {
	var have, want []string
	for _, cmd := range tree(t) {
		must.Not(t, cmd.Short == "", "%s has no text", cmd.CommandPath())
		have = append(have, "# "+strings.TrimSuffix(cmd.UseLine(), " [flags]"))
	}
	for line := range strings.Lines(helpTexts) {
		if strings.HasPrefix(line, "# ") {
			want = append(want, strings.TrimSpace(line))
		}
	}
	slices.Sort(have)
	slices.Sort(want)
	must.Be(t, "commands", have, want)
}

// An answer that does not get out, as onto a full disk, is no answer: it is said, and the exit code says so too.
func TestAnswersThatDoNotGetOut(t *testing.T) {
	n := busy(t)
	full := must.Have(os.OpenFile("/dev/full", os.O_WRONLY, 0))(t)
	defer full.Close()
	for _, line := range []string{
		"status", "status --json", "status --exit-code", "show 42", "show 42 --json", "history",
		"history --repeat-offenders", "snapshot", "explain orphan", "baseline", "config check", "doctor", "doctor --json",
		"report --html -", "version", "--help", "show --help", "--version", "completion bash", "completion zsh",
		"completion fish",
	} {
		args := strings.Fields(line)
		exit, said := onto(full, 0, map[string]string{"BOOKEND_CONFIG": n.config}, args...)
		if exit != exitTrouble || strings.Count(said, "no space left on device") != 1 {
			t.Errorf("%q: exit %d: %s", args, exit, said)
		}
	}
}

// Root writes the archive where it was told to, not where a user's link leads, and over nothing.
func TestCollectFollowsNoUsersLink(t *testing.T) {
	dir, config := home(t)
	must.Do(t, os.Mkdir(filepath.Join(dir, "root"), 0o755))
	must.Do(t, os.Symlink("root", filepath.Join(dir, "link")))
	must.Do(t, os.Lchown(filepath.Join(dir, "link"), me, me))
	if got := bookend(0, config, "snapshot", "--collect", filepath.Join(dir, "link/x.tar")); got.exit == 0 {
		t.Errorf("%+v", got)
	}
	file := filepath.Join(dir, "root/x.tar")
	if got := bookend(0, config, "snapshot", "--collect", file); got.exit != 0 {
		t.Errorf("%+v", got)
	}
	if got := bookend(0, config, "snapshot", "--collect", file); got.exit == 0 || !strings.Contains(got.err, "exists") {
		t.Errorf("%+v", got)
	}
}
