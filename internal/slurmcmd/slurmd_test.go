package slurmcmd

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/child"
	"bookend/internal/slurmconf"
	"bookend/test/golden"
	"bookend/test/must"
)

// TestMain serves as slurmd: SLURM_CONF names what it does.
func TestMain(m *testing.M) {
	if os.Args[0] != "slurmd" {
		os.Exit(m.Run())
	}
	what, _ := os.ReadFile(os.Getenv("SLURM_CONF"))
	switch strings.TrimSpace(string(what)) {
	case "lists":
		fmt.Fprintln(os.Stderr, "slurmd: Gres Name=gpu Type=(null) Count=2 ID=7 File=/dev/nvidia[2,0] (null)")
	case "tells":
		told := strings.Join(append(os.Args, os.Environ()...), "|")
		fmt.Fprintf(os.Stderr, "slurmd: Gres Name=gpu Type=(null) Count=1 ID=7 File=%s (null)\n", told)
	case "sees":
		cgroup, _ := os.ReadFile(filepath.Join(filepath.Dir(os.Getenv("SLURM_CONF")), "cgroup.conf"))
		part, err := os.ReadFile(filepath.Join(filepath.Dir(os.Getenv("SLURM_CONF")), "parts/gpus.conf"))
		fmt.Fprintf(os.Stderr, "slurmd: Gres Name=gpu Type=(null) Count=1 ID=7 File=%s|%s|%v (null)\n",
			strings.TrimSpace(string(cgroup)), part, err)
	case "knows no such plugin", "knows no plugin":
		cgroup, _ := os.ReadFile(filepath.Join(filepath.Dir(os.Getenv("SLURM_CONF")), "cgroup.conf"))
		if string(cgroup) != "CgroupPlugin=cgroup/v1\n" || string(what) == "knows no plugin" {
			os.Exit(1) // without a word, as 22.05 does
		}
		fmt.Fprintln(os.Stderr, "slurmd: Gres Name=gpu Type=(null) Count=1 ID=7 File=/dev/nvidia5 (null)")
	case "fails":
		fmt.Fprintln(os.Stderr, "noise\nslurmd: error: slurmd initialization failed")
		os.Exit(1)
	case "hangs":
		time.Sleep(time.Hour)
	case "floods":
		for range maxListing {
			fmt.Fprint(os.Stderr, "xy")
		}
	case "garbage":
		fmt.Fprintln(os.Stderr, "Gres Name=gpu Count=7 File=/dev/nvidia0")
	}
	os.Exit(0)
}

func command(t *testing.T, what string) Slurmd {
	t.Helper()
	self := must.Have(os.Executable())(t)
	dir := t.TempDir()
	for name, text := range map[string]string{"slurm.conf": what, "cgroup.conf": "CgroupPlugin=cgroup/v2\n",
		"parts/gpus.conf": "part"} {
		must.Write(t, filepath.Join(dir, name), text)
	}
	return Slurmd{
		Path: self, Conf: filepath.Join(dir, "slurm.conf"), Entries: []string{"cgroup.conf", "parts",
			"slurm.conf"}, Private: t.TempDir(),
		Node: "n1", Timeout: time.Minute,
	}
}

func TestList(t *testing.T) {
	for what, want := range map[string]string{
		"lists": "[[/dev/nvidia2] [/dev/nvidia0]]", "nothing": "[]",
		"fails":  `slurmd -G: exited, exit 1: "slurmd: error: slurmd initialization failed"`,
		"floods": "slurmd -G: more than 1048576 bytes of output", "garbage": "slurmd -G: parse",
	} {
		got, _, err := command(t, what).List()
		said := fmt.Sprint(got.GPUs)
		if err != nil {
			said = err.Error()
		}
		must.Not(t, !strings.HasPrefix(said, want), "%s: %s, want %s", what, said, want)
	}
}

// It gets its environment from here alone, and a directory of its own that is gone afterwards.
func TestListTellsSlurmd(t *testing.T) {
	t.Setenv("LD_PRELOAD_OF_THE_CALLER", "x")
	c := command(t, "tells")
	got, _, err := c.List()
	must.Do(t, err)
	conf := filepath.Join(c.Private, fmt.Sprintf("slurmd-%d/slurm.conf", os.Getpid()))
	must.Be(t, "it", fmt.Sprint(got.GPUs), fmt.Sprintf("[[slurmd|-f|%[1]s|-N|n1|-v|-G|SLURM_CONF=%[1]s]]", conf))
	must.Be(t, "files left", len(must.Have(os.ReadDir(c.Private))(t)), 0)
}

// slurmd's cgroup plugin would change the limits of the daemon's own cgroup, which its hooks run in.
func TestListKeepsOffCgroups(t *testing.T) {
	for what, want := range map[string]string{
		"sees":                 "[[CgroupPlugin=disabled|part|<nil>]] <nil>",
		"knows no such plugin": "[[/dev/nvidia5]] <nil>",
		"knows no plugin":      `[] slurmd -G: exited, exit 1: ""`,
	} {
		c := command(t, what)
		dir := filepath.Join(c.Private, fmt.Sprintf("slurmd-%d", os.Getpid()))
		must.Do(t, os.MkdirAll(filepath.Join(dir, "left by an earlier one"), 0o700))
		got, _, err := c.List()
		must.Be(t, what, fmt.Sprint(got.GPUs, " ", err), want)
	}
}

// An older one ends at the value that it does not know behind what it says of the configuration.
func TestListOfAnOlderOne(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root's programs are trusted")
	}
	dir := must.Have(os.MkdirTemp("/root", "slurmd-test-"))(t)
	defer os.RemoveAll(dir)
	for version, want := range map[string]string{"23.11.4": "[[/dev/nvidia5]]", "24.11.1": "[]"} {
		c := command(t, "")
		c.Path = filepath.Join(dir, "slurmd")
		must.Do(t, os.WriteFile(c.Path, []byte(`#!/bin/sh
[ "$1" = -V ] && { echo slurm `+version+`; exit; }
echo 'slurmd: error: Prolog 1 specified more than once, latest value used' >&2
grep -q cgroup/v1 "$(dirname "$2")/cgroup.conf" || exit 1
echo 'slurmd: Gres Name=gpu Type=(null) Count=1 ID=7 File=/dev/nvidia5 (null)' >&2
`), 0o755))
		got, _, _ := c.List()
		must.Be(t, version, fmt.Sprint(got.GPUs), want)
	}
	c := command(t, "")
	c.Path, c.Timeout = filepath.Join(dir, "slurmd"), 200*time.Millisecond
	must.Do(t, os.WriteFile(c.Path, []byte("#!/bin/sh\n[ \"$1\" = -V ] && exec sleep 600\necho error >&2; exit 1\n"), 0o755))
	began := time.Now()
	_, _, err := c.List()
	must.Not(t, err == nil || time.Since(began) > 5*time.Minute, "asked for its version it hung for %v: %v", time.Since(began), err)
}

func TestListHangs(t *testing.T) {
	c := command(t, "hangs")
	must.Slower(t, 200*time.Millisecond, func(limit time.Duration) bool { // it must be under way by then
		c.Timeout = limit
		_, res, err := c.List()
		return err != nil && strings.Contains(err.Error(), fmt.Sprint("no answer within ", limit)) && res.Outcome == child.Hung
	})
	c.Timeout = 0
	if _, _, err := c.List(); err == nil {
		t.Error("it was asked without time")
	}
}

// Root starts nothing that others could have written.
func TestListTrusts(t *testing.T) {
	dir := t.TempDir()
	forged := filepath.Join(dir, "slurmd")
	must.Do(t, os.WriteFile(forged, []byte("#!/bin/sh\ntouch "+dir+"/ran\n"), 0o777))
	must.Do(t, os.Chmod(forged, 0o777))
	for _, path := range []string{forged, filepath.Join(dir, "none"), "slurmd"} {
		if _, _, err := (Slurmd{Path: path, Conf: "/x", Node: "n1", Root: true,
			Timeout: time.Minute}).List(); err == nil {
			t.Errorf("%q was started", path)
		}
	}
	must.Not(t, must.Err(os.Stat(filepath.Join(dir, "ran"))) == nil, "the forged program ran")
}

func process(t *testing.T, proc string, pid, parent int, exe string, ticks int) {
	t.Helper()
	dir := filepath.Join(proc, fmt.Sprint(pid))
	stat := fmt.Sprintf("%d (a ) b) S %d%s %d 0\n", pid, parent, strings.Repeat(" 0", 17), ticks)
	must.Do(t, os.MkdirAll(dir, 0o755))
	must.Do(t, os.WriteFile(filepath.Join(dir, "stat"), []byte(stat), 0o644))
	must.Do(t, os.Symlink(exe, filepath.Join(dir, "exe")))
}

// The programs of a hook's ancestors, the parent first, and which of them is the daemon.
func TestRunning(t *testing.T) {
	golden.Lines(t, *update, "testdata/running.txt", func(given string) string {
		proc := t.TempDir()
		all := append([]string{"/usr/libexec/bookend/bookend-prolog"}, strings.Split(given, ", ")...)
		for i, exe := range all {
			parent := 101 + i
			if i == len(all)-1 {
				parent = 1
			}
			process(t, proc, 100+i, parent, exe, 1100+i)
		}
		return fmt.Sprint(Running(proc, 100))
	})
	proc := t.TempDir()
	process(t, proc, 5, 5, "/bin/sh", 1)
	must.Be(t, "its own parent", Running(proc, 5).PID, 0)
}

// A hook inside a job finds the daemon by its PID file, unless a user could have written that or is that process.
func TestByFile(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root's files are trusted")
	}
	proc, dir := t.TempDir(), "/root"
	process(t, proc, 7, 1, "/usr/sbin/slurmd-wlm", 70)
	process(t, proc, 8, 1, "/usr/bin/python3", 80)
	process(t, proc, 9, 1, "/home/u/slurmd", 90)
	must.Do(t, os.Chown(filepath.Join(proc, "9"), 65534, 65534))
	file := must.Have(os.MkdirTemp(dir, "slurmd-test-"))(t)
	defer os.RemoveAll(file)
	file = filepath.Join(file, "slurmd.pid")
	for text, want := range map[string]int{"7\n": 7, "7": 7, "8\n": 0, "9\n": 0, "10\n": 0, "x": 0, "": 0, "../7": 0} {
		must.Do(t, os.WriteFile(file, []byte(text), 0o644))
		if got := ByFile(proc, file); got.PID != want || want != 0 && got.Ticks != 70 {
			t.Errorf("%q: %+v, want %d", text, got, want)
		}
	}
	must.Do(t, os.WriteFile(file, []byte("7\n"), 0o644))
	must.Do(t, os.Chown(file, 65534, 0))
	if got := ByFile(proc, file); got.PID != 0 || ByFile(proc, "/root/none").PID != 0 {
		t.Errorf("a user's file: %+v", got)
	}
}

func TestRead(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"slurm.conf": "ClusterName=Lab\nInclude nodes.d/*\nInclude lab.conf\nInclude gone.conf\nInclude pipe\n",
		"nodes.d/b":  "B=2\n", "nodes.d/a": "A=1\nInclude ../deep.conf\n", "deep.conf": "Deep=yes\n", "lab.conf": "Lab=yes\n",
	} {
		must.Write(t, filepath.Join(dir, name), text)
	}
	must.Do(t, unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	got := ""
	for _, l := range must.Have(read(filepath.Join(dir, "slurm.conf"), true))(t).Lines {
		got += fmt.Sprint(l.Pairs, l.Unreadable())
	}
	for _, want := range []string{"[[ClusterName Lab]][[A 1]][[Deep yes]][[B 2]][[Lab yes]][]", "no such file", "not a file"} {
		must.Not(t, !strings.Contains(got, want), "read %s, want %s", got, want)
	}
}

func TestReadRefuses(t *testing.T) {
	dir := t.TempDir()
	must.Fail(t, "missing", must.Err(Read(filepath.Join(dir, "slurm.conf"))), fs.ErrNotExist)
	// Slurm does not start with a pattern in slurm.conf, so what it matches is not in force.
	must.Write(t, filepath.Join(dir, "a"), "A=1\n")
	must.Write(t, filepath.Join(dir, "slurm.conf"), "ClusterName=lab\nInclude a*\n")
	c, err := Read(filepath.Join(dir, "slurm.conf"))
	if _, have := c.Get("A"); err != nil || have || !strings.Contains(c.Doubt(), "Slurm takes no pattern here") {
		t.Errorf("%+v, doubt %q, %v", c.Lines, c.Doubt(), err)
	}
	must.Write(t, filepath.Join(dir, "large.conf"), strings.Repeat("#", slurmconf.MaxBytes+1))
	must.Not(t, must.Err(Read(filepath.Join(dir, "large.conf"))) == nil, "a file that is too large was read")
	must.Not(t, must.Err(Read(dir)) == nil, "a directory was read")
}
