package faults

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"bookend/internal/code"
	"bookend/internal/safefile"
	"bookend/internal/slurm"
	"bookend/internal/slurmconf"
	"bookend/internal/state"
)

// slurmd replaces the program that lists Slurm's GPUs, in the place of the old one.
func (n *node) slurmd(script string) {
	n.Helper()
	n.put("slurm.d/new", "#!/bin/sh\necho asked >>"+n.in("asked")+"\n"+script, 0o755)
	must(n, os.Rename(n.in("slurm.d/new"), n.in("slurm.d/slurmd")))
}

// slurmConf replaces the two files of Slurm's.
func (n *node) slurmConf(gres string, lines ...string) {
	n.Helper()
	n.put("slurm.d/slurm.conf", "GresTypes=gpu\nSlurmdPidFile="+n.in("slurm.d/slurmd.pid")+"\nNodeName="+nodeName+
		" Gres="+gres+
		"\n", 0o644)
	n.put("slurm.d/gres.conf", strings.Join(lines, "\n")+"\n", 0o644)
}

// typed gives out GPUs of two types, of which slurmd tells which number is which: of type b first, or last.
func (n *node) typed(first string) {
	n.Helper()
	types := map[string][]string{"b": {"b", "a"}, "a": {"a", "b"}}[first]
	n.slurmConf("gpu:a:1,gpu:b:1", "Name=gpu Type="+types[0]+" File=/dev/nvidia0",
		"Name=gpu Type="+types[1]+" File=/dev/nvidia1")
}

// lists is a script of slurmd's that lists these minors.
func lists(minors ...int) string {
	var b strings.Builder
	for _, m := range minors {
		fmt.Fprintf(&b, "echo 'slurmd: Gres Name=gpu Type=a Count=1 Index=%d ID=7696487 File=/dev/nvidia%d "+
			"Links=(null) Flags=HAS_FILE' >&2\n", m, m)
	}
	return b.String()
}

// wasAsked requires how often slurmd was asked.
func (n *node) wasAsked(want int) {
	n.Helper()
	if got := strings.Count(n.get(n.in("asked")), "asked\n"); got != want {
		n.Errorf("slurmd was asked %d times, want %d", got, want)
	}
}

// given requires the GPU of a job on record, "" for none, and what told it.
func (n *node) given(id int, want string, source slurmconf.Source, why string) {
	n.Helper()
	run, got := n.run(id), ""
	for _, d := range run.Devices {
		got += string(d.Device.ID)[:12]
	}
	if got != want || run.Numbering.Source != source || !strings.Contains(run.Numbering.Why, why) {
		n.Errorf("%q by %+v, want %q by %s: %s", got, run.Numbering, want, source, why)
	}
}

// The GPUs of a node, as given tells them.
const first, second = "GPU-8f0b1c00", "GPU-8f0b1c11"

// Whatever becomes of slurmd -G, a job's GPU is the right one or none, and nothing drains. Package slurmd tries its
// answers.
func TestSlurmdTrouble(t *testing.T) {
	for name, tt := range map[string]struct {
		script string
		doubt  bool // without slurmd's word, which number is which
		want   string
		source slurmconf.Source
		why    string
	}{
		"lists":                   {lists(1, 0), true, second, slurmconf.BySlurmd, ""},
		"lists nothing, no doubt": {"exit 0\n", false, first, slurmconf.ByCount, ""},
		"garbage": {"head -c 100000 /dev/urandom >&2\n", true, "", slurmconf.Ambiguous,
			"slurmd -G"},
		"fails":                        {"echo no munge >&2; exit 1\n", true, "", slurmconf.Ambiguous, "no munge"},
		"hangs":                        {"exec sleep 1000\n", true, "", slurmconf.Ambiguous, "no answer within"},
		"hangs, and there is no doubt": {"exec sleep 1000\n", false, first, slurmconf.ByCount, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, "enforce")
			if tt.doubt {
				n.typed("b")
			}
			n.slurmd(tt.script)
			for _, h := range hooks {
				n.exits(0, h, newJob())
			}
			n.given(100, tt.want, tt.source, tt.why)
			if has(n.findings(epilog), code.Ambiguous) != (tt.source == slurmconf.Ambiguous) {
				t.Errorf("%+v", n.findings(epilog))
			}
			n.wasAsked(1)
		})
	}
}

// slurmd is asked again only where something that its answer depends on has changed, and not for a job whose GPU Slurm
// names. Many hooks may begin at once: who finds another at keeping the answer has nothing to tell.
func TestSlurmdIsAskedOnce(t *testing.T) {
	n := newNode(t, "enforce")
	n.slurmd(lists(0, 1))
	_ = n.store()
	release := n.lock(n.in("run/state/"+nodeName), "lock-shared")
	n.clean(prolog, numbered(99))
	release()
	for range 2 {
		n.clean(prolog, newJob())
		n.clean(epilog, newJob())
	}
	n.wasAsked(2)
	n.slurmConf("gpu:2", "Name=gpu File=/dev/nvidia[0-1] # the same")
	n.clean(prolog, newJob())
	n.wasAsked(3)
	n.hook(prolog, numbered(101).With("CUDA_VISIBLE_DEVICES", n.world.UUID(0)))
	n.wasAsked(3)
}

// lock holds a lock of the hooks', as another of them would.
func (n *node) lock(folder, name string) (release func()) {
	n.Helper()
	must(n, os.MkdirAll(folder, 0o700))
	release, err := safefile.Lock(filepath.Join(folder, name), time.Second, true)
	must(n, err)
	return release
}

// daemon runs a slurmd that hooks find by its PID file alone.
func (n *node) daemon() (stop func()) {
	n.Helper()
	path := n.in("bin/slurmd")
	must(n, os.MkdirAll(filepath.Dir(path), 0o755))
	n.executable(path, n.get("/bin/sleep"))
	c := exec.Command(path, "1000")
	must(n, c.Start())
	n.put("slurm.d/slurmd.pid", fmt.Sprintln(c.Process.Pid), 0o644)
	return func() { _ = c.Process.Kill(); _ = c.Wait(); must(n, os.Remove(path)) }
}

// While a slurmd -G lives that could not be killed no other is started, and the driver is still asked.
func TestSlurmdStuck(t *testing.T) {
	n := newNode(t, "enforce")
	start, err := strconv.ParseUint(statOf(os.Getpid())[19], 10, 64)
	must(t, err)
	// What cannot be killed cannot be made here: what matters is that it lives.
	must(t, n.store().AddReader(state.Reader{Stuck: state.Stuck{PID: os.Getpid(), StartTicks: start, Op: "slurmd -G"}},
		func(state.Stuck) bool { return true }))
	n.typed("b")
	n.slurmd(lists(1, 0))
	for _, at := range hooks {
		n.hook(at, newJob())
		if found := n.findings(at); has(found, code.Stuck) || !has(found, code.Ambiguous) {
			t.Errorf("%v: %+v", at, found)
		}
	}
	n.given(100, "", slurmconf.Ambiguous, "cannot be killed")
	n.wasAsked(0)
}

// What is on a GPU that Slurm does not give out is nobody's leftover: neither an end nor a health check says a word.
func TestGPUWithoutSlurm(t *testing.T) {
	n := newNode(t, "enforce")
	n.slurmConf("gpu:1", "Name=gpu File=/dev/nvidia1")
	n.slurmd(lists(1))
	n.leftover() // a desktop on the first GPU
	n.job(100)
	n.given(100, second, slurmconf.BySlurmd, "")
	n.checked("")
}

// inside has hooks run in a job's own cgroup.
func (n *node) inside(cgroup, allowed string) {
	n.Helper()
	proc := n.copiedProc()
	n.put("proc/self/cgroup", "0::/system.slice/n1_slurmstepd.scope/"+cgroup+"/step_extern/slurm\n", 0o644)
	if pid := strings.TrimSpace(n.get(n.in("slurm.d/slurmd.pid"))); pid != "" {
		must(n, os.Symlink("/proc/"+pid, filepath.Join(proc, pid)))
	}
	n.configure(func(c *conf) { c.proc, c.shards = proc, `"no", run_in_job_backend: `+allowed })
}

// Under PrologFlags=RunInJob hooks run in the job's own cgroup, by its id or, since 26.05, by its run's. As shipped no
// driver is asked from there and nothing is said to be wrong with the node; where the admin wants it the GPU is looked
// at, and what stays on it drains nothing.
func TestInsideTheJob(t *testing.T) {
	for _, cgroup := range []string{"job_100", "sCHNM7Y8WBK900"} {
		for _, allowed := range []bool{false, true} {
			t.Run(fmt.Sprint(cgroup, " ", allowed), func(t *testing.T) {
				t.Parallel()
				n := newNode(t, "enforce")
				defer n.daemon()()
				n.inside(cgroup, fmt.Sprint(allowed))
				n.clean(prolog, newJob())
				n.leftover()
				n.clean(epilog, newJob())
				r := n.run(100)
				for _, end := range append(r.Ends, *r.Start) {
					if looked := len(end.Snapshot.Readings) > 0; looked != allowed ||
						!has(end.Findings, code.RunInJob) {
						t.Errorf("looked: %v, want %v, found %s", looked, allowed, codes(end.Findings))
					}
				}
				not := "not checked: hook runs inside the job; your job is not"
				if codes(r.Start.Findings) != "BKD-RUNINJOB" || strings.Contains(r.Ends[0].Report, not) == allowed {
					t.Errorf("%+v, the job's user reads %q", r.Start.Findings, r.Ends[0].Report)
				}
				report, err := state.GetReport(n.conf.run, nodeName, slurm.Owner{ID: 100})
				if err != nil || !report.Clean || has(n.findings(epilog), code.Unread) {
					t.Errorf("the start's report: %+v, %v", report, err)
				}
			})
		}
	}
	n := newNode(t, "enforce") // a slurmd that cannot be found may have read other files than those that are there
	n.inside("job_100", "true")
	n.clean(prolog, newJob())
	n.given(100, "", slurmconf.Ambiguous, "which slurmd is running is not known")
}
