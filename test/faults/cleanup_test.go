package faults

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/attrib"
	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/test/fakegpu"
)

// unified is where this host mounts the cgroup v2 hierarchy.
func unified(t testing.TB) string {
	t.Helper()
	table, err := os.ReadFile("/proc/self/mounts")
	must(t, err)
	for line := range strings.Lines(string(table)) {
		if f := strings.Fields(line); len(f) > 2 && f[2] == "cgroup2" {
			return f[1]
		}
	}
	t.Fatal("no cgroup v2 hierarchy is mounted")
	return ""
}

// inCgroup moves a process into a cgroup as Slurm names a job's, on a node that no Slurm of this host has.
func (n *node) inCgroup(p *fakegpu.Program, job string) {
	n.Helper()
	n.move(p, filepath.Base(n.dir)+"_slurmstepd.scope", "job_"+job+"/step_batch/user/task_0")
}

// move puts a process into a cgroup below the system's slice, made for it and removed with the test.
func (n *node) move(p *fakegpu.Program, unit, below string) {
	n.Helper()
	scope := filepath.Join(unified(n), "system.slice", unit)
	leaf := filepath.Join(scope, below)
	must(n, os.MkdirAll(leaf, 0o755))
	n.Cleanup(func() {
		p.End()
		n.removeCgroup(scope, leaf)
	})
	must(n, os.WriteFile(filepath.Join(leaf, "cgroup.procs"), []byte(strconv.Itoa(p.PID)), 0))
}

// removeCgroup waits for what was killed there to be gone.
func (n *node) removeCgroup(scope, leaf string) {
	for dir := leaf; len(dir) >= len(scope); dir = filepath.Dir(dir) {
		for end := time.Now().Add(margin); ; time.Sleep(5 * time.Millisecond) {
			err := unix.Rmdir(dir)
			if err == nil || errors.Is(err, fs.ErrNotExist) {
				break
			}
			if !errors.Is(err, unix.EBUSY) || time.Now().After(end) {
				n.Errorf("remove cgroup %q: %v", dir, err)
				return
			}
		}
	}
}

// Clean-up ends what a cgroup proves to be the job's, looks again, and touches nothing else.
func TestCleanUp(t *testing.T) {
	for name, tt := range map[string]struct {
		extra  string
		job    string // whose cgroup the process is in; none: exclusive use alone blames the job
		args   []string
		ended  finding.Outcome
		exit   int
		orphan bool
	}{
		"off by default":          {"", "100", nil, "", 10, true},
		"proven by its cgroup":    {"clean_up: {enabled: true, grace: 300ms}\n", "100", nil, finding.ByTerm, 0, false},
		"stopped":                 {"clean_up: {enabled: true, grace: 300ms}\n", "100", []string{"--stop"}, finding.ByKill, 0, false},
		"not proven":              {"clean_up: {enabled: true, grace: 300ms}\n", "", nil, "", 10, true},
		"of a job without record": {"clean_up: {enabled: true, grace: 300ms}\n", "999", nil, "", 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, "enforce")
			n.configure(func(c *conf) { c.extra, c.settle = tt.extra, "{max: 2s, flat: 800ms}" })
			n.clean(prolog, newJob())
			p := n.leftover(tt.args...)
			if tt.job != "" {
				n.inCgroup(p, tt.job)
			}
			o := n.hook(epilog, newJob())
			found := n.findings(epilog)
			if o.exit != tt.exit || has(found, code.Orphan) != tt.orphan || has(found, code.Ended) != (tt.ended != "") {
				t.Errorf("%v %+v", o, found)
			}
			for _, f := range found {
				if f.Code == code.Ended && (f.Ended != tt.ended || !strings.Contains(f.Observed, tt.ended.Text()) || f.Index == nil || *f.Index != 0) {
					t.Errorf("%+v, want %q on GPU 0", f, tt.ended)
				}
				if f.Code == code.Orphan && tt.job != "" && f.Owner.Level != attrib.ByCgroup {
					t.Errorf("owner %+v", f.Owner)
				}
			}
			text := n.run(100).Ends[0].Report
			if strings.Contains(text, "of your job was still on GPU 0 and was ended") != (tt.ended != "") {
				t.Errorf("the user reads:\n%s", text)
			}
			alive := unix.Kill(p.PID, 0) == nil && !zombie(t, p.PID)
			if alive != (tt.ended == "") {
				t.Errorf("process %d alive: %v", p.PID, alive)
			}
		})
	}
}

// What goes wrong when the hook looks again after clean-up is told, and what was found before is not certain any more: its
// process may have been ended.
func TestBackendGoneAfterCleanUp(t *testing.T) {
	t.Parallel()
	n := newNode(t, "enforce")
	n.configure(func(c *conf) {
		c.extra, c.settle = "clean_up: {enabled: true, grace: 300ms}\n", "{max: 2s, flat: 800ms}"
	})
	n.clean(prolog, newJob())
	n.inCgroup(n.leftover(), "100")
	text := fmt.Sprintf("[ ! -e %[1]s ] || rm \"$0\"\n:>%[1]s\nexec %[2]s", n.in("asked"), n.conf.backend) // gone after two questions
	n.configure(func(c *conf) { c.backend = n.script("backend", text) })
	o := n.hook(epilog, newJob())
	found := n.findings(epilog)
	for _, c := range []code.Code{code.Ended, code.BackendMissing, code.Orphan} {
		if !has(found, c) {
			t.Errorf("%s is not told: %+v", c, found)
		}
	}
	for _, f := range found {
		if f.Code == code.Orphan && len(f.Doubts) == 0 {
			t.Errorf("nobody saw what became of it, and it is certain: %+v", f)
		}
	}
	if o.exit != 0 {
		t.Error(o)
	}
}

func zombie(t *testing.T, pid int) bool {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if errors.Is(err, fs.ErrNotExist) {
		return true
	}
	must(t, err)
	_, rest, _ := strings.Cut(string(text[strings.LastIndexByte(string(text), ')'):]), " ")
	return strings.HasPrefix(rest, "Z")
}
