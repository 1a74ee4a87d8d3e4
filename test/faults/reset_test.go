package faults

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/state"
	"bookend/test/must"
	"bookend/test/rig"
)

// fakeSMI stands for nvidia-smi as it answers: "In use by another client" with 255, or "was successfully reset". A file
// "smi" has what becomes of a reset. fakeSystemd keeps a unit's state in the file of its name.
const (
	fakeSMI = `echo "smi $*" >>DIR/ran
put() { sed -i "s/^gpu0.$1 = .*/gpu0.$1 = $2/" DIR/world/world.conf; }
well() { put recovery_action 0; put extra_mib 0; put ecc_uncorrected 0; echo "GPU 00000000:1B:00.0 was successfully reset."; }
how=$(cat DIR/smi)
case $*:$how in
nvlink*) printf 'GPU 0: NVIDIA H200 (UUID: GPU-x)\n\t Link 0: 26.562 GB/s\n\t Link 1: <inactive>\n';;
*pm*0:waits) while [ ! -e DIR/go ]; do sleep 0.01; done; put persistence 0;;
*pm*0:undrained) echo IDLE >DIR/node; put persistence 0;;
*pm*0:taken) echo "broken [alice@2026-11-21T07:00:00]" >DIR/reason; put persistence 0;;
*pm*1:persists) echo "Unable to set persistence mode" >&2; exit 3;;
*"-pm 0"*) put persistence 0; echo "All done.";;
*"-pm 1"*) put persistence 1; echo "All done.";;
*reset:used) echo "The following GPUs could not be reset:"; echo "  GPU 00000000:1B:00.0: In use by another client"; exit 255;;
*reset:dies) kill -9 $$;;
*reset:silent) exit 0;;
*reset:elsewhere) echo "GPU 00000000:3D:00.0 was successfully reset.";;
*reset:default) well; put compute_mode 0;;
*reset:gone) well; sed -i "s/^gpu0.excluded = .*/gpu0.excluded = 1/; t; \$a gpu0.excluded = 1" DIR/world/world.conf;;
*reset:other) put uuid GPU-ffffffff-77c1-4d0e-9b3a-5e2f00c0a000; well;;
*reset:bits) well; echo "gpu0.wrong = 77:4" >>DIR/world/world.conf;;
*reset:untold) well; echo "gpu0.recovery_action_rc = 3" >>DIR/world/world.conf;;
*reset:blocks) : >DIR/blocked; while [ ! -e DIR/go ]; do sleep 0.01; done; well;;
*reset*) well;;
esac`
	fakeSystemd = `echo "ctl $*" >>DIR/ran
case $1 in
is-active) cat DIR/$2 2>/dev/null || { echo inactive; exit 3; };;
stop) [ "$(cat DIR/smi)" != unstoppable ] || { echo "Job for $2 failed" >&2; exit 1; }; echo inactive >DIR/$2;;
start) [ "$(cat DIR/smi)" != unstartable ] || { echo "Job for $2 failed" >&2; exit 1; }; echo active >DIR/$2;;
esac`
	fakeScontrol = `[ "$1" = show ] || { echo "scontrol $*" >>DIR/ran; exit; }
[ ! -e DIR/slurm-down ] || exit 1
printf 'NodeName=n1 Arch=x\n   State=%s X=\n   Reason=broken [admin@2026-11-21T07:00:00]\n' "$(cat DIR/node)"`
)

// toReset is a drained node whose first GPU asks for a reset, with 20 GiB in use by no process and a fatal Xid on record.
func toReset(t *testing.T) *node {
	t.Helper()
	n := parallel(t, "enforce")
	here := strings.NewReplacer("DIR", n.dir, "DIR/kmsg", n.world.KernelLog())
	for name, text := range map[string]string{"nvidia-smi": fakeSMI, "systemctl": fakeSystemd} {
		n.script(name, strings.ReplaceAll(strings.ReplaceAll(text, "DIR/kmsg", n.world.KernelLog()), "DIR", n.dir))
	}
	n.configure(func(c *conf) {
		c.extra = fmt.Sprintf("reset: {stop: [dcgm.service, off.service], nvidia_smi: %s/nvidia-smi, systemctl: %[1]s/systemctl}\n", n.dir)
	})
	n.scontrol(here.Replace(fakeScontrol))
	n.job(100)
	for key, value := range map[string]string{"recovery_action": "1", "extra_mib": "20480", "ecc_uncorrected": "5"} {
		n.set("gpu0."+key, value)
	}
	n.put("dcgm.service", "active\n", 0o644)
	n.put("smi", "", 0o644)
	n.put("node", "IDLE+DRAIN", 0o644)
	n.kernel("NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.")
	bus := gpu.BusID(n.world.BusID(0))
	must.Do(t, state.Baselines.Put(n.store(), record.Baseline{GPU: gpu.ID(n.world.UUID(0)), Bytes: 10 << 20, Epoch: n.run(100).Epoch}))
	must.Do(t, state.Standing.Update(n.store(), func(s *record.Standing) error {
		s.Epoch, s.Faults = n.run(100).Epoch, []record.StandingFault{{Xid: gpu.Xid{BusID: bus, Code: 79}}}
		return nil
	}))
	return n
}

// ran returns the commands that changed something, and forgets them.
func (n *node) ran() string {
	all := ""
	for line := range strings.Lines(n.get(n.in("ran"))) {
		if !strings.Contains(line, "nvlink") && !strings.Contains(line, "is-active") {
			all += strings.ReplaceAll(line, n.world.BusID(0), "BUS")
		}
	}
	_ = os.Remove(n.in("ran"))
	return all
}

const (
	begun = "ctl stop dcgm.service\nsmi -i BUS -pm 0\n"
	tried = begun + "smi -i BUS --gpu-reset\n"
	back  = "smi -i BUS -pm 1\nctl start dcgm.service\n"
)

// Whatever becomes of a reset, what it stopped and switched off is put back, or it says how; only a GPU that is proven to
// be well loses what is on record against it.
func TestReset(t *testing.T) {
	for name, tt := range map[string]struct {
		smi   string
		exit  int
		says  []string
		ran   string
		ended bool // what is on record of the GPU
	}{
		"well":                        {"", 0, []string{"everything is as it has to be", `next: if the reason of the node's drain ("broken") is over: scontrol update nodename=n1 state=undrain`}, tried + back, true},
		"another client":              {"used", 1, []string{"not reset: ", "In use by another client"}, tried + back, false},
		"nvidia-smi dies":             {"dies", 1, []string{"not reset: ", "next: reboot the node before a job gets the GPU"}, tried + back, false},
		"nvidia-smi is silent":        {"silent", 1, []string{"does not say that it reset the GPU", "next: reboot the node"}, tried + back, false},
		"it does not come back":       {"gone", 1, []string{"reset, and not well", "the driver reads it", "next: reboot the node; if that"}, tried + back, false},
		"another UUID":                {"other", 1, []string{"reset, and not well", "GPU-ffffffff-", "next: reboot the node; if that"}, tried + back, false},
		"persistence is not restored": {"persists", 1, []string{"reset, but not all that it changed could be put back", "persistence mode", "-pm 1\n"}, tried + "smi -i BUS -pm 1\n" + back, false},
		"a service does not start":    {"unstartable", 1, []string{"reset, but not all that it changed", "systemctl start dcgm.service\n"}, tried + back, true},
		"another GPU was reset":       {"elsewhere", 1, []string{"does not say that it reset the GPU", "next: reboot the node"}, tried + back, false},
		"the drain ends meanwhile":    {"undrained", 1, []string{"not reset: a job may get GPU 0 (node IDLE)"}, begun + back, false},
		"a service does not stop":     {"unstoppable", 1, []string{"not reset: ", "Job for dcgm.service failed"}, "ctl stop dcgm.service\nctl start dcgm.service\n", false},
		"it is not tested":            {"untested", 5, []string{"whether all is well cannot be told", "memory test", "scontrol update"}, tried + back, false},
		"a setting is lost":           {"default", 1, []string{"reset, and well but for a setting", "compute mode"}, tried + back, false},
		"bits":                        {"bits", 1, []string{"BKD-BITS", "reset, and not well"}, tried + back, false},
	} {
		t.Run(name, func(t *testing.T) {
			n := toReset(t)
			n.put("smi", tt.smi, 0o644)
			n.set("gpu0.compute_mode", cmp.Or(map[string]string{"default": "3", "untested": "2"}[tt.smi], "0"))
			out, exit := n.bookend("reset", "0")
			must.Not(t, exit != tt.exit, "exit %d, want %d:\n%s", exit, tt.exit, out)
			for _, want := range tt.says {
				must.Not(t, !strings.Contains(out, want), "want %q in\n%s", want, out)
			}
			must.Be(t, "ran", n.ran(), tt.ran)
			standing := state.Standing.Peek(n.store())
			baselines := must.Have(state.Baselines.Load(n.store()))(t)
			must.Not(t, (len(standing.Faults)+len(baselines) == 0) != tt.ended, "on record: %+v, %+v\n%s", standing, baselines, out)
			if tt.ended { // the Xid of before is no finding of a later job or check
				n.clean(prolog, numbered(101))
				n.clean(epilog, numbered(101))
				n.exits(0, healthcheck, bySlurm)
				must.Not(t, strings.Contains(n.log(), "BKD-XIDFATAL"), "%s", n.log())
			}
		})
	}
}

// Each refusal changes nothing, and says why. So does a dry run, which prints the plan if there is no refusal.
func TestResetRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(n *node)
		says   string
	}{
		"in use":        {func(n *node) { n.leftover() }, ") has nvidia0, nvidia1, nvidiactl"},
		"not drained":   {func(n *node) { n.put("node", "IDLE", 0o644) }, "a job may get GPU 0 (node IDLE): drain the node and wait for its jobs, or bookend quarantine 0"},
		"jobs are left": {func(n *node) { n.put("node", "MIXED+DRAIN", 0o644) }, "a job may get GPU 0 (node MIXED+DRAIN)"},
		"Slurm is down": {func(n *node) { n.put("slurm-down", "", 0o644) }, "a job may get GPU 0 (node read node"},
		"reboot":        {func(n *node) { n.set("gpu0.recovery_action", "2") }, "reboot the node"},
		"odd service":   {func(n *node) { n.put("dcgm.service", "activating\n", 0o644) }, `dcgm.service is "activating"`},
	} {
		t.Run(name, func(t *testing.T) {
			n := toReset(t)
			tt.change(n)
			for _, args := range [][]string{{"reset", "0"}, {"reset", "0", "--dry-run"}} {
				out, exit := n.bookend(args...)
				must.Not(t, exit != 1 || !strings.Contains(out, "not reset\n  ") || !strings.Contains(out, tt.says), "exit %d:\n%s", exit, out)
			}
			must.Be(t, "ran", n.ran(), "")
		})
	}
	n := toReset(t)
	out, exit := n.bookend("reset", "0", "--dry-run")
	must.Not(t, exit != 0 || !strings.Contains(out, "it can be reset; the plan:\n  "+n.in("systemctl")+" stop dcgm.service\n"), "exit %d:\n%s", exit, out)
	must.Be(t, "ran", n.ran(), "")
	_, exit = n.bookend("reset", "0")
	must.Be(t, "exit of the first", exit, 0)
	for _, want := range []string{"reboot the node", "bookend rma", "bookend rma"} {
		out, exit = n.bookend("reset", "0")
		must.Not(t, exit != 1 || !strings.Contains(out, want), "want %q, exit %d:\n%s", want, exit, out)
	}
	must.Be(t, "ran", n.ran(), tried+back)
}

// What a reset that died has left is put back in this boot alone, and nothing else is run: what cannot be put back is printed
// for the admin. A GPU that has been replaced is not found by its former UUID.
func TestResetLeft(t *testing.T) {
	n := toReset(t)
	boot, journal := n.run(100).Epoch.Boot, "var/resets-"+nodeName+".json"
	for name, tt := range map[string]struct{ journal, says, ran string }{
		"of this boot": {`[{"boot": "BOOT", "left": [["/old/systemctl", "start", "dcgm.service"], ["/old/smi", "-i", "0000:1b:00.0", "-pm", "1"]]}]`,
			"not reset\n", "smi -i 0000:1b:00.0 -pm 1\nctl start dcgm.service\n"},
		"of another":    {`[{"boot": "b0", "left": [["systemctl", "start", "dcgm.service"]]}]`, "not reset\n", ""},
		"a command":     {`[{"boot": "BOOT", "left": [["/bin/touch", "DIR/ran"]]}]`, "and so would a reboot: /bin/touch DIR/ran: no reset leaves", ""},
		"no command":    {`[{"boot": "BOOT", "left": [[]]}]`, "no reset leaves such a command", ""},
		"it is cut":     {`[{"boot": "BOOT", "left": [["sys`, "unexpected end of JSON input; it says what", ""},
		"of the future": {`{"version": 9}`, "cannot unmarshal object", ""},
	} {
		text := strings.NewReplacer("BOOT", boot, "DIR", n.dir)
		n.put(journal, text.Replace(tt.journal), 0o600)
		n.set("gpu0.recovery_action", "2") // it is refused
		out, _ := n.bookend("reset", "0")
		want := text.Replace(tt.says)
		must.Not(t, !strings.Contains(out, want), "%s: want %q in\n%s", name, want, out)
		must.Be(t, name+": ran", strings.ReplaceAll(n.ran(), "BUS", "0000:1b:00.0"), tt.ran)
	}
	must.Do(t, os.Remove(n.in(journal)))
	was := n.world.UUID(0)
	n.set("gpu0.uuid", "GPU-ffffffff-77c1-4d0e-9b3a-5e2f00c0a000")
	out, exit := n.bookend("reset", was)
	must.Not(t, exit != 3 || !strings.Contains(out, "no such GPU"), "exit %d:\n%s", exit, out)
	must.Be(t, "ran", n.ran(), "")
}

// A reset that a signal stops puts everything back. One that is killed cannot: the next one does.
func TestResetStopped(t *testing.T) {
	run := func(n *node, smi, until string) (*exec.Cmd, *strings.Builder) {
		n.put("smi", smi, 0o644)
		cmd, out := exec.Command(program("bookend"), "reset", "0"), &strings.Builder{}
		cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = []string{"BOOKEND_CONFIG=" + n.config}, "/", out, out
		must.Do(n, cmd.Start())
		await(n, until, func() bool { return strings.Contains(n.get(n.in("ran")), until) })
		return cmd, out
	}
	for _, by := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT} {
		t.Run(by.String(), func(t *testing.T) {
			n := toReset(t)
			cmd, out := run(n, "waits", "-pm 0")
			must.Do(t, cmd.Process.Signal(by))
			n.put("go", "", 0o644)
			must.Not(t, cmd.Wait() == nil || !strings.Contains(out.String(), "not reset: stopped by a signal"), "%s", out)
			must.Be(t, "ran", n.ran(), begun+back)
		})
	}
	n := toReset(t)
	cmd, _ := run(n, "blocks", "--gpu-reset")
	must.Do(t, cmd.Process.Kill())
	_ = cmd.Wait()
	n.put("go", "", 0o644)
	out, exit := n.bookend("status")
	must.Not(t, !strings.Contains(out, "puts back what that has changed: "+n.in("nvidia-smi")+" -i "+n.world.BusID(0)+" -pm 1; "+n.in("systemctl")+" start dcgm.service"), "exit %d:\n%s", exit, out)
	out, exit = n.bookend("reset", "0")
	must.Not(t, exit != 1 || !strings.Contains(out, "reboot the node"), "exit %d:\n%s", exit, out)
	must.Be(t, "ran", n.ran(), tried+back)
	out, _ = n.bookend("status")
	must.Not(t, strings.Contains(out, "a reset of a GPU is"), "%s", out)
}

// The recorder steps aside for a reset, and no other comes until it is over.
func TestRecorderStepsAside(t *testing.T) {
	n := recording(t)
	n.clean(n.own(prolog), newJob())
	n.recorder()
	release := must.Have(n.store().Turns.EndRecorder(margin))(t)
	await(t, "the recorder's end", func() bool { return len(rig.Recorders(n.dir)) == 0 })
	n.clean(n.own(prolog), bystanding())
	must.Not(t, len(rig.Recorders(n.dir)) > 0 && !n.store().Turns.HasRecorder(), "a recorder beside a reset")
	release()
	n.clean(n.own(epilog), bystanding())
	n.clean(n.own(prolog), numbered(101))
	n.recorder()
}
