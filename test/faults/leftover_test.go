package faults

import (
	"crypto/sha256"
	"fmt"
	"testing"

	"bookend/internal/gpu"
	"bookend/test/fakegpu"
	"bookend/test/must"
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
	tell(t, map[string]story{
		"orphan beside the service": {during: func(n *node) { n.holder(0, nil, "--mib", "2048"); n.leftover() },
			finds: "BKD-ORPHAN BKD-STRAY?", exit: 10},
		"another user's, of a job without a record": {finds: "BKD-STRAY?*",
			during: func(n *node) { n.holder(60000, []string{"SLURM_JOB_ID=777"}, "--mib", "2048") },
			reads:  []string{"Held by a process that is not yours"}},
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

// onInstance is job 100 with the first MIG instance, as Slurm gives it with AutoDetect=nvml.
func (n *node) onInstance() job {
	return newJob().On("0").With("CUDA_VISIBLE_DEVICES", n.world.InstanceUUID(0, 0))
}

// The look's own backend ends while its answer counts: who has the GPU open is asked only once it has.
func TestOwnBackendIsNoHolder(t *testing.T) {
	t.Parallel()
	n := newNode(t, "enforce")
	n.clean(prolog, newJob())
	n.set("gpu0.extra_mib", "2048")
	n.configure(func(c *conf) {
		c.backend = n.script("backend", "exec 9<"+n.world.Dev()+"/nvidia0\n"+program("bookend-gpu")+"\nexec sleep 1")
	})
	n.exits(11, epilog, newJob())
}
