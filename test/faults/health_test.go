package faults

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// kernel writes a line of the kernel's log, one second after the other.
func (n *node) kernel(text string) {
	n.Helper()
	f, err := os.OpenFile(n.world.KernelLog(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	must(n, err)
	defer f.Close()
	seq := 100 + strings.Count(n.get(n.world.KernelLog()), "\n")
	_, err = fmt.Fprintf(f, "3,%d,%d,-;%s\n", seq, seq*1_000_000, text)
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
	})
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
}

// What the driver says against a GPU drains where it cannot be used, and never where the site only observes. Another
// GPU's condition is no business of this job's hooks, nor is one before the job's end.
func TestCondition(t *testing.T) {
	tell(t, conditions)
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
		"beside an orphan, not ended by its alarm": {finds: "BKD-HANG BKD-ORPHAN", exit: 10, check: looked,
			during: func(n *node) {
				impatient(n)
				n.leftover()
				n.set("on.nvmlDeviceGetGpuFabricInfoV.gpu0", "hang-hard")
			}},
	})
}
