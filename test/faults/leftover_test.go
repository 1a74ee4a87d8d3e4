package faults

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"bookend/internal/attrib"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/test/fakegpu"
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
		return func(n *node) { must(n, n.world.Place(0, instance, n.leftover().PID)) }
	}
	tell(t, map[string]story{
		"orphan beside the service": {during: func(n *node) { n.holder(0, nil, "--mib", "2048"); n.leftover() },
			finds: "BKD-ORPHAN BKD-STRAY?", exit: 10},
		"much of no one": {during: set("gpu0.extra_mib", "700"), finds: "BKD-RESIDUE", exit: 11},
		"under a PID that went": {during: func(n *node) { must(n, n.leftover("--fork-hold").Kill()) },
			finds: "BKD-PHANTOM", exit: 12},
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
		"instance vanishes": instance(func(n *node) { must(n, n.world.Destroy(0, 0)) }, "BKD-MISSING", nil),
	})
}

// onInstance is job 100 with the first MIG instance, as Slurm gives it with AutoDetect=nvml.
func (n *node) onInstance() job {
	return newJob().On("0").With("CUDA_VISIBLE_DEVICES", n.world.InstanceUUID(0, 0))
}

// Clean-up, where it is on, ends what a cgroup proves to be the job's, or what a health check saw in the job's cgroup,
// looks again, and touches nothing else.
func TestCleanUp(t *testing.T) {
	const on = "clean_up: {enabled: true, grace: 300ms}\n"
	for name, tt := range map[string]struct {
		extra  string
		job    string // whose cgroup the process is in; none: exclusive use alone blames the job
		left   bool   // it has left that since, and a health check has seen it there
		args   []string
		ended  finding.Outcome
		finds  string
		exit   int
		proven attrib.Level
	}{
		"off by default": {job: "100", finds: "BKD-ORPHAN", exit: 10, proven: attrib.ByCgroup},
		"seen there": {extra: on, job: "100", left: true, ended: finding.ByTerm, finds: "BKD-ENDED",
			proven: attrib.BySighting},
		"stopped": {extra: on, job: "100", args: []string{"--stop"}, ended: finding.ByKill,
			finds: "BKD-ENDED", proven: attrib.ByCgroup},
		"not proven":              {extra: on, finds: "BKD-ORPHAN", exit: 10, proven: attrib.ByExclusive},
		"of a job without record": {extra: on, job: "999", finds: "BKD-FOREIGN?*"},
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
			if tt.left {
				n.hook(healthcheck, bySlurm)
				n.escape(p)
			}
			n.exits(tt.exit, epilog, newJob())
			found := n.findings(epilog)
			if codes(found) != tt.finds {
				t.Fatalf("%q, want %q: %+v", codes(found), tt.finds, found)
			}
			f := found[0]
			if tt.proven != "" && (f.Owner == nil || f.Owner.Level != tt.proven || f.Holder.PID != p.PID) ||
				f.Ended != tt.ended {
				t.Errorf("%+v, want %q by %s", f, tt.ended, tt.proven)
			}
			told := strings.Contains(n.endOf(100).Report, "of your job was still on GPU 0 and was ended")
			if told != (tt.ended != "") || gone(p.PID) != told {
				t.Errorf("process %d %q, the user reads:\n%s", p.PID, stateOf(p.PID), n.endOf(100).Report)
			}
		})
	}
}
