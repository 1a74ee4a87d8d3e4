package faults

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"bookend/internal/gpu"
	"bookend/test/fakegpu"
	"bookend/test/must"
	"bookend/test/rig"
)

// It takes memory that is certainly a leftover to drain: what a service of the node holds counts for nothing, nor does
// what it may hold. Whose a process is that belongs to no job's cgroup is doubted as soon as another live job could own
// it. A MIG instance is a device of its own: what is on it is its job's, what is on its sibling is nobody's here, and
// as no driver's word on one was ever measured nothing drains. One that is gone at the job's end is no leak.
func TestWhatDrains(t *testing.T) {
	instance := func(during func(*node), finds string, check func(*node)) story {
		return story{during: during, finds: finds, check: check, job: (*node).onInstance, options: []fakegpu.Option{
			fakegpu.Instance(0, 0, 1, 0, 40_000), fakegpu.Instance(0, 1, 2, 0, 40_000)}}
	}
	on := func(instance int) func(*node) {
		return func(n *node) { must.Do(n, n.world.Place(0, instance, n.leftover().PID)) }
	}
	own := 1_000_000 + 2*os.Getpid() // job ids: a step shows in the /proc of every node here
	elsewhere, here := fmt.Sprint(own), fmt.Sprint(own+1)
	tell(t, map[string]story{
		"orphan beside the service": {during: func(n *node) { n.holder(0, nil, "--mib", "2048"); n.leftover() },
			finds: "BKD-ORPHAN BKD-STRAY?", exit: 10},
		"asleep in the kernel": {finds: "BKD-ORPHAN", exit: 10,
			during: func(n *node) { n.inCgroup(n.leftover("--vfork"), "100") }},
		"another user's, with an invented job": {finds: "BKD-STRAY", exit: 13,
			during: func(n *node) { n.holder(60000, []string{"SLURM_JOB_ID=" + elsewhere}, "--mib", "2048") },
			reads:  []string{"Held by a process that is not yours"}},
		"another user's, whose job has a step here": {finds: "BKD-STRAY?*", during: func(n *node) {
			n.step(here, 60000)
			n.holder(60000, []string{"SLURM_JOB_ID=" + here}, "--mib", "2048")
		}},
		"under the PID of another": {during: (*node).reusedPID, finds: "BKD-PHANTOM", exit: 12, check: func(n *node) {
			f := n.findings(epilog)[0]
			must.Not(n, !f.Holder.Reused || len(f.Candidates) != 1 || f.Candidates[0].PID == f.Holder.PID,
				"%+v, held by %+v", f, f.Candidates)
		}},
		"in a container, beside a live job": {finds: "BKD-STRAY?", during: func(n *node) {
			n.move(n.holder(1500, nil, "--mib", "2048"), fmt.Sprintf("docker-%x.scope", sha256.Sum256([]byte(n.dir))),
				"")
		}},
		"on the job's instance": instance(on(0), "BKD-ORPHAN?", func(n *node) {
			if f := n.findings(epilog)[0]; f.GPU != gpu.ID(n.world.InstanceUUID(0, 0)) {
				n.Errorf("%+v", f)
			}
		}),
		"on its sibling":    instance(on(1), "", nil),
		"instance vanishes": instance(func(n *node) { must.Do(n, n.world.Destroy(0, 0)) }, "BKD-MISSING", nil),
	})
}

// step runs what /proc shows as a slurmstepd of a job: root's, of that name, with a process of the user's as its child.
func (n *node) step(job string, uid int) {
	daemon := n.in("slurmstepd")
	must.Do(n, os.WriteFile(daemon, must.Have(os.ReadFile("/bin/sh"))(n), 0o755))
	cmd := exec.Command(daemon)
	cmd.Args = []string{"slurmstepd: [" + job + ".batch]", "-c",
		fmt.Sprintf("setpriv --reuid %d sh -c 'echo ready; exec sleep infinity' & wait", uid)}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	ready := must.Have(cmd.StdoutPipe())(n)
	must.Do(n, cmd.Start())
	n.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); _ = cmd.Wait() })
	must.Have(bufio.NewReader(ready).ReadString('\n'))(n)
}

// reusedPID has memory of the job listed under the PID of a process of another user that has no GPU open.
func (n *node) reusedPID() {
	sleeps := exec.Command("sleep", "infinity")
	sleeps.SysProcAttr = rig.As(60000)
	must.Do(n, sleeps.Start())
	n.Cleanup(func() { _ = sleeps.Process.Kill(); _ = sleeps.Wait() })
	pid := func(of int) []byte { return fmt.Appendf(nil, "pid %010d\n", of) }
	files := must.Have(filepath.Glob(filepath.Join(n.world.Dir(), "alloc", fmt.Sprintf("%d-*", n.leftover().PID))))(n)
	ledger := must.Have(os.ReadFile(files[0]))(n)
	own := must.Have(n.world.Holdings())(n)[0].PID
	listed := bytes.Replace(ledger, pid(own), pid(sleeps.Process.Pid), 1)
	must.Do(n, os.WriteFile(files[0], listed, 0o644))
}

// onInstance is job 100 with the first MIG instance, as Slurm gives it with AutoDetect=nvml.
func (n *node) onInstance() job {
	return newJob().On("0").With("CUDA_VISIBLE_DEVICES", n.world.InstanceUUID(0, 0))
}

// The look's own backend ends while its answer counts: who has the GPU open is asked only once it has.
func TestOwnBackendIsNoHolder(t *testing.T) {
	must.SeeAll(t)
	n := parallel(t, "enforce")
	n.clean(prolog, newJob())
	n.set("gpu0.extra_mib", "2048")
	n.configure(func(c *conf) {
		c.backend = n.script("backend", "exec 9<"+n.world.Dev()+"/nvidia0\n"+program("bookend-gpu")+"\nexec sleep 1")
	})
	n.exits(11, epilog, newJob())
}
