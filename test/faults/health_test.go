package faults

import (
	"os"
	"slices"
	"strings"
	"testing"

	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/slurm"
	"bookend/test/fakegpu"
)

// healthCalls are what asks a driver for a card's condition; for a test of what a hook does without them.
var healthCalls = []string{
	"nvmlDeviceGetTotalEccErrors", "nvmlDeviceGetRemappedRows", "nvmlDeviceGetFieldValues", "nvmlDeviceGetGpuFabricInfoV",
	"nvmlDeviceGetBAR1MemoryInfo", "nvmlDeviceGetPersistenceMode", "nvmlDeviceGetCurrentClocksEventReasons",
	"nvmlDeviceGetComputeMode", "nvmlDeviceGetAccountingMode",
}

// found returns the finding of a code, which must be the only one of it.
func (n *node) found(all []finding.Finding, c code.Code) finding.Finding {
	n.Helper()
	all = slices.DeleteFunc(slices.Clone(all), func(f finding.Finding) bool { return f.Code != c })
	if len(all) != 1 {
		n.Fatalf("want one %s: %+v", c, all)
	}
	return all[0]
}

// ended is an end of job 100 with something amiss: what its owner reads, and what is on record.
func (n *node) ended(exit int) (read string, found []finding.Finding) {
	n.Helper()
	path := n.home()
	j := newJob().with("SLURM_JOB_STDOUT", path)
	o := n.hook(epilog, j)
	text, err := os.ReadFile(path)
	must(n, err)
	if o.exit != exit {
		n.Errorf("want exit %d: %v\n%s", exit, o, n.log())
	}
	return string(text), n.endOf(100).Findings
}

// What the driver says against a card drains where it cannot be used, and never where the site only observes.
func TestConditionDrains(t *testing.T) {
	for name, tt := range map[string]struct {
		key, value string
		finds      code.Code
		exit       int
		reads      string
	}{
		"a reset is due":        {"gpu0.recovery_action", "1", code.Recovery, 27, "the driver asks for a reset of the card"},
		"a remapping failed":    {"gpu0.remap_failure", "1", code.RemapFailed, 28, "the remapping of a memory row has failed"},
		"a remapping waits":     {"gpu0.remap_pending", "1", code.RemapPending, 0, "memory rows wait for a reset"},
		"traffic is to end":     {"gpu0.recovery_action", "3", code.Recovery, 0, "an end of traffic between cards"},
		"an action of tomorrow": {"gpu0.recovery_action", "77", code.Recovery, 0, "recovery action number 77"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, mode := range []string{"enforce", "observe"} {
				n, exit := newNode(t, mode), 0
				if mode == "enforce" {
					exit = tt.exit
				}
				n.clean(prolog, newJob())
				must(t, n.world.Set(tt.key, tt.value))
				read, all := n.ended(exit)
				f := n.found(all, tt.finds)
				if f.GPU != gpu.ID(n.world.UUID(0)) || *f.Index != 0 || !strings.Contains(strings.Join(strings.Fields(read), " "), tt.reads) {
					t.Errorf("%s: %+v, the user reads:\n%s", mode, f, read)
				}
				if held := n.endOf(100).Verdict.Held; (held != "") != (mode == "observe" && tt.exit != 0) {
					t.Errorf("%s: held for %q", mode, held)
				}
			}
		})
	}
}

// Another card's condition is no business of this job's hooks, nor is one before the job's end.
func TestConditionOfAnotherCard(t *testing.T) {
	n := newNode(t, "enforce")
	must(t, n.world.Set("gpu1.recovery_action", "1"))
	must(t, n.world.Set("gpu1.remap_failure", "1"))
	n.clean(prolog, newJob())
	n.clean(epilog, newJob())
	n.clean(prolog, bystanding())
	must(t, n.world.Set("gpu0.recovery_action", "1"))
	n.clean(prolog, numbered(101))
	if found := append(n.endOf(100).Findings, n.startOf(101).Findings...); len(found) != 0 {
		t.Errorf("%+v", found)
	}
}

// A count that stands still says nothing new; without an earlier one nobody can tell whose it is.
func TestECC(t *testing.T) {
	n := newNode(t, "enforce")
	for i, tt := range []struct {
		count, observed, unknown string
	}{
		{"3", "3 uncorrectable memory errors since the driver was loaded", "no earlier count"},
		{"3", "", ""},
		{"5", "2 uncorrectable memory errors more than at the last look (3 then, 5 now)", ""},
		{"5", "", ""},
	} {
		j := numbered(slurm.JobID(101 + i))
		n.clean(prolog, j)
		must(t, n.world.Set("gpu0.ecc_uncorrected", tt.count))
		if o := n.hook(epilog, j); o.exit != 0 {
			t.Errorf("job %d: %v", 101+i, o)
		}
		e := n.endOf(slurm.JobID(101 + i))
		if tt.observed == "" {
			if len(e.Findings) != 0 {
				t.Errorf("job %d: %+v", 101+i, e.Findings)
			}
			continue
		}
		f := n.found(e.Findings, code.ECC)
		if f.Observed != tt.observed || !strings.Contains(f.Unknown, tt.unknown) || (f.Unknown != "") != (tt.unknown != "") || e.Verdict.Action != config.Warn {
			t.Errorf("job %d: %+v %+v", 101+i, f, e.Verdict)
		}
	}
}

// A mapping that is left in BAR1 is nobody's only where nobody is on the card: what a process holds is mapped as well.
func TestBAR1(t *testing.T) {
	for name, tt := range map[string]struct {
		before, during func(n *node)
		finds          bool
	}{
		"left behind":      {during: func(n *node) { must(n, n.world.Set("gpu0.bar1_used_mib", "2000")) }, finds: true},
		"a little":         {during: func(n *node) { must(n, n.world.Set("gpu0.bar1_used_mib", "200")) }},
		"a foreigner's":    {before: (*node).service, during: func(*node) {}},
		"a newcomer's":     {during: (*node).service},
		"one among many's": {before: (*node).service, during: func(n *node) { must(n, n.world.Set("gpu0.bar1_used_mib", "2000")) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, "enforce")
			n.clean(prolog, numbered(101))
			n.clean(epilog, numbered(101))
			if tt.before != nil {
				tt.before(n)
			}
			n.hook(prolog, newJob())
			tt.during(n)
			_, all := n.ended(0)
			if has(all, code.BAR1) != tt.finds {
				t.Errorf("%+v", all)
			}
			if tt.finds && n.found(all, code.BAR1).Observed != "2000 MiB of BAR1 are mapped with nobody on the card, 1 MiB at the last look" {
				t.Errorf("%+v", all)
			}
		})
	}
}

// What costs a job seconds and no more is noted: its owner reads that all is clean.
func TestPersistenceIsNoted(t *testing.T) {
	n := newNode(t, "enforce", fakegpu.With("gpu0.persistence", "0"))
	n.clean(prolog, newJob())
	read, all := n.ended(0)
	if f := n.found(all, code.Persistence); len(all) != 1 || n.endOf(100).Verdict.Action != config.Note {
		t.Errorf("%+v %+v", f, n.endOf(100).Verdict)
	}
	if len(lines(read, "| bookend: ")) != 2 || len(lines(read, "left clean by your job")) != 1 {
		t.Errorf("the user reads:\n%s", read)
	}
	if shown, _ := n.bookend("show", "100"); len(lines(shown, "health: 11 facts read, persistence off")) != 1 {
		t.Errorf("show:\n%s", shown)
	}
}

// Who does not want to know asks the driver for nothing.
func TestHealthOff(t *testing.T) {
	n := newNode(t, "enforce")
	n.configure(func(c *conf) { c.extra = "look: {health: false}\nprobe: {at: never}\n" })
	for _, call := range healthCalls {
		must(t, n.world.Set("on."+call, "hang"))
	}
	must(t, n.world.Set("gpu0.recovery_action", "1"))
	n.clean(prolog, newJob())
	n.clean(epilog, newJob())
	if e := n.endOf(100); len(e.Findings)+len(e.Health) != 0 || e.Curves[gpu.ID(n.world.UUID(0))].State != "clean" {
		t.Errorf("%+v", e)
	}
}

// A start asks for no card's condition, whatever the configuration.
func TestNoHealthAtTheStart(t *testing.T) {
	n := newNode(t, "enforce")
	for _, call := range healthCalls {
		must(t, n.world.Set("on."+call, "hang"))
	}
	n.clean(prolog, newJob())
}

// impatient gives an epilog six seconds for the driver, which a hang then takes.
func (n *node) impatient() {
	n.Helper()
	const was, is = "epilog: {total: 3m, driver: 40s,", "epilog: {total: 3m, driver: 6s,"
	text := n.text()
	if !strings.Contains(text, was) {
		n.Fatalf("no %q in\n%s", was, text)
	}
	must(n, os.WriteFile(n.config, []byte(strings.Replace(text, was, is, 1)), 0o644))
}

// A driver that hangs where its cards' condition is asked for has shown their memory before: what that proves counts.
func TestHealthHangs(t *testing.T) {
	for name, tt := range map[string]struct {
		call, action string
		orphan       bool
		exit         int
	}{
		"at the first call":             {healthCalls[0], "hang", false, 0},
		"and is not ended by its alarm": {"nvmlDeviceGetFieldValues", "hang-hard", false, 0},
		"beside an orphan":              {"nvmlDeviceGetBAR1MemoryInfo", "hang-hard", true, 10},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, "enforce")
			n.configure(func(c *conf) { c.onUnknown = "drain" })
			n.impatient()
			n.clean(prolog, bystanding())
			others := n.record()
			n.clean(prolog, newJob())
			if tt.orphan {
				n.leftover()
			}
			must(t, n.world.Set("on."+tt.call+".gpu0", tt.action))
			_, all := n.ended(tt.exit)
			e := n.endOf(100)
			if n.found(all, code.Hang); has(all, code.Orphan) != tt.orphan || len(e.Snapshot.Readings) != 1 || len(e.Health) != 0 {
				t.Errorf("%+v %+v", all, e)
			}
			n.unharmed(others)
		})
	}
}

// A card that goes while its condition is asked for was there when it was looked at: that is a fact unknown, and no more.
func TestLostInTheHealthPart(t *testing.T) {
	n := newNode(t, "enforce")
	n.clean(prolog, newJob())
	must(t, n.world.Set("on.nvmlDeviceGetTotalEccErrors.gpu0", "rc 15"))
	for _, call := range healthCalls[1:] {
		if call != "nvmlDeviceGetComputeMode" { // the test allocation asks for it too
			must(t, n.world.Set("on."+call+".gpu0", "hang"))
		}
	}
	read, all := n.ended(0)
	if len(all) != 0 || len(lines(read, "left clean by your job")) != 1 {
		t.Errorf("%+v, the user reads:\n%s", all, read)
	}
	for _, f := range n.endOf(100).Health[0].Facts {
		if !strings.Contains(f.Unknown, "GPU is lost (15)") {
			t.Errorf("%+v", f)
		}
	}
	if shown, _ := n.bookend("show", "100"); len(lines(shown, "health: ", "ecc uncorrected unknown: nvmlDeviceGetTotalEccErrors: GPU is lost (15)")) != 1 {
		t.Errorf("show:\n%s", shown)
	}
}
