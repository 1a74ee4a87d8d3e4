package faults

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"bookend/internal/catalog"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/internal/state"
	"bookend/test/must"
	"bookend/test/rig"
)

// lists is a script of slurmd's that lists these minors.
func lists(minors ...int) string {
	var b strings.Builder
	for _, m := range minors {
		fmt.Fprintf(&b, "echo 'slurmd: Gres Name=gpu Type=a Count=1 Index=%d ID=7696487 File=/dev/nvidia%d "+
			"Links=(null) Flags=HAS_FILE' >&2\n", m, m)
	}
	return b.String()
}

// given requires the GPU of job 100 on record, "" for none, and what told it.
func (n *node) given(want string, source record.Source, why string) {
	run, got := n.run(100), ""
	for _, d := range run.Devices {
		got += string(d.Device.ID)[:12]
	}
	must.Not(n, got != want || run.Numbering.Source != source || !strings.Contains(run.Numbering.Why, why),
		"%q by %+v, want %q by %s: %s", got, run.Numbering, want, source, why)
}

// second is the second GPU of a node, as given tells it.
const second = "GPU-8f0b1c11"

// GPUs of two types are given out, of which slurmd tells which number is which. Whatever becomes of slurmd -G, a job's GPU
// is the right one or none, and nothing drains. Package slurmcmd tries its answers. While one lives that could not be
// killed no other is started, and the driver is still asked.
func TestSlurmdTrouble(t *testing.T) {
	for name, tt := range map[string]struct {
		script string
		want   string
		source record.Source
		why    string
	}{
		"lists": {lists(1, 0), second, record.BySlurmd, ""},
		"fails": {"echo no munge >&2; exit 1\n", "", record.Ambiguous, "no munge"},
		"hangs": {"exec sleep 1000\n", "", record.Ambiguous, "no answer within"},
		"stuck": {lists(1, 0), "", record.Ambiguous, "cannot be killed"},
	} {
		t.Run(name, func(t *testing.T) {
			n := parallel(t, "enforce")
			n.configure(func(c *conf) { c.tight = name == "hangs" })
			n.put("slurm.d/slurm.conf", fmt.Sprintf("GresTypes=gpu\nSlurmdPidFile=%s\nNodeName=%s Gres=gpu:a:1,gpu:b:1\n",
				n.in("slurm.d/slurmd.pid"), nodeName), 0o644)
			n.put("slurm.d/gres.conf", "Name=gpu Type=b File=/dev/nvidia0\nName=gpu Type=a File=/dev/nvidia1\n", 0o644)
			n.script("slurm.d/slurmd", "[ \"$1\" = -V ] || echo asked >>"+n.in("asked")+"\n"+tt.script)
			asked := 1
			if name == "stuck" { // what cannot be killed cannot be made here: what matters is that it lives
				self := rig.ReadProcess(os.Getpid())
				stuck := state.Stuck{PID: self.PID, StartTicks: self.Start, Op: "slurmd -G"}
				must.Do(t, state.StuckReaders.Add(n.store(), stuck, func(int, uint64) bool { return true }))
				asked = 0
			}
			for _, h := range hooks {
				n.exits(0, h, newJob())
			}
			n.given(tt.want, tt.source, tt.why)
			found := n.findings(epilog)
			must.Not(t, has(found, catalog.Ambiguous) != (tt.source == record.Ambiguous) || has(found, catalog.Stuck),
				"%+v", found)
			if got := strings.Count(n.get(n.in("asked")), "asked\n"); got != asked { // by the start alone
				n.Errorf("slurmd was asked %d times, want %d", got, asked)
			}
		})
	}
}

// daemon runs a slurmd that hooks find by its PID file alone.
func (n *node) daemon() {
	must.Do(n, os.MkdirAll(n.in("bin"), 0o755))
	c := exec.Command(n.executable("bin/slurmd", n.get("/bin/sleep")), "1000")
	must.Do(n, c.Start())
	n.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	n.put("slurm.d/slurmd.pid", fmt.Sprintln(c.Process.Pid), 0o644)
	must.Do(n, os.Symlink(fmt.Sprint("/proc/", c.Process.Pid), n.in("proc/"+strconv.Itoa(c.Process.Pid))))
}

// Under PrologFlags=RunInJob hooks run in the job's own cgroup, by its id or, since 26.05, by its run's. As shipped no
// driver is asked from there and nothing is said to be wrong with the node; where the admin wants it the GPU is looked
// at, and what stays on it drains nothing. A slurmd that cannot be found may have read other files than those that are
// there.
func TestInsideTheJob(t *testing.T) {
	for cgroup, allowed := range map[string]bool{"job_100": false, "sCHNM7Y8WBK900": true, "job_101": true} {
		t.Run(cgroup, func(t *testing.T) {
			n := parallel(t, "enforce")
			for _, name := range []string{"self", "sys/kernel/random"} {
				must.Do(t, os.MkdirAll(n.in("proc/"+name), 0o755))
			}
			const bootID = "/sys/kernel/random/boot_id"
			n.put("proc"+bootID, n.get("/proc"+bootID), 0o644)
			n.put("proc/self/cgroup", "0::/system.slice/n1_slurmstepd.scope/"+cgroup+"/step_extern/slurm\n", 0o644)
			n.ownPrograms()
			n.configure(func(c *conf) {
				c.proc, c.shards = n.in("proc"), fmt.Sprint(`"no", run_in_job_backend: `, allowed)
				c.record = "1s"
			})
			if cgroup == "job_101" {
				n.exits(0, prolog, newJob())
				n.given("", record.Ambiguous, "which slurmd is running is not known")
				return
			}
			n.daemon()
			n.clean(n.own(prolog), newJob())
			must.Not(t, len(rig.Recorders(n.dir)) > 0, "a recorder in the job: Slurm waits for it")
			n.leftover()
			n.clean(epilog, newJob())
			r := n.run(100)
			for _, end := range append(r.Ends, *r.Start) {
				if looked := len(end.Snapshot.Readings) > 0; looked != allowed || !has(end.Findings, catalog.RunInJob) {
					t.Errorf("looked: %v, want %v, found %s", looked, allowed, codes(end.Findings))
				}
			}
			not := "not checked: hook runs inside the job; your job is not"
			must.Not(t, codes(r.Start.Findings) != "BKD-RUNINJOB" || strings.Contains(r.Ends[0].Report, not) == allowed,
				"%+v, the job's user reads %q", r.Start.Findings, r.Ends[0].Report)
			report, err := state.Users{Run: n.conf.run, Node: nodeName}.Report(user, slurm.Owner{ID: 100})
			must.Not(t, err != nil || !report.Clean || has(n.findings(epilog), catalog.Unread),
				"the start's report: %+v, %v", report, err)
		})
	}
}

// A hook asks the driver for the GPUs that the last one found. Where those are not the job's any more it asks again: the
// record is as if it had never asked for others.
func TestForeseenWrongly(t *testing.T) {
	each(t, "enforce", map[string]func(n *node){
		"a GPU has another minor": func(n *node) {
			n.set("gpu0.minor", "1")
			n.set("gpu1.minor", "0")
		},
		"a GPU was swapped for another": func(n *node) {
			n.set("gpu0.uuid", n.world.UUID(0)[:30]+"c0ffee")
		},
		"the driver was loaded anew": func(n *node) { n.set("driver_version", "580.160.01") },
		"the driver was loaded anew, and counts otherwise": func(n *node) {
			n.set("gpu0.minor", "1")
			n.set("gpu1.minor", "0")
			n.set("driver_version", "580.160.01")
		},
	}, func(n *node, change func(n *node)) {
		n.job(99)
		change(n)
		n.hook(prolog, newJob())
		want := n.world.UUID(0)
		if n.world.Get("gpu0.minor") != "0" {
			want = n.world.UUID(1)
		}
		start := n.run(100)
		if len(start.Devices) != 1 || string(start.Devices[0].Device.ID) != want || len(start.Start.Findings) > 0 {
			n.Errorf("looked at %+v and found %+v, want %s alone\n%s", start.Devices, start.Start.Findings, want, n.log())
		}
		if driver := n.world.Get("driver_version"); start.Epoch.Driver != driver {
			n.Errorf("begun in %+v, want driver %s", start.Epoch, driver)
		}
		n.hook(epilog, newJob())
		end := n.endOf(100)
		must.Not(n, len(end.Findings) > 0 || len(end.Snapshot.Readings) != 1 ||
			string(end.Snapshot.Readings[0].Device.ID) != want, "at the end %+v, want %s alone", end, want)
	})
}
