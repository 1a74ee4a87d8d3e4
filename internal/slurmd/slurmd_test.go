package slurmd

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/child"
	"bookend/internal/numbering"
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
	case "fails":
		fmt.Fprintln(os.Stderr, "noise\nslurmd: error: slurmd initialization failed")
		os.Exit(1)
	case "hangs":
		time.Sleep(time.Hour)
	case "floods":
		for range maxOutput {
			fmt.Fprint(os.Stderr, "xy")
		}
	case "garbage":
		fmt.Fprintln(os.Stderr, "Gres Name=gpu Count=7 File=/dev/nvidia0")
	}
	os.Exit(0)
}

func command(t *testing.T, what string) Command {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	conf := filepath.Join(t.TempDir(), "slurm.conf")
	if err := os.WriteFile(conf, []byte(what), 0o644); err != nil {
		t.Fatal(err)
	}
	return Command{Path: self, Conf: conf, Node: "n1", Timeout: time.Minute}
}

func TestList(t *testing.T) {
	for what, want := range map[string]string{
		"lists": "[[/dev/nvidia2] [/dev/nvidia0]]", "nothing": "[]", "fails": `slurmd -G: exited, exit 1: "slurmd: error: slurmd initialization failed"`,
		"floods": "slurmd -G: more than 1048576 bytes of output", "garbage": "slurmd -G: parse",
	} {
		got, _, err := command(t, what).List()
		said := fmt.Sprint(got)
		if err != nil {
			said = err.Error()
		}
		if !strings.HasPrefix(said, want) {
			t.Errorf("%s: %s, want %s", what, said, want)
		}
	}
}

// It gets its environment from here alone.
func TestListTellsSlurmd(t *testing.T) {
	t.Setenv("LD_PRELOAD_OF_THE_CALLER", "x")
	c := command(t, "tells")
	got, _, err := c.List()
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("[[slurmd|-f|%[1]s|-N|n1|-v|-G|SLURM_CONF=%[1]s|INVOCATION_ID=bookend]]", c.Conf); fmt.Sprint(got) != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestListHangs(t *testing.T) {
	c := command(t, "hangs")
	c.Timeout = 200 * time.Millisecond
	if _, res, err := c.List(); err == nil || !strings.Contains(err.Error(), "no answer within 200ms") || res.Outcome != child.Hung {
		t.Errorf("%v, %v", res.Outcome, err)
	}
	c.Timeout = 0
	if _, _, err := c.List(); err == nil {
		t.Error("it was asked without time")
	}
}

// Root starts nothing that others could have written.
func TestListTrusts(t *testing.T) {
	dir := t.TempDir()
	forged := filepath.Join(dir, "slurmd")
	if err := os.WriteFile(forged, []byte("#!/bin/sh\ntouch "+dir+"/ran\n"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(forged, 0o777); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{forged, filepath.Join(dir, "none"), "slurmd"} {
		if _, _, err := (Command{Path: path, Conf: "/x", Node: "n1", Root: true, Timeout: time.Minute}).List(); err == nil {
			t.Errorf("%q was started", path)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "ran")); err == nil {
		t.Error("the forged program ran")
	}
}

// process makes a process in a tree like /proc.
func process(t *testing.T, proc string, pid, parent int, exe string, ticks int) {
	t.Helper()
	dir := filepath.Join(proc, fmt.Sprint(pid))
	stat := fmt.Sprintf("%d (a ) b) S %d%s %d 0\n", pid, parent, strings.Repeat(" 0", 17), ticks)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "stat"), []byte(stat), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(exe, filepath.Join(dir, "exe")); err != nil {
		t.Fatal(err)
	}
}

func TestRunning(t *testing.T) {
	for name, tt := range map[string]struct {
		exes []string // of the hook's ancestors, the parent first
		want numbering.Daemon
	}{
		"behind a wrapper":       {[]string{"/bin/dash", "/usr/sbin/slurmd-wlm", "/sbin/init"}, numbering.Daemon{PID: 102, Ticks: 1102, Exe: "/usr/sbin/slurmd-wlm"}},
		"behind its launcher":    {[]string{"/opt/sbin/slurmd", "/opt/sbin/slurmd"}, numbering.Daemon{PID: 102, Ticks: 1102, Exe: "/opt/sbin/slurmd"}},
		"upgraded":               {[]string{"/opt/sbin/slurmd (deleted)"}, numbering.Daemon{PID: 101, Ticks: 1101, Exe: "/opt/sbin/slurmd"}},
		"inside the job":         {[]string{"/bin/dash", "/usr/sbin/slurmstepd"}, numbering.Daemon{}},
		"another of that letter": {[]string{"/usr/sbin/slurmdbd"}, numbering.Daemon{}},
		"from a timer":           {nil, numbering.Daemon{}},
	} {
		proc := t.TempDir()
		all := append([]string{"/usr/libexec/bookend/bookend-prolog"}, tt.exes...)
		for i, exe := range all {
			parent := 101 + i
			if i == len(all)-1 {
				parent = 1
			}
			process(t, proc, 100+i, parent, exe, 1100+i)
		}
		if got := Running(proc, 100); got != tt.want {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
	}
	proc := t.TempDir()
	process(t, proc, 5, 5, "/bin/sh", 1)
	if got := Running(proc, 5); got.PID != 0 {
		t.Errorf("its own parent: %+v", got)
	}
}

func TestIdentify(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gres.conf")
	none, err := Identify(path)
	if err != nil || none != (numbering.FileID{Path: path}) {
		t.Errorf("%+v, %v", none, err)
	}
	if err := os.WriteFile(path, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	made, err := Identify(path)
	if err != nil || made.Inode == 0 || made.Size != 1 || made.Changed == 0 {
		t.Errorf("%+v, %v", made, err)
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil || made.Changed != st.Ctim.Nano() || made.Written != st.Mtim.Nano() {
		t.Errorf("%+v, %+v, %v", made, st, err)
	}
	if _, err := Identify("/" + strings.Repeat("x", 5000)); err == nil {
		t.Error("a name that is too long has an identity")
	}
}
