package faults

import (
	"crypto/sha256"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"bookend/internal/attrib"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/test/fakegpu"
)

// patient is an epilog that watches long enough for what is said to be certain.
func patient(c *conf) { c.settle = "{max: 3s, flat: 800ms}" }

// It takes memory that is certainly a leftover to drain: what a service of the node holds counts for nothing, nor does
// what it may hold. Whose a process is that belongs to no job's cgroup is doubted as soon as another live job could own
// it.
func TestWhatDrains(t *testing.T) {
	stranger := func(uid int, env ...string) func(*node) {
		return func(n *node) { n.Helper(); n.holder(uid, env, "--mib", "2048") }
	}
	tell(t, map[string]story{
		"an orphan": {during: func(n *node) { n.leftover() }, finds: "BKD-ORPHAN", exit: 10},
		"orphan beside the service": {during: func(n *node) { n.service(); n.leftover() },
			finds: "BKD-ORPHAN BKD-STRAY?", exit: 10},
		"much of no one": {during: func(n *node) { n.extra("700") }, finds: "BKD-RESIDUE", exit: 11},
		"under a PID that went": {during: func(n *node) { must(n, n.leftover("--fork-hold").Kill()) },
			finds: "BKD-PHANTOM", exit: 12},
		"another user's, of a job without a record": {during: stranger(60000, "SLURM_JOB_ID=777"), finds: "BKD-STRAY?*",
			reads: []string{"Held by a process that is not yours"}},
		"in a container, beside a live job": {finds: "BKD-STRAY?", during: func(n *node) {
			n.move(n.holder(1500, nil, "--mib", "2048"), fmt.Sprintf("docker-%x.scope", sha256.Sum256([]byte(n.dir))),
				"")
		}},
	})
}

// A MIG instance is a device of its own: what is on it is its job's, what is on its sibling is nobody's here, and as
// no driver's word on one was ever measured nothing drains. One that is gone at the job's end is no leak.
func TestInstances(t *testing.T) {
	on := func(instance int) func(*node) {
		return func(n *node) { must(n, n.world.Place(0, instance, n.leftover().PID)) }
	}
	of := func(s story) story {
		s.options = []fakegpu.Option{fakegpu.Instance(0, 0, 1, 0, 40_000), fakegpu.Instance(0, 1, 2, 0, 40_000)}
		s.job = func(n *node) job { return n.onInstances(0) }
		return s
	}
	tell(t, map[string]story{
		"on the job's instance": of(story{during: on(0), finds: "BKD-ORPHAN?", check: func(n *node) {
			if f := n.findings(epilog)[0]; f.GPU != gpu.ID(n.world.InstanceUUID(0, 0)) {
				n.Errorf("%+v", f)
			}
		}}),
		"on its sibling": of(story{during: on(1)}),
		"vanishes":       of(story{during: func(n *node) { must(n, n.world.Destroy(0, 0)) }, finds: "BKD-MISSING"}),
	})
}

// onInstances is job 100 with MIG instances, as Slurm gives them with AutoDetect=nvml.
func (n *node) onInstances(indexes ...int) job {
	var numbers, ids []string
	for _, i := range indexes {
		numbers, ids = append(numbers, fmt.Sprint(i)), append(ids, n.world.InstanceUUID(0, i))
	}
	list := strings.Join(numbers, ",")
	return newJob().On(list).With("CUDA_VISIBLE_DEVICES", strings.Join(ids, ","))
}

// A service of the node with a little memory on a GPU is part of the node from the first start that sees it: nobody
// is told, later starts do not wait for it, and a leak beside it drains as on an idle GPU.
func TestResidentService(t *testing.T) {
	n := newNode(t, "enforce")
	n.configure(patient)
	n.set("context_mib", "33") // a display's client has no CUDA context
	service := n.holder(0, nil, "--mib", "16", "--list", "graphics")
	n.set("context_mib", "527")
	n.move(service, filepath.Base(n.dir)+"-monitor.service", "")
	n.job(101)
	n.clean(prolog, newJob())
	first, second := n.startOf(101), n.startOf(100)
	if len(first.Findings)+len(second.Findings) != 0 {
		t.Errorf("findings %+v, then %+v", first.Findings, second.Findings)
	}
	for id, c := range second.Curves {
		if c.State != "clean" || c.Looks != 1 {
			t.Errorf("the second start: GPU %s %+v, first %+v", id, c, first.Curves[id])
		}
	}
	n.leftover()
	if n.exits(10, epilog, newJob()); codes(n.findings(epilog)) != "BKD-ORPHAN" {
		t.Errorf("%+v", n.findings(epilog))
	}
}

// on switches clean-up on.
const on = "clean_up: {enabled: true, grace: 300ms}\n"

// leftBehind are processes that a job leaves, and what clean-up makes of them.
var leftBehind = map[string]struct {
	extra  string
	job    string // whose cgroup the process is in; none: exclusive use alone blames the job
	left   bool   // it has left that since, and a health check has seen it there
	args   []string
	ended  finding.Outcome
	finds  string
	exit   int
	proven attrib.Level
}{
	"off by default":  {job: "100", finds: "BKD-ORPHAN", exit: 10, proven: attrib.ByCgroup},
	"off, seen there": {job: "100", left: true, finds: "BKD-ORPHAN", exit: 10, proven: attrib.BySighting},
	"proven by its cgroup": {extra: on, job: "100", ended: finding.ByTerm, finds: "BKD-ENDED",
		proven: attrib.ByCgroup},
	"seen there": {extra: on, job: "100", left: true, ended: finding.ByTerm, finds: "BKD-ENDED",
		proven: attrib.BySighting},
	"stopped": {extra: on, job: "100", args: []string{"--stop"}, ended: finding.ByKill,
		finds: "BKD-ENDED", proven: attrib.ByCgroup},
	"not proven":              {extra: on, finds: "BKD-ORPHAN", exit: 10, proven: attrib.ByExclusive},
	"of a job without record": {extra: on, job: "999", finds: "BKD-FOREIGN?*"},
}

// Clean-up ends what a cgroup proves to be the job's, or what a health check saw in the job's cgroup, looks again,
// and touches nothing else.
func TestCleanUp(t *testing.T) {
	for name, tt := range leftBehind {
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
