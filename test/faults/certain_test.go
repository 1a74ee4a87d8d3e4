package faults

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/test/fakegpu"
)

// holder is a process on the first card.
func (n *node) holder(uid uint32, env []string, args ...string) *fakegpu.Program {
	n.Helper()
	p, err := n.world.StartAs(&syscall.Credential{Uid: uid, Gid: uid}, env, append([]string{"alloc"}, args...)...)
	must(n, err)
	n.Cleanup(p.End)
	return p
}

// A call that fails once proves nothing: the next look decides. A card that stays lost drains.
func TestLostForALook(t *testing.T) {
	for _, call := range []string{"nvmlDeviceGetHandleByPciBusId_v2", "nvmlDeviceGetMemoryInfo_v2"} {
		for rule, exit := range map[string]int{"rc 15 times 1": 0, "rc 16 times 1": 0, "rc 15": 20} {
			t.Run(call+" "+rule, func(t *testing.T) {
				t.Parallel()
				for _, h := range hooks {
					n := newNode(t, "enforce")
					if h == epilog {
						n.clean(prolog, newJob())
					}
					must(t, n.world.Set("on."+call+".gpu0", rule))
					o := n.hook(h, newJob())
					if found := n.findings(h); o.exit != exit || (len(found) != 0) != (exit != 0) {
						t.Errorf("%s: %v %+v", h.program, o, found)
					}
				}
			})
		}
	}
}

// A card that is lost in the last looks only may answer again a moment later.
func TestLostAtTheEnd(t *testing.T) {
	n := newNode(t, "enforce")
	n.configure(func(c *conf) { c.settle = "{max: 1s, flat: 800ms}" })
	n.clean(prolog, newJob())
	n.leftover() // something to watch
	must(t, n.world.Set("on.nvmlDeviceGetMemoryInfo_v2.gpu0", "rc 15 after 3"))
	o := n.hook(epilog, newJob())
	if found := n.findings(epilog); o.exit != 0 || len(found) != 1 || len(found[0].Doubts) == 0 {
		t.Errorf("%v %+v", o, found)
	}
	if len(lines(n.log(), "BKD-LOST", `doubt="BKD-LOST: seen in `)) != 1 { // a drain that was withheld leaves a trace
		t.Errorf("the log does not say why nothing was drained:\n%s", n.log())
	}
}

// The look that confirms what is on one card says of another, which was clean, that it is lost: once.
func TestLostInTheConfirmingLook(t *testing.T) {
	n := newNode(t, "enforce")
	two := newJob().with("SLURM_JOB_GPUS", "0,1", "CUDA_VISIBLE_DEVICES", "0,1", "GPU_DEVICE_ORDINAL", "0,1")
	n.configure(func(c *conf) { c.settle = "{max: 3s, flat: 800ms}" })
	n.clean(prolog, two)
	n.service() // of root, on card 0: something to confirm, nothing to drain for
	text := fmt.Sprintf("[ ! -e %[1]s ] || echo 'on.nvmlDeviceGetMemoryInfo_v2.gpu1 = rc 15 times 1' >>%[2]s\n:>%[1]s\nexec %[3]s",
		n.in("asked"), filepath.Join(n.world.Dir(), "world.conf"), n.conf.backend)
	n.configure(func(c *conf) { c.backend = n.script("backend", text) })
	o := n.hook(epilog, two)
	found := n.findings(epilog)
	if o.exit != 0 || len(found) != 2 || found[1].Code != code.Lost || len(found[1].Doubts) == 0 {
		t.Errorf("%v %+v", o, found)
	}
}

// It takes memory that is certainly a leftover to drain: what a service of the node holds counts for nothing,
// nor does what it may hold.
func TestOwnBytesOfAFinding(t *testing.T) {
	for name, tt := range map[string]struct {
		before, during func(n *node)
		exit           int
		finds          []code.Code
		certain        code.Code // the one without doubts
	}{
		"service and a little": {
			during: func(n *node) { n.service(); n.extra("40") },
			finds:  []code.Code{code.Stray, code.Residue},
		},
		"service and much": {
			during: func(n *node) { n.service(); n.extra("700") },
			finds:  []code.Code{code.Stray, code.Residue},
		},
		"service and a small orphan": {
			before: func(n *node) { must(n, n.world.Set("context_mib", "100")) },
			during: func(n *node) { n.service(); n.holder(user, nil, "--mib", "100") },
			finds:  []code.Code{code.Stray, code.Orphan},
		},
		"orphan beside the service": {
			during: func(n *node) { n.service(); n.leftover() },
			finds:  []code.Code{code.Stray, code.Orphan}, certain: code.Orphan, exit: 10,
		},
		"much of nobody": {
			during: func(n *node) { n.extra("700") },
			finds:  []code.Code{code.Residue}, certain: code.Residue, exit: 11,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, "enforce")
			if tt.before != nil {
				tt.before(n)
			}
			if o := n.hook(prolog, newJob()); o.exit != 0 {
				t.Fatal(o)
			}
			tt.during(n)
			o := n.hook(epilog, newJob())
			found := n.findings(epilog)
			if o.exit != tt.exit || len(found) != len(tt.finds) {
				t.Errorf("%v %+v", o, found)
			}
			for _, c := range tt.finds {
				i := slices.IndexFunc(found, func(f finding.Finding) bool { return f.Code == c })
				if i < 0 || (len(found[i].Doubts) == 0) != (c == tt.certain) {
					t.Errorf("%s: %+v", c, found)
				}
			}
		})
	}
}

// service is a process of root's on the first card.
func (n *node) service() { n.Helper(); n.holder(0, nil, "--mib", "2048") }

// extra is memory of the first card, in MiB, that nobody who could be listed holds.
func (n *node) extra(mib string) { n.Helper(); must(n, n.world.Set("gpu0.extra_mib", mib)) }

// A process may end at any moment of a hook. What changes then is on its way back: nobody's leftover.
func TestLeftoverEndsMeanwhile(t *testing.T) {
	// The shell waits until no more than a zombie is left.
	const kill = `kill -9 %[1]d; while read -r line </proc/%[1]d/stat && case "$line" in *") Z "*) false;; esac; do :; done` + "\n"
	for name, tt := range map[string]struct {
		script string // around the backend
		keeper bool   // the memory takes as long as a driver's teardown to go
	}{
		"after the last look":  {"%[2]s; exit=$?\nif [ ! -e %[3]s ]; then :>%[3]s\n" + kill + "fi\nexit $exit", true},
		"after /proc was read": {"if [ -e %[3]s ]; then\n" + kill + "fi\n:>%[3]s\nexec %[2]s", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, "enforce")
			if tt.keeper {
				must(t, n.world.StartKeeper())
			}
			n.configure(func(c *conf) { c.settle = "{max: 3s, flat: 1s}" }) // longer than any teardown
			n.clean(prolog, newJob())
			orphan := n.leftover()
			text := fmt.Sprintf(tt.script, orphan.PID, n.conf.backend, n.in("asked"))
			n.configure(func(c *conf) { c.backend = n.script("backend", "exec 2>/dev/null\n"+text) })
			o := n.hook(epilog, newJob())
			for _, f := range n.findings(epilog) {
				if f.Code != code.Moving {
					t.Errorf("%+v", f)
				}
			}
			if o.exit != 0 || stateOf(orphan.PID) != "Z" {
				t.Errorf("%v, holder: %q\n%s", o, stateOf(orphan.PID), n.log())
			}
		})
	}
}

// A job's process is named, and drains, whatever else moves on its GPU meanwhile.
func TestLeftoverBesideWhatMoves(t *testing.T) {
	t.Parallel()
	n := newNode(t, "enforce")
	n.configure(func(c *conf) { c.settle, c.startSettle = "{max: 3s, flat: 2s}", "{max: 3s, flat: 2s}" })
	n.clean(prolog, newJob())
	p := n.leftover()
	n.inCgroup(p, "100")
	must(t, n.world.Set("gpu0.moving_mib", "64"))
	o := n.hook(epilog, newJob())
	n.named(n.findings(epilog), code.Orphan, p)
	if o.exit != 10 {
		t.Errorf("%v\n%s", o, n.log())
	}
	n.named(n.check().Findings, code.Orphan, p)
	next := newJob().with("SLURM_JOB_ID", "101", "SLURM_JOBID", "101")
	n.hook(prolog, next)
	n.named(n.run(101).Start.Findings, code.Dirty, p)
}

// named requires one finding about a process of job 100, without a doubt.
func (n *node) named(found []finding.Finding, c code.Code, p *fakegpu.Program) {
	n.Helper()
	about := func(f finding.Finding) bool {
		return f.Code == c && f.Holder.PID == p.PID && f.Owner != nil && f.Owner.Job == 100 && len(f.Doubts) == 0
	}
	if !slices.ContainsFunc(found, about) {
		n.Errorf("no %s without doubt about process %d: %+v", c, p.PID, found)
	}
}

// Memory that stays under a PID that stays gone is a leftover all the same.
func TestPhantomStays(t *testing.T) {
	n := newNode(t, "enforce")
	n.clean(prolog, newJob())
	must(t, n.leftover("--fork-hold").Kill())
	o := n.hook(epilog, newJob())
	if found := n.findings(epilog); o.exit != 12 || len(found) != 1 || found[0].Code != code.Phantom {
		t.Errorf("%v %+v", o, found)
	}
}

// The environment of a process names a job that this node knows nothing of, such as one without GPUs: whoever
// else could be blamed, that one may be live.
func TestJobWithoutRecord(t *testing.T) {
	for name, tt := range map[string]struct {
		uid    uint32
		finds  code.Code
		doubts bool // else: unknown
		report string
	}{
		"another user's":  {bystander, code.Stray, false, "held by a process that is not yours"},
		"the same user's": {user, code.Orphan, true, "one of several jobs"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, "enforce")
			n.clean(prolog, newJob())
			n.holder(tt.uid, []string{"SLURM_JOB_ID=777"}, "--mib", "2048")
			o := n.hook(epilog, newJob())
			found := n.findings(epilog)
			if o.exit != 0 || len(found) != 1 || found[0].Code != tt.finds || len(found[0].Doubts) == 0 || (found[0].Unknown == "") != tt.doubts {
				t.Fatalf("%v %+v", o, found)
			}
			if said := found[0].Unknown + strings.Join(found[0].Doubts, "; "); !strings.Contains(said, "job 777") {
				t.Errorf("said: %s", said)
			}
			if report := n.run(100).Ends[0].Report; !strings.Contains(report, tt.report) {
				t.Errorf("reported:\n%s", report)
			}
		})
	}
}

// A job that left something is to blame for it until somebody has seen the card idle.
func TestAcquitted(t *testing.T) {
	for _, seenIdle := range []bool{false, true} {
		n := newNode(t, "enforce")
		n.clean(prolog, newJob())
		n.extra("700")
		if o := n.hook(epilog, newJob()); o.exit != 11 {
			t.Fatal(o)
		}
		if seenIdle {
			n.extra("")
			next := newJob().with("SLURM_JOB_ID", "101", "SLURM_JOBID", "101")
			n.clean(prolog, next)
			n.clean(epilog, next)
			n.extra("700")
		}
		third := newJob().with("SLURM_JOB_ID", "102", "SLURM_JOBID", "102")
		if o := n.hook(prolog, third); o.exit != 0 {
			t.Error(o)
		}
		start := n.run(102).Start
		if len(start.Findings) != 1 || start.Findings[0].Code != code.Dirty || (start.Findings[0].Owner == nil) != seenIdle {
			t.Errorf("seen idle %v: %+v", seenIdle, start.Findings)
		}
		if strings.Contains(start.Report, "100") == seenIdle {
			t.Errorf("seen idle %v:\n%s", seenIdle, start.Report)
		}
	}
}
