// Package deploy tries what deploy/ ships as it ships: scripts, units, rules, dashboard. What needs programs of others
// is in verify.sh and in the folders below.
package deploy

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"bookend/test/must"
	"bookend/test/rig"
)

// script copies a hook of deploy/slurm with the program, and the site's own script, that it is to look for.
func script(t *testing.T, name, program, own string) string {
	t.Helper()
	data := must.Have(os.ReadFile("../../deploy/slurm/hooks/" + name))(t)
	text := string(data)
	for _, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(line, "hook=/usr/libexec/bookend/bookend-") {
			text = strings.Replace(text, line, "hook="+program, 1)
		}
		if strings.HasPrefix(line, "own=/etc/slurm/task-") {
			text = strings.Replace(text, line, "own="+own, 1)
		}
	}
	if !strings.Contains(text, program) || strings.Contains(name, "beside") != strings.Contains(text, own) {
		t.Fatalf("%s is not of the known form:\n%s", name, text)
	}
	return write(t, filepath.Join(open(t), name), text, 0o755)
}

func write(t *testing.T, path, text string, mode os.FileMode) string {
	t.Helper()
	must.Do(t, rig.Write(path, []byte(text), mode))
	return path
}

// hook starts a script as Slurm does: no arguments, no PATH.
func hook(path string) (cmd *exec.Cmd, out, errs *bytes.Buffer) {
	cmd = exec.Command(path)
	out, errs = &bytes.Buffer{}, &bytes.Buffer{}
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = []string{"SLURMD_NODENAME=n1"}, "/", out, errs
	return cmd, out, errs
}

func names(t *testing.T, pattern string) (all []string) {
	t.Helper()
	files, err := filepath.Glob("../../deploy/slurm/hooks/" + pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no hooks: %v", err)
	}
	for _, f := range files {
		all = append(all, filepath.Base(f))
	}
	return all
}

// What slurm.conf names as the health check becomes the program: its exit code drains nothing, so that Slurm may log a
// crash.
func TestHealthCheckBecomesTheProgram(t *testing.T) {
	for text, want := range map[string]struct {
		state string
		out   string
	}{
		"echo $$ $0; echo e >&2":     {"exit status 0", "PID PROGRAM\n|e\n"},
		"exit 2":                     {"exit status 2", "|"},
		"kill -9 $$":                 {"signal: killed", "|"},
		`echo "$# $SLURMD_NODENAME"`: {"exit status 0", "0 n1\n|"},
	} {
		program := write(t, filepath.Join(t.TempDir(), "program"), "#!/bin/sh\n"+text+"\n", 0o755)
		cmd, out, errs := hook(script(t, "healthcheck", program, "/nowhere/own"))
		_ = cmd.Run()
		wanted := strings.NewReplacer("PID", fmt.Sprint(cmd.Process.Pid), "PROGRAM", program).Replace(want.out)
		if got := out.String() + "|" + errs.String(); cmd.ProcessState.String() != want.state || got != wanted {
			t.Errorf("%q: %v, %q; want %s, %q", text, cmd.ProcessState, got, want.state, wanted)
		}
	}
}

// Where Bookend is not installed, or not whole, nothing happens.
func TestHooksWhereBookendIsAbsent(t *testing.T) {
	dir := t.TempDir()
	for what, program := range map[string]string{
		"missing": filepath.Join(dir, "missing"), "a directory": dir, "below a file": "/proc/self/stat/x",
		"not executable": write(t, filepath.Join(dir, "plain"), "#!/bin/sh\nexit 9\n", 0o644),
	} {
		for _, name := range names(t, "*") {
			cmd, out, errs := hook(script(t, name, program, "/nowhere/own"))
			if err := cmd.Run(); err != nil || out.Len()+errs.Len() > 0 {
				t.Errorf("%s, program %s: %v, %q %q", name, what, err, out, errs)
			}
		}
	}
}

// Beside the site's own Bookend's comes first and counts for nothing; the site's own is then the very process.
func TestHooksBesideOwn(t *testing.T) {
	for _, name := range names(t, "*-beside-own") {
		for what, tt := range map[string]struct {
			program, own string
			mode         os.FileMode // of own; 0 where it is not there
			state, out   string
		}{
			"both":                     {"echo ours", "echo own $$; exit 7", 0o755, "exit status 7", "ours\nown PID\n"},
			"ours fails":               {"echo ours; exit 2", "echo own", 0o755, "exit status 0", "ours\nown\n"},
			"ours is killed":           {"kill -9 $$", "echo own", 0o755, "exit status 0", "own\n"},
			"ours is not there":        {"", "echo own; exit 7", 0o755, "exit status 7", "own\n"},
			"own is killed":            {"echo ours", "kill -15 $$", 0o755, "signal: terminated", "ours\n"},
			"own is not there":         {"echo ours; exit 2", "", 0, "exit status 0", "ours\n"},
			"own may not be executed":  {"echo ours", "exit 9", 0o644, "exit status 0", "ours\n"},
			"own ends no line":         {"echo ours", "printf own", 0o755, "exit status 0", "ours\nown"},
			"own has its own defaults": {"export X=1", `echo "own:$X:$#"`, 0o755, "exit status 0", "own::0\n"},
		} {
			dir := t.TempDir()
			program, own := filepath.Join(dir, "program"), filepath.Join(dir, "own")
			if tt.program != "" {
				write(t, program, "#!/bin/sh\n"+tt.program+"\n", 0o755)
			}
			if tt.mode != 0 {
				write(t, own, "#!/bin/sh\n"+tt.own+"\n", tt.mode)
			}
			cmd, out, _ := hook(script(t, name, program, own))
			_ = cmd.Run()
			want := strings.ReplaceAll(tt.out, "PID", fmt.Sprint(cmd.Process.Pid))
			if cmd.ProcessState.String() != tt.state || out.String() != want {
				t.Errorf("%s, %s: %v, %q; want %s, %q", name, what, cmd.ProcessState, out, tt.state, want)
			}
		}
	}
}

// What Slurm's pattern finds in prolog.d and epilog.d is Bookend's hook, and may be executed: else the node drains.
func TestFoldersForPatterns(t *testing.T) {
	for _, name := range []string{"prolog", "epilog"} {
		link := "../../deploy/slurm/" + name + ".d/00-bookend.sh"
		target, err := filepath.EvalSymlinks(link)
		if err != nil || filepath.Base(target) != name {
			t.Errorf("%s leads to %q: %v", link, target, err)
		}
	}
	for _, name := range names(t, "*") {
		if st, err := os.Stat("../../deploy/slurm/hooks/" + name); err != nil || st.Mode() != 0o755 {
			t.Errorf("%s: %v %v", name, st.Mode(), err)
		}
	}
}

// Node Health Check reads the file into its own shell, with functions of its own, and drains for what fails, for what
// is not there, and for what is at work when its own time is over.
func TestNodeHealthCheck(t *testing.T) {
	for what, tt := range map[string]struct{ program, set, want string }{
		"absent":      {"", "", "0|"},
		"well":        {"echo seen", "", "seen\n0|"},
		"with errors": {"exit 3", "", "0|log check_bookend:  PROGRAM ended with 3"},
		"too slow for nhc": {"exec sleep 60", "TIMEOUT=6 SECONDS=0",
			"0|log check_bookend:  stopped after 1 s, before TIMEOUT=6 would drain the node"},
		"deaf, too": {"trap '' TERM; while :; do :; done", "TIMEOUT=6 SECONDS=0",
			"0|log check_bookend:  stopped after 1 s, before TIMEOUT=6 would drain the node"},
		"others took it all": {"echo seen", "TIMEOUT=30 SECONDS=25",
			"0|log check_bookend:  not run: no time is left of TIMEOUT=30"},
		"others took some": {"echo seen", "TIMEOUT=30 SECONDS=15", "seen\n0|"},
		"nhc's clock":      {"echo seen", "TIMEOUT=30 NHC_START_TS=1700000000 SECONDS=1700000001", "seen\n0|"},
		"no limit":         {"sleep 1; echo seen", "TIMEOUT=0", "seen\n0|"},
	} {
		program := filepath.Join(t.TempDir(), "program")
		if tt.program != "" {
			write(t, program, "#!/bin/sh\n"+tt.program+"\n", 0o755)
		}
		cmd := exec.Command("/bin/bash", "-c", `set -u; log() { said="log $*"; }; die() { echo died; exit 1; }; said=
. ../../deploy/nhc/bookend.nhc
`+tt.set+`
check_bookend; echo -n "$?|$said"`)
		cmd.Env = []string{"BOOKEND_HEALTHCHECK=" + program}
		out, err := cmd.Output()
		if want := strings.ReplaceAll(tt.want, "PROGRAM", program); err != nil || string(out) != want {
			t.Errorf("%s: %v, %q, want %q", what, err, out, want)
		}
	}
}
