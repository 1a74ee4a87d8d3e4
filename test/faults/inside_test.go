package faults

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bookend/internal/code"
	"bookend/internal/numbering"
	"bookend/internal/slurm"
	"bookend/internal/state"
)

// inside has hooks run in a job's own cgroup.
func (n *node) inside(cgroup, allowed string) {
	n.Helper()
	proc := n.copiedProc()
	own := "0::/system.slice/n1_slurmstepd.scope/" + cgroup + "/step_extern/slurm\n"
	must(n, os.WriteFile(filepath.Join(proc, "self/cgroup"), []byte(own), 0o644))
	if pid, err := os.ReadFile(n.in("slurm.d/slurmd.pid")); err == nil {
		pid := strings.TrimSpace(string(pid))
		must(n, os.Symlink("/proc/"+pid, filepath.Join(proc, pid)))
	}
	n.configure(func(c *conf) {
		c.proc, c.shards = proc, `"no", run_in_job_backend: `+allowed
	})
}

// Inside a job a slurmd that cannot be found may have read other files than those that are there.
func TestInsideTheJobWithoutSlurmd(t *testing.T) {
	t.Parallel()
	n := newNode(t, "enforce")
	n.inside("job_100", "true")
	n.clean(prolog, newJob())
	if _, origin := n.uuids(100); origin.Source != numbering.Ambiguous || !strings.Contains(origin.Why, "which slurmd is running is not known") {
		t.Errorf("%+v", origin)
	}
}

// Under PrologFlags=RunInJob hooks run in the job's own cgroup, by its id or, since 26.05, by its run's. As shipped no driver
// is asked from there and nothing is said to be wrong with the node; where the admin wants it the card is looked at, and
// what stays on it drains nothing.
func TestInsideTheJob(t *testing.T) {
	for name, tt := range map[string]struct {
		cgroup, allowed string
		looks           bool
	}{
		"not from inside":         {"job_100", "false", false},
		"nor by the run's name":   {"sCHNM7Y8WBK900", "false", false},
		"where the admin allows":  {"job_100", "true", true},
		"allowed, the run's name": {"sCHNM7Y8WBK900", "true", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, "enforce")
			defer n.daemon()()
			n.inside(tt.cgroup, tt.allowed)
			n.clean(prolog, newJob())
			n.leftover()
			n.clean(epilog, newJob())

			r := n.run(100)
			for _, end := range append(r.Ends, *r.Start) {
				if looked := len(end.Snapshot.Readings) > 0; looked != tt.looks {
					t.Errorf("looked: %v, want %v", looked, tt.looks)
				}
			}
			said := n.findings(prolog)
			if len(said) != 1 || said[0].Code != code.RunInJob {
				t.Errorf("the start finds %+v", said)
			}
			if found := n.findings(epilog); !has(found, code.RunInJob) || has(found, code.Unread) {
				t.Errorf("the end finds %+v", found)
			}
			if text := r.Start.Report; strings.Contains(text, "not checked: hook runs inside the job; your job is not") == tt.looks ||
				strings.Contains(text, "--exclude") {
				t.Errorf("the job's user reads %q", text)
			}
			if report, err := state.GetReport(n.conf.run, nodeName, slurm.Owner{ID: 100}); err != nil || !report.Clean {
				t.Errorf("the start's report: %+v, %v", report, err)
			}
		})
	}
}
