package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/test/fakegpu"
)

// healthCalls are what asks a driver for a GPU's condition; for a test of what a hook does without them.
var healthCalls = []string{
	"nvmlDeviceGetTotalEccErrors", "nvmlDeviceGetRemappedRows", "nvmlDeviceGetFieldValues",
	"nvmlDeviceGetGpuFabricInfoV", "nvmlDeviceGetPersistenceMode",
	"nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetComputeMode", "nvmlDeviceGetAccountingMode",
}

// kernel writes a line of the kernel's log, one second after the other.
func (n *node) kernel(text string) { n.Helper(); n.logged(3, text) }

// logged writes a line of the kernel's log with a facility and a level, as syslog counts them: what root's programs
// write there has a facility from 8 on.
func (n *node) logged(priority int, text string) {
	n.Helper()
	f, err := os.OpenFile(n.world.KernelLog(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	must(n, err)
	defer f.Close()
	seq := 100 + strings.Count(n.get(n.world.KernelLog()), "\n")
	_, err = fmt.Fprintf(f, "%d,%d,%d,-;%s\n", priority, seq, seq*1_000_000, text)
	must(n, err)
}

// xidLine is how the kernel's module reports an error of a GPU.
func (n *node) xidLine(card, number int, text string) string {
	return fmt.Sprintf("NVRM: Xid (PCI:%s): %d, %s", strings.TrimSuffix(n.world.BusID(card), ".0"), number, text)
}

// offTheBus is what it says of one that is gone.
const offTheBus = "pid=4711, name=secret, GPU has fallen off the bus."

// silent makes the driver not tell whether a GPU needs recovery, as one from before 570.
func (n *node) silent() { n.Helper(); n.set("gpu0.recovery_action_rc", "3") }

// xid is a story's fault: an error of a GPU while the job runs, by a driver that does not say that all is well.
func xid(card, number int, text string) func(*node) {
	return func(n *node) { n.Helper(); n.silent(); n.kernel(n.xidLine(card, number, text)) }
}

// An Xid after which NVIDIA calls for a reset drains if the kernel itself wrote it of the job's GPU while the job ran,
// and the driver does not say that all is well. What lines there are packages inventory and health know.
func TestXid(t *testing.T) {
	secret := []string{"4711", "secret"}
	tell(t, map[string]story{
		"fatal": {during: xid(0, 79, offTheBus), finds: "BKD-XIDFATAL", exit: 29, not: secret,
			reads: []string{"the driver's error Xid 79: the GPU has fallen off the bus"}},
		"fatal, and the driver asks for nothing": {during: func(n *node) { n.kernel(n.xidLine(0, 79, offTheBus)) },
			finds: "BKD-XIDFATAL?", not: secret, reads: []string{"the driver's error Xid 79"},
			log: []string{"doubt=", "BKD-XIDFATAL"}},
		"a program's": {during: xid(0, 13, "pid=4711, name=secret, Graphics Exception"), finds: "BKD-XID", not: secret,
			reads: []string{"the driver's error Xid 13: error in a program's kernel"}},
		"before the job":  {before: xid(0, 79, offTheBus)},
		"another GPU's":   {during: xid(1, 79, offTheBus)},
		"by root's hands": {during: func(n *node) { n.silent(); n.logged(8+3, n.xidLine(0, 79, offTheBus)) }},
		"entries overwritten before they were read": {finds: "BKD-UNTRACED*", reads: []string{"clean: "},
			config: func(c *conf) { c.onUnknown = "drain" },
			during: func(n *node) { n.put(n.world.KernelLog(), "6,90000,90000000000,-;eth0: link is up\n", 0o600) }},
	})
}

// Where the kernel's log cannot be read, or tells of another boot, nothing is found in it and nothing else suffers.
func TestKernelLogOutOfUse(t *testing.T) {
	without := func(n *node) { must(n, os.Remove(n.world.KernelLog())) }
	says := func(want string) func(*node) {
		return func(n *node) {
			if k := n.endOf(100).Kernel; k == nil || !strings.Contains(k.Unknown, want) {
				n.Errorf("%+v, want %q", k, want)
			}
		}
	}
	lost := xid(0, 79, offTheBus)
	tell(t, map[string]story{
		"missing":        {before: without, check: says("no such file")},
		"gone meanwhile": {during: func(n *node) { n.silent(); without(n) }, check: says("no such file")},
		"another boot's": {before: func(n *node) { n.kernel("eth0: link is up"); n.kernel("eth0: link is down") },
			during: func(n *node) { without(n); lost(n) }, check: says("another boot's")},
		"boot id changes": {config: func(c *conf) { c.proc = filepath.Dir(c.run) + "/proc" },
			before: func(n *node) { n.copiedProc() }, check: says(""), finds: "BKD-NORECORD",
			during: func(n *node) {
				lost(n)
				n.put("proc/sys/kernel/random/boot_id", "two\n", 0o644)
			}},
	})
}

// An end that cannot look at the job's GPU judges what the kernel's log says of the GPU that the start recorded. Only
// within that life of the driver is it certain: a reload may have cured the GPU.
func TestXidOfABlindEnd(t *testing.T) {
	away := func(n *node) { must(n, os.Rename(n.world.DriverProc(), n.world.DriverProc()+".away")) }
	gpuGone := func(n *node) { must(n, os.RemoveAll(filepath.Join(n.world.DriverProc(), "gpus", n.world.BusID(0)))) }
	for name, tt := range map[string]struct {
		harm  func(n *node)
		finds string
		exit  int
	}{
		"the GPU has gone":     {gpuGone, "BKD-MISSING? BKD-XIDFATAL", 29},
		"no driver any more":   {away, "BKD-NODRIVER BKD-XIDFATAL", 29},
		"reloaded since":       {func(n *node) { must(n, n.world.ReloadModule()) }, "BKD-NORECORD BKD-XIDFATAL?", 0},
		"the driver is frozen": {(*node).freeze, "BKD-STUCK BKD-XIDFATAL", 29},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			story{
				during: func(n *node) {
					xid(0, 79, offTheBus)(n)
					n.kernel(n.xidLine(1, 79, offTheBus))
					tt.harm(n)
				},
				finds: tt.finds, exit: tt.exit, not: []string{"4711"},
				reads: []string{"n1 GPU 0 had a fault during your job",
					"Xid 79: the GPU has fallen off the bus"},
				check: func(n *node) {
					f := n.found(n.findings(epilog), code.XidFatal)
					if f.GPU != gpu.ID(n.world.UUID(0)) || f.Index == nil || *f.Index != 0 {
						n.Errorf("%+v", f)
					}
				},
			}.play(newNode(t, "enforce"))
		})
	}
}

// freeze leaves a backend in the driver that nothing can end, by an end of another job.
func (n *node) freeze() {
	n.Helper()
	n.clean(prolog, numbered(55).Of(bystander).On("1"))
	n.set("on."+memoryCall, "freeze")
	n.configure(func(c *conf) { c.tight = true })
	n.hook(epilog, numbered(55).Of(bystander).On("1"))
	n.configure(func(c *conf) { c.tight = false })
	n.oneStuck()
	n.Cleanup(func() { n.unstick(memoryCall) })
}

// set is a story's change of the fake driver.
func set(key, value string) func(*node) { return func(n *node) { n.Helper(); n.set(key, value) } }

// conditions are what a driver can say of a GPU at a job's end.
var conditions = map[string]story{
	"a reset is due": {during: set("gpu0.recovery_action", "1"), finds: "BKD-RECOVERY", exit: 27,
		reads: []string{"the driver asks for a reset of the GPU"}},
	"a reset is due, observed": {mode: "observe", during: set("gpu0.recovery_action", "1"), finds: "BKD-RECOVERY",
		check: func(n *node) {
			if v := n.endOf(100).Verdict; v.Held == "" {
				n.Errorf("%+v", v)
			}
		}},
	"a remapping failed": {during: set("gpu0.remap_failure", "1"), finds: "BKD-REMAPFAILED", exit: 28,
		reads: []string{"the remapping of a memory row has failed"}},
	"another GPU's": {before: set("gpu1.recovery_action", "1")},
	"no persistence": { // costs a job seconds and no more: it is noted, and its owner reads that all is clean
		options: []fakegpu.Option{fakegpu.With("gpu0.persistence", "0")}, finds: "BKD-PERSISTENCE",
		reads: []string{"n1 GPU 0 clean: "}, check: func(n *node) {
			if v := n.endOf(100).Verdict; v.Action != config.Note {
				n.Errorf("%+v", v)
			}
			n.shows("health: 9 facts read, persistence off", "show", "100")
		},
	},
	"lost while it is asked": { // it was there when it was looked at: a fact unknown, and no more
		during: func(n *node) {
			n.set("on.nvmlDeviceGetTotalEccErrors.gpu0", "rc 15")
			for _, call := range healthCalls[1:] {
				if call != "nvmlDeviceGetComputeMode" { // the test allocation asks for it too
					n.set("on."+call+".gpu0", "hang")
				}
			}
		},
		reads: []string{"n1 GPU 0 clean: "}, check: func(n *node) {
			for _, f := range n.endOf(100).Health[0].Facts {
				if !strings.Contains(f.Unknown, "GPU is lost (15)") {
					n.Errorf("%+v", f)
				}
			}
			n.shows("ecc uncorrected unknown: nvmlDeviceGetTotalEccErrors: GPU is lost (15)", "show", "100")
		},
	},
}

// What the driver says against a GPU drains where it cannot be used, and never where the site only observes. Another
// GPU's condition is no business of this job's hooks, nor is one before the job's end.
func TestCondition(t *testing.T) {
	tell(t, conditions)
}

// A start asks for no GPU's condition, whatever the configuration.
func TestNoHealthAtTheStart(t *testing.T) {
	n := newNode(t, "enforce")
	for _, call := range healthCalls {
		n.set("on."+call, "hang")
	}
	n.clean(prolog, newJob())
}

// A driver that hangs where its GPUs' condition is asked for has shown their memory before: what that proves counts.
func TestHealthHangs(t *testing.T) {
	impatient := func(n *node) { // six seconds for the driver, which a hang then takes
		n.replace(n.config, "epilog: {total: 3m, driver: 40s,", "epilog: {total: 3m, driver: 6s,")
		must(n, os.Chmod(n.config, 0o644))
	}
	looked := func(n *node) {
		if e := n.endOf(100); len(e.Snapshot.Readings) != 1 || len(e.Health) != 0 {
			n.Errorf("%+v", e)
		}
	}
	tell(t, map[string]story{
		"at the first call": {finds: "BKD-HANG", check: looked,
			during: func(n *node) { impatient(n); n.set("on."+healthCalls[0]+".gpu0", "hang") }},
		"beside an orphan, not ended by its alarm": {finds: "BKD-HANG BKD-ORPHAN", exit: 10, check: looked,
			during: func(n *node) {
				impatient(n)
				n.leftover()
				n.set("on.nvmlDeviceGetGpuFabricInfoV.gpu0", "hang-hard")
			}},
	})
}
