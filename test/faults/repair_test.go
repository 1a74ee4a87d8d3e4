package faults

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"bookend/internal/child"
	"bookend/internal/condition"
	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/state"
	"bookend/test/must"
	"bookend/test/rig"
)

// slurmOfOne keeps the node's state, and its reason with author and time, as slurmctld does. A file "deaf" has it refuse
// to end the drain.
const slurmOfOne = `if [ "$1" = show ]; then
printf 'NodeName=n1 Arch=x\n   State=%s X=\n' "$(cat DIR/node)"
[ ! -e DIR/reason ] || printf '   Reason=%s\n' "$(cat DIR/reason)"
exit
fi
echo "scontrol $*" >>DIR/ran
case $3 in
*UNDRAIN) [ ! -e DIR/deaf ] || exit 1; echo IDLE >DIR/node; rm DIR/reason;;
*DRAIN) echo IDLE+DRAIN >DIR/node; echo "${4#Reason=} [root@$(date -u +%Y-%m-%dT%H:%M:%S)]" >DIR/reason;;
esac`

// toRepair is a node that Bookend drained at the end of job 100, which left 20 GiB on its GPU and no process, and a health
// check that has seen that.
func toRepair(t *testing.T) *node {
	t.Helper()
	n := parallel(t, "enforce")
	for name, text := range map[string]string{"nvidia-smi": fakeSMI, "systemctl": fakeSystemd} {
		n.script(name, strings.ReplaceAll(text, "DIR", n.dir))
	}
	n.repairing(true, "")
	for key, value := range map[string]string{"recovery_action": "0", "extra_mib": "0", "ecc_uncorrected": "0", "compute_mode": "0"} {
		n.set("gpu0."+key, value)
	}
	n.put("dcgm.service", "active\n", 0o644)
	n.put("smi", "", 0o644)
	n.put("node", "IDLE", 0o644)
	n.clean(prolog, newJob())
	n.set("gpu0.extra_mib", "20480")
	n.exits(11, epilog, newJob())
	n.drains("Epilog error")
	n.unrepairing(func() { n.checked("BKD-RESIDUE") })
	must.Be(t, "the check", n.ran(), "scontrol update NodeName=n1 State=DRAIN Reason=BKD-RESIDUE gpu=0 20480MiB job=100 epilog; see: bookend show 100\n")
	return n
}

// drains does what slurmd does for a hook that asks for a drain.
func (n *node) drains(reason string) {
	n.put("node", "IDLE+DRAIN", 0o644)
	n.put("reason", reason+time.Now().UTC().Format(" [root@2006-01-02T15:04:05]"), 0o644)
}

// repairing configures repairs, and more about drains.
func (n *node) repairing(is bool, drains string) {
	n.script("slurm.d/scontrol", strings.ReplaceAll(slurmOfOne, "DIR", n.dir))
	n.conf.extra = fmt.Sprintf("repair: {enabled: %v}\nreset: {stop: [dcgm.service], nvidia_smi: %s/nvidia-smi, systemctl: %[2]s/systemctl}\n",
		is, n.dir)
	text := strings.NewReplacer("/usr/bin/scontrol", n.in("slurm.d/scontrol"), "reason_by: healthcheck", "reason_by: healthcheck"+drains)
	n.put("bookend.yaml", text.Replace(n.text()), 0o644)
}

// unrepairing does something while no repair is configured.
func (n *node) unrepairing(do func()) {
	n.repairing(false, "")
	do()
	n.repairing(true, "")
}

// repairs runs what a health check leaves behind.
func (n *node) repairs() {
	n.Helper()
	cmd := exec.Command(program("bookend-healthcheck"), "--repair", nodeName)
	cmd.Env, cmd.Dir = []string{"BOOKEND_CONFIG=" + n.config}, "/"
	out, _ := cmd.CombinedOutput()
	must.Be(n, "output", string(out), "")
}

// resets is the journal of the node's resets.
func (n *node) resets() child.Journal[[]condition.ResetAttempt] {
	return child.Journal[[]condition.ResetAttempt]{Dir: n.conf.varDir, Name: "resets-" + nodeName + ".json"}
}

const undrained = "scontrol update NodeName=n1 State=UNDRAIN\n"

const unrepaired = "scontrol update NodeName=n1 State=DRAIN Reason=BKD-RESET gpu=0 healthcheck; see: bookend status\n"

// A health check that finds memory of no process on the drained GPU leaves a process that resets it, and ends the drain if it
// is proven well; jobs then get it, and a later check has nothing to say.
func TestRepair(t *testing.T) {
	n := toRepair(t)
	n.check()
	await(t, "the end of the drain", func() bool { return strings.Contains(n.log(), "the node's drain is over") })
	must.Be(t, "ran", n.ran(), tried+back+undrained)
	for _, want := range []string{"level=info msg=\"repair: " + n.in("nvidia-smi"), "repair: GPU 0 (" + n.world.UUID(0) + ") was reset and is proven well"} {
		must.Not(t, !strings.Contains(n.log(), want), "want %q in\n%s", want, n.log())
	}
	n.repairs()
	n.clean(prolog, numbered(101))
	n.clean(epilog, numbered(101))
	n.checked("")
	must.Be(t, "what was done", len(lines(n.log(), "repair: GPU")), 1)
	must.Be(t, "ran after it", n.ran(), "")
}

// What is tried and does not help is put back, and the drain's reason says so: it is not tried again, and no health check ends
// that drain.
func TestRepairFails(t *testing.T) {
	for name, tt := range map[string]struct{ smi, ran, says string }{
		"another client":           {"used", tried + back + unrepaired, "In use by another client"},
		"nvidia-smi dies":          {"dies", tried + back + unrepaired, "reboot the node before a job gets the GPU"},
		"a service does not stop":  {"unstoppable", "ctl stop dcgm.service\nctl start dcgm.service\n" + unrepaired, "Job for dcgm.service failed"},
		"a service does not start": {"unstartable", tried + back + unrepaired, "systemctl start dcgm.service"},
		"wrong bits":               {"bits", tried + back + unrepaired, "BKD-BITS"},
		"not all can be told":      {"untold", tried + back + unrepaired, "whether all is well cannot be told; recovery action: "},
		"the drain does not end":   {"deaf", tried + back + undrained + unrepaired, "scontrol update nodename=n1 state=undrain"},
		"the drain ends meanwhile": {"undrained", begun + back, "a job may get GPU 0 (node IDLE)"},
		"an admin takes the drain": {"taken", begun + back, "the node's drain is not Bookend's"},
	} {
		t.Run(name, func(t *testing.T) {
			n := toRepair(t)
			n.put("smi", tt.smi, 0o644)
			n.put(tt.smi, "", 0o644)
			n.repairs()
			must.Be(t, "ran", n.ran(), tt.ran)
			out, _ := n.bookend("status")
			for _, text := range []string{out, n.log()} {
				must.Not(t, !strings.Contains(text, "BKD-RESET") || !strings.Contains(text, tt.says), "want %q in\n%s", tt.says, text)
			}
			n.put("smi", "", 0o644)
			n.repairs()
			n.set("gpu0.extra_mib", "0")
			for range 3 {
				n.repairing(true, ", resume: {enabled: true, after: 1}")
				n.check()
			}
			later := map[string]string{"unstartable": "ctl start dcgm.service\n"} // that is tried again
			must.Be(t, "ran later", n.ran(), later[tt.smi])
		})
	}
}

// Nothing is touched where anything speaks against it.
func TestRepairRefused(t *testing.T) {
	gpuOf := func(n *node) gpu.ID { return gpu.ID(n.world.UUID(0)) }
	for name, tt := range map[string]struct {
		change func(n *node)
		says   string // in the log; empty: there is nothing to repair
	}{
		"not enabled":      {func(n *node) { n.repairing(false, "") }, ""},
		"observing":        {func(n *node) { n.conf.mode = "observe"; n.repairing(true, "") }, ""},
		"another's reason": {func(n *node) { n.put("reason", "broken [root@2026-11-21T07:00:00]", 0o644) }, "the node's drain is not Bookend's"},
		"the reason set by another": {func(n *node) {
			n.put("reason", strings.Replace(n.get(n.in("reason")), "root@", "alice@", 1), 0o644)
		}, "the node's drain is not Bookend's"},
		"not drained":      {func(n *node) { n.put("node", "IDLE", 0o644) }, "a job may get GPU 0 (node IDLE)"},
		"a job is there":   {func(n *node) { n.put("node", "MIXED+DRAIN", 0o644) }, "a job may get GPU 0 (node MIXED+DRAIN)"},
		"the node is down": {func(n *node) { n.put("node", "DOWN+DRAIN", 0o644) }, "the node's drain is not Bookend's"},
		"a process has it": {func(n *node) { n.leftover() }, ") has nvidia0, nvidia1, nvidiactl"},
		"a job on record":  {func(n *node) { n.exits(0, prolog, numbered(102)) }, "job 102 has it: wait for its end"},
		"ECC errors":       {func(n *node) { n.set("gpu0.ecc_uncorrected", "5") }, "BKD-ECC is on record"},
		"an Xid since":     {func(n *node) { n.xid(0, 48, "DBE") }, "BKD-XIDFATAL is on record"},
		"an Xid then": {func(n *node) {
			n.xid(0, 48, "DBE")
			n.unrepairing(func() { n.check() })
		}, "BKD-XIDFATAL is on record"},
		"an Xid that is over": {func(n *node) {
			n.xid(0, 48, "DBE")
			n.unrepairing(func() { n.check(); n.check() }) // the driver says that the GPU needs no recovery
		}, "BKD-XIDFATAL is on record"},
		"and is not in the log any more": {func(n *node) {
			n.xid(0, 48, "DBE")
			n.unrepairing(func() {
				n.check()
				n.put(n.world.KernelLog(), "6,300,300000000,-;later\n", 0o600)
				n.check()
			})
		}, "an error of its hardware is on record"},
		"a log that is not whole": {func(n *node) {
			n.put(n.world.KernelLog(), "6,300,300000000,-;later\n", 0o600)
			n.unrepairing(func() { n.check(); n.check() })
		}, "not all of the kernel log or of the records was read"},
		"a driver before 570": {func(n *node) { n.silent() }, "nor could a reset prove that it is well: recovery action"},
		"an error that stands": {func(n *node) {
			must.Do(n, state.Standing.Update(n.store(), func(s *record.Standing) error {
				s.Epoch, s.Faults = n.run(100).Epoch, []record.StandingFault{{Xid: gpu.Xid{BusID: gpu.BusID(n.world.BusID(0)), Code: 79}}}
				return nil
			}))
		}, "an error of its hardware is on record"},
		"a failed test": {func(n *node) {
			must.Do(n, state.Probes.Put(n.store(), record.TestRecord{Probe: gpu.Probe{Device: gpuOf(n), Result: gpu.ProbeWrong}, Epoch: n.run(100).Epoch}))
		}, "its last memory test ended with"},
		"reset by an admin": {func(n *node) {
			must.Do(n, n.resets().Write([]condition.ResetAttempt{{GPU: gpuOf(n), At: time.Now().Add(-23 * time.Hour), Done: true}}))
		}, "it was reset at "},
		"tried before": {func(n *node) {
			must.Do(n, n.resets().Write([]condition.ResetAttempt{{GPU: gpuOf(n), At: time.Now(), ByCheck: true}}))
		}, "BKD-RESET: the reset died"},
		"the recorder is stuck": {func(n *node) {
			_, release, err := n.store().Turns.Recorder()
			must.Do(n, err)
			n.Cleanup(release)
		}, "the recorder does not step aside"},
		"the node does not respond": {func(n *node) { n.put("node", "IDLE*+DRAIN", 0o644) }, "or the node does not respond"},
		"another GPU's memory, too": {func(n *node) {
			j := rig.NewJob(nodeName, 101, user, 1)
			n.clean(prolog, j)
			n.set("gpu1.extra_mib", "20480")
			n.exits(11, epilog, j)
		}, "the node's drain is not Bookend's, or not for this GPU alone"},
	} {
		t.Run(name, func(t *testing.T) {
			n := toRepair(t)
			tt.change(n)
			_ = os.Remove(n.in("ran"))
			n.repairs()
			ran := n.ran()
			must.Not(t, strings.Contains(ran, "smi ") || strings.Contains(ran, "ctl ") || strings.Contains(ran, "UNDRAIN"), "ran %s", ran)
			log := strings.Join(lines(n.log(), "repair:"), "\n")
			must.Not(t, !strings.Contains(log, tt.says) || tt.says == "" && log != "", "want %q in\n%s", tt.says, log)
		})
	}
}

// A repair waits for the end of an admin's reset, and is the node's health check meanwhile. One that is killed is undone by the
// next, which resets nothing.
func TestRepairAlone(t *testing.T) {
	n := toRepair(t)
	release := must.Have(n.store().Turns.Check(0))(t)
	n.put("smi", "blocks", 0o644)
	cmd := exec.Command(program("bookend-healthcheck"), "--repair", nodeName)
	cmd.Env, cmd.Dir = []string{"BOOKEND_CONFIG=" + n.config}, "/"
	must.Do(t, cmd.Start())
	time.Sleep(300 * time.Millisecond) // a repair that does not wait has begun by then
	must.Be(t, "ran while a reset is at work", n.ran(), "")
	release()
	await(t, "the reset", func() bool { return strings.Contains(n.get(n.in("ran")), "--gpu-reset") })
	out, exit := n.bookend("reset", "0")
	must.Not(t, exit != 1 || !strings.Contains(out, "another reset is at work"), "exit %d:\n%s", exit, out)
	must.Do(t, cmd.Process.Kill())
	_ = cmd.Wait()
	n.put("go", "", 0o644)
	must.Be(t, "ran", n.ran(), tried)
	n.repairs()
	must.Be(t, "ran by the next", n.ran(), back+unrepaired)
	out, _ = n.bookend("status")
	must.Not(t, !strings.Contains(out, "the reset died; what it had stopped is started again"), "%s", out)
}

// After a repair that died no health check ends the drain, though the memory is free by now, and what it stopped is started
// again, though an admin has ended the drain.
func TestRepairDied(t *testing.T) {
	for name, tt := range map[string]struct {
		change    func(n *node)
		ran, last string
	}{
		"the memory is free": {func(n *node) {
			n.set("gpu0.extra_mib", "0")
			n.repairing(true, ", resume: {enabled: true, after: 1}")
		}, back + unrepaired, "BKD-RESET"},
		"an admin ends the drain": {func(n *node) {
			n.put("node", "IDLE", 0o644)
			must.Do(n, os.Remove(n.in("reason")))
			memory := must.Have(n.store().Drain())(n)
			written := *memory.Written
			later := memory
			later.Written, written.Wall = &written, written.Wall.Add(-time.Minute)
			must.Do(n, n.store().SwapDrain(memory, later))
		}, back, "ctl start"},
	} {
		t.Run(name, func(t *testing.T) {
			n := toRepair(t)
			n.put("smi", "blocks", 0o644)
			cmd := exec.Command(program("bookend-healthcheck"), "--repair", nodeName)
			cmd.Env, cmd.Dir = []string{"BOOKEND_CONFIG=" + n.config}, "/"
			must.Do(t, cmd.Start())
			await(t, "the reset", func() bool { return strings.Contains(n.get(n.in("ran")), "--gpu-reset") })
			must.Do(t, cmd.Process.Kill())
			_ = cmd.Wait()
			n.put("smi", "", 0o644)
			must.Be(t, "ran", n.ran(), tried)
			tt.change(n)
			n.check()
			await(t, "the end", func() bool { return strings.Contains(n.get(n.in("ran")), tt.last) })
			must.Be(t, "ran by the next", n.ran(), tt.ran)
			n.check()
			must.Be(t, "ran later", n.ran(), "")
		})
	}
}
