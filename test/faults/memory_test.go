package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"bookend/test/must"
)

// memory gives the node a /proc of its own without processes, whose memory is 100 GiB, and a Slurm that has it idle.
func (n *node) memory() {
	entries := must.Have(os.ReadDir("/proc"))(n)
	must.Do(n, os.Mkdir(n.in("proc"), 0o755))
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil && e.Name() != "meminfo" {
			must.Do(n, os.Symlink(filepath.Join("/proc", e.Name()), filepath.Join(n.in("proc"), e.Name())))
		}
	}
	n.takes(0)
	n.configure(func(c *conf) { c.proc = n.in("proc") })
	n.slurmHas("IDLE")
}

func (n *node) slurmHas(state string) {
	n.scontrol(fmt.Sprintf("echo NodeName=%s Arch=x86_64\necho '   State=%s ThreadsPerCore=1'", nodeName, state))
}

// takes takes so much shared memory, in GiB.
func (n *node) takes(gib int) {
	const text = "MemTotal: %d kB\nMemAvailable: %d kB\nShmem: %d kB\nSUnreclaim: 100 kB\nHugetlb: 0 kB\n"
	n.put("proc/meminfo", fmt.Sprintf(text, 100<<20, (90-gib)<<20, (1+gib)<<20), 0o644)
}

// runsProcess puts a process of root's into the node's /proc.
func (n *node) runsProcess(name, command, cgroup string) {
	must.Do(n, os.Mkdir(n.in("proc/77"), 0o755))
	n.put("proc/77/status", "Name:\t"+name+"\nUid:\t0\t0\t0\t0\nVmRSS:\t9 kB\n", 0o644)
	n.put("proc/77/cmdline", command, 0o644)
	n.put("proc/77/cgroup", cgroup, 0o644)
}

func (n *node) startReport(id int) string {
	n.exits(0, prolog, numbered(id))
	return n.ending(prolog, id).Report
}

// Memory that does not come back is found by the health check, and only while no job is on the node, nor may be; and only
// if Slurm says so too.
func TestHostMemory(t *testing.T) {
	const found = "BKD-HOSTMEM"
	each(t, "enforce", map[string]struct {
		before func(*node)
		want   string
	}{
		"no job":                      {func(*node) {}, found},
		"a job on record":             {func(n *node) { n.clean(prolog, bystanding()) }, ""},
		"a job that has ended":        {func(n *node) { n.job(7) }, found},
		"a step's daemon":             {func(n *node) { n.runsProcess("slurmstepd", "slurmstepd: [9.batch]", "0::/\n") }, ""},
		"the daemon of Slurm's scope": {func(n *node) { n.runsProcess("slurmstepd", "slurmstepd\x00infinity", "0::/\n") }, found},
		"a process in a job's cgroup": {func(n *node) { n.runsProcess("sh", "", "0::/system.slice/slurmstepd.scope/job_9/step_0/user\n") }, ""},
		"a job without a process":     {func(n *node) { n.slurmHas("MIXED") }, ""},
		"a job that completes":        {func(n *node) { n.slurmHas("IDLE+COMPLETING") }, ""},
		"a node that is drained":      {func(n *node) { n.slurmHas("IDLE+DRAIN") }, found},
		"Slurm does not answer":       {func(n *node) { n.scontrol("exit 1") }, ""},
		"not read":                    {func(n *node) { n.put("proc/meminfo", "MemTotal: 5 kB\n", 0o644) }, found + "*"},
		"a little":                    {func(n *node) { n.takes(4) }, ""},
		"it came back":                {func(n *node) { n.takes(20); n.checked(found); n.takes(4) }, ""},
		"the health check is to be mute": {func(n *node) {
			n.configure(func(c *conf) { c.extra = "policy: {health_check: {BKD-HOSTMEM: ignore}}\n" })
			n.slurmHas("IDLE")
		}, found},
	}, func(n *node, tt struct {
		before func(*node)
		want   string
	}) {
		n.memory()
		n.checked("")
		n.checked("")
		n.takes(20)
		tt.before(n)
		c := n.checked(tt.want)
		must.Be(n, "its exit", c.Verdict.Exit, 0)
		must.Be(n, "nothing drains", c.Verdict.Action == "drain", false)
		if tt.want == found {
			must.Be(n, "the finding", c.Findings[0].Observed, "20.0 GiB less host memory is available than earlier in this boot "+
				"(70.0 GiB of 100.0 GiB), without a job: shared memory 20.0 GiB (21.0 GiB in no file there: mapped, System V, or deleted and open)")
		}
	})
}

// The starts of the next jobs report it as long as it stands, without names, and so does the diagnosis of a shortage.
func TestHostMemoryAtTheStart(t *testing.T) {
	n := parallel(t, "observe")
	n.memory()
	n.checked("")
	n.checked("")
	must.Be(t, "before", n.startReport(7), "")
	n.clean(epilog, numbered(7))
	n.takes(20)
	n.checked("BKD-HOSTMEM")
	const want = "bookend: WARNING: " + nodeName + ": 20.0 GiB of the node's 100.0 GiB of memory were taken while no job was on it: " +
		"shared memory 20.0 GiB\nbookend:   Too little is left? sbatch --exclude=" + nodeName + "\n"
	must.Be(t, "after", n.startReport(8), want)
	start := n.ending(prolog, 8)
	must.Not(t, codes(start.Findings) != "BKD-HOSTMEM" || start.Verdict.Exit != 0, "%+v", start)
	n.exits(0, epilog, numbered(8))
	must.Not(t, strings.Contains(n.endOf(8).Report, "memory were taken"), "%s", n.endOf(8).Report)
	n.exits(0, prolog, bystanding())
	must.Be(t, "next to another job, whose memory it may be", n.startReport(11), "")
	n.exits(0, epilog, numbered(11))
	n.exits(0, epilog, bystanding())
	n.takes(2)
	must.Be(t, "once it is back", n.startReport(9), "")
	n.clean(epilog, numbered(9))
	n.checked("")
	n.takes(20)
	must.Be(t, "taken by what no check has seen", n.startReport(10), "")
}
