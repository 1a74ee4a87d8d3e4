package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/finding"
	"bookend/internal/gpu"
)

// fatals are an end's findings of a card's fatal Xid.
func (n *node) fatals() (found []finding.Finding) {
	n.Helper()
	for _, f := range n.endOf(100).Findings {
		if f.Code == code.XidFatal {
			found = append(found, f)
		}
	}
	return found
}

// What a job on another card makes the driver write, however much, takes no fatal Xid out of the account.
func TestXidsOfAnotherCardPushNothingOut(t *testing.T) {
	n := newNode(t, "enforce")
	n.clean(prolog, newJob())
	n.silent()
	n.kernel(n.xidLine(0, 95, "pid=4711, name=x, Uncontained: LTC TAG (0x2,0x1). RST: Yes, D-RST: No"))
	var b strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&b, "3,%d,%d,-;%s\n", 5000+i, (5000+i)*1_000_000, n.xidLine(1, 13, fmt.Sprintf("pid=%d, name=x, Graphics Exception", 5000+i)))
	}
	log, err := os.OpenFile(n.world.KernelLog(), os.O_APPEND|os.O_WRONLY, 0)
	must(t, err)
	_, err = log.WriteString(b.String())
	must(t, err)
	must(t, log.Close())
	n.ended(29)
	if v, k := n.endOf(100).Verdict, n.endOf(100).Kernel; v.Code != code.XidFatal || len(n.fatals()) != 1 || len(k.Xids) > 20 {
		t.Errorf("%+v, %d lines on record", v, len(k.Xids))
	}
}

// An end that cannot look at the job's card judges what the kernel's log says of the card that the start recorded. Only
// within that life of the driver is it certain: a reload may have cured the card.
func TestXidOfABlindEnd(t *testing.T) {
	away := func(n *node) { must(n, os.Rename(n.world.DriverProc(), n.world.DriverProc()+".away")) }
	for name, tt := range map[string]struct {
		harm   func(n *node)
		other  code.Code // what else is found
		exit   int
		action config.Action
	}{
		"the driver is stuck": {harm: func(n *node) { n.freeze() }, other: code.Stuck, exit: 29, action: config.Drain},
		"the card has gone": {harm: func(n *node) {
			must(n, os.RemoveAll(filepath.Join(n.world.DriverProc(), "gpus", n.world.BusID(0))))
		}, other: code.Missing, exit: 29, action: config.Drain},
		"no driver any more": {harm: away, other: code.NoDriver, exit: 29, action: config.Drain},
		"reloaded since":     {harm: func(n *node) { must(n, n.world.ReloadModule()) }, other: code.NoRecord, action: config.Warn},
		"unloaded since": {harm: func(n *node) { away(n); must(n, os.RemoveAll(filepath.Join(n.world.Sys(), "module/nvidia"))) },
			other: code.NoDriver, action: config.Warn},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, "enforce")
			n.clean(prolog, newJob())
			device := n.run(100).Devices[0].Device
			n.silent()
			n.kernel(n.xidLine(0, 79, "pid=4711, name=secret, GPU has fallen off the bus."))
			n.kernel(n.xidLine(1, 79, "pid=4711, name=secret, GPU has fallen off the bus."))
			tt.harm(n)
			read, all := n.ended(tt.exit)
			found := n.fatals()
			if len(found) != 1 || found[0].GPU != device.ID || found[0].Index == nil || *found[0].Index != 0 ||
				(len(found[0].Doubts) == 0) != (tt.action == config.Drain) || !has(all, tt.other) {
				t.Fatalf("%+v", all)
			}
			if v := n.endOf(100).Verdict; v.Action != tt.action {
				t.Errorf("%+v", v)
			}
			if text := strings.Join(strings.Fields(read), " "); !strings.Contains(text, "GPU 0 of n1 had a fault") || !strings.Contains(text, "during your job") ||
				!strings.Contains(text, "Xid 79: the card has fallen off the bus") || strings.Contains(read, "4711") {
				t.Errorf("the user reads:\n%s", read)
			}
		})
	}
}

// freeze leaves a backend in the driver that nothing can end, by an end of another job.
func (n *node) freeze() {
	n.Helper()
	n.clean(prolog, bystanding())
	must(n, n.world.Set("on.nvmlDeviceGetMemoryInfo_v2", "freeze"))
	n.configure(func(c *conf) { c.tight = true })
	n.hook(epilog, bystanding())
	n.configure(func(c *conf) { c.tight = false })
	if len(n.stuck()) != 1 {
		n.Fatalf("stuck: %v\n%s", n.stuck(), n.log())
	}
	n.Cleanup(func() { n.unstick("nvmlDeviceGetMemoryInfo_v2") })
}

// An Xid of another boot is no business of this job's, whatever number its line has.
func TestXidOfAnotherBoot(t *testing.T) {
	n := newNode(t, "enforce")
	n.configure(func(c *conf) { c.proc = n.in("proc") })
	boot := func(id string) {
		must(t, os.MkdirAll(n.in("proc/sys/kernel/random"), 0o755))
		must(t, os.WriteFile(n.in("proc/sys/kernel/random/boot_id"), []byte(id+"\n"), 0o644))
	}
	boot("one")
	n.hook(prolog, newJob())
	n.silent()
	n.kernel(n.xidLine(0, 79, "GPU has fallen off the bus."))
	boot("two")
	n.hook(epilog, newJob())
	if found := n.fatals(); len(found) != 0 {
		t.Errorf("%+v", found)
	}
}

// An admin reads of each process that an Xid names whose job's it was, where a hook saw it in that job's cgroup.
func TestXidNamesTheJob(t *testing.T) {
	n := newNode(t, "enforce")
	n.configure(func(c *conf) { c.settle = "{max: 2s, flat: 800ms}" })
	n.clean(prolog, newJob())
	own, other := n.leftover(), n.leftover("--gpu", "1")
	n.inCgroup(own, "100")
	n.move(other, filepath.Base(n.dir)+"b_slurmstepd.scope", "job_7/step_batch/user/task_0")
	n.clean(prolog, bystanding()) // sees them both
	own.End()
	n.kernel(n.xidLine(0, 31, fmt.Sprintf("pid=%d, name=x, Ch 00000008", own.PID)))
	n.kernel(n.xidLine(0, 31, fmt.Sprintf("pid=%d, name=x, Ch 00000008", other.PID)))
	n.kernel(n.xidLine(0, 31, "pid=4194303, name=x, Ch 00000008"))
	read, all := n.ended(0)
	want := fmt.Sprintf("PID %d of this job, PID %d of another job, PID 4194303: Ch 00000008", own.PID, other.PID)
	if f := n.found(all, code.Xid); f.Xid != 31 || !strings.Contains(f.Observed, want) {
		t.Errorf("%+v, want Xid 31 and %q", f, want)
	}
	for _, secret := range []string{fmt.Sprint(own.PID), fmt.Sprint(other.PID), "another job"} {
		if strings.Contains(read, secret) {
			t.Errorf("the user reads %q:\n%s", secret, read)
		}
	}
}

// Entries that were overwritten before they were read are noted: an Xid may be among them.
func TestLostEntriesAreNoted(t *testing.T) {
	n := newNode(t, "enforce")
	n.configure(func(c *conf) { c.onUnknown = "drain" })
	n.clean(prolog, newJob())
	must(t, os.WriteFile(n.world.KernelLog(), []byte("6,90000,90000000000,-;eth0: link is up\n"), 0o600))
	read, all := n.ended(0)
	if f := n.found(all, code.Untraced); !strings.Contains(f.Unknown, "kernel's log") || f.GPU != gpu.ID("") || len(all) != 1 {
		t.Errorf("%+v", all)
	}
	if len(lines(read, "left clean")) != 1 {
		t.Errorf("the user reads:\n%s", read)
	}
}
