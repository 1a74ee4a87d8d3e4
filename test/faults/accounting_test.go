package faults

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"bookend/internal/diagnosis"
	"bookend/internal/gpu"
	"bookend/internal/slurm"
	"bookend/test/fakegpu"
)

// accounting is a node where it is on, as the driver keeps it from an earlier job or an admin.
func accounting(t *testing.T, mode string, options ...fakegpu.Option) *node {
	t.Helper()
	return newNode(t, mode, append(options, fakegpu.With("gpu0.accounting_mode", "1"), fakegpu.With("gpu1.accounting_mode", "1"))...)
}

// switches are the changes of accounting that the driver was asked for.
func (n *node) switches() []string {
	n.Helper()
	all, err := n.world.AccountingSwitches()
	must(n, err)
	return all
}

// The driver kept what the job's process had at most, though it was gone long before the job's end.
func TestPeak(t *testing.T) {
	n := accounting(t, "enforce")
	hourAgo := time.Now().Add(-time.Hour).UnixMicro()
	must(t, n.world.Set("gpu0.accounted", fmt.Sprintf("4711:140000:%d:1000:0", hourAgo))) // an earlier job's
	j := n.begin(newJob())
	said, pid := n.program("alloc", "--mib", "100000", "--ask", "60000", "--torch")
	told := n.finish(j, failed, said)
	const peak = 100000 + 527 - 9 // MiB: what the driver shows of a process, its context included
	if want := fmt.Sprintf("| bookend:   Peak:   98.2 GiB (process %d)", pid); !slices.Contains(told, want) {
		t.Errorf("want %q:\n%s", want, strings.Join(told, "\n"))
	}
	e := n.endOf(100)
	if len(e.Diagnosis.Peaks) != 1 || e.Diagnosis.Peaks[0].PID != pid || e.Diagnosis.Peaks[0].Peak != gpu.Bytes(peak<<20) {
		t.Errorf("%+v", e.Diagnosis)
	}
	if a := e.Health[0].Accounting; a.Mode != "on" || len(a.Processes) != 1 || a.Processes[0].PID != pid {
		t.Errorf("%+v", a)
	}
	if shown, _ := n.bookend("show", "100"); len(lines(shown, fmt.Sprintf("peak: PID %d had %d MiB at most", pid, peak))) != 1 {
		t.Errorf("show:\n%s", shown)
	}
	if all := n.switches(); len(all) != 0 {
		t.Errorf("switched: %q", all)
	}
}

// A job that ended well with nothing to tell reads one line, accounting or not.
func TestPeakOfAJobThatEndedWell(t *testing.T) {
	n := accounting(t, "enforce")
	j := n.begin(newJob())
	n.program("alloc", "--mib", "1000", "--sleep", "0.01")
	if told := n.finish(j, "0", "done\n"); len(told) != 1 || !strings.Contains(told[0], "left clean by your job") {
		t.Errorf("%q", told)
	}
}

// Where somebody else was on the card, nobody's peak is given out for the job's.
func TestPeakOfOthers(t *testing.T) {
	n := accounting(t, "observe")
	j := n.begin(newJob())
	foreign := n.holder(bystander, nil, "--mib", "30000")
	said, pid := n.program("alloc", "--mib", "90000", "--ask", "60000", "--torch")
	told := strings.Join(n.finish(j, failed, said), "\n")
	if strings.Contains(told, fmt.Sprint(foreign.PID)) || strings.Contains(told, fmt.Sprint(pid)) || strings.Contains(told, "Peak:") {
		t.Errorf("the user reads:\n%s", told)
	}
	if e := n.endOf(100); len(e.Health[0].Accounting.Processes) != 2 || len(e.Diagnosis.Peaks) != 0 {
		t.Errorf("%+v %+v", e.Health, e.Diagnosis)
	}
}

// Without accounting, and without a message's figures, nobody can tell what the job used; who can change that is told how.
func TestAccountingOff(t *testing.T) {
	n := newNode(t, "enforce")
	j := n.begin(newJob())
	told := n.finish(j, failed, "RuntimeError: CUDA error: out of memory\n")
	if text := unfolded(told); !strings.Contains(text, "cannot tell your own use: not measured: accounting is off (your admin can set nvidia.accounting)") {
		t.Errorf("the user reads:\n%s", strings.Join(told, "\n"))
	}
	if c := n.endOf(100).Diagnosis.Cause(diagnosis.Own); c.Answer != diagnosis.Unknown {
		t.Errorf("%+v", c)
	}
	if all := n.switches(); len(all) != 0 { // as shipped
		t.Errorf("switched: %q", all)
	}
}

// Where the admin wants it, a start switches it on for the job's cards; nothing ever switches it off.
func TestAccountingIsSwitchedOn(t *testing.T) {
	n := newNode(t, "enforce")
	n.configure(func(c *conf) { c.library += ", accounting: true" })
	for _, id := range []slurm.JobID{100, 101} {
		n.clean(prolog, numbered(id))
		if all := n.switches(); !slices.Equal(all, []string{"0 1"}) {
			t.Errorf("start of %d: %q", id, all)
		}
		_, pid := n.program("alloc", "--mib", "1000", "--sleep", "0.01")
		n.clean(epilog, numbered(id))
		if e := n.endOf(id); len(e.Health[0].Accounting.Processes) != 1 || e.Health[0].Accounting.Processes[0].PID != pid {
			t.Errorf("%+v", e.Health)
		}
	}
	n.configure(func(c *conf) { c.library = n.world.NVML() }) // the admin has thought better of it
	n.clean(prolog, numbered(102))
	n.clean(epilog, numbered(102))
	if all := n.switches(); !slices.Equal(all, []string{"0 1"}) {
		t.Errorf("%q", all)
	}
}

// A driver that does not let it be switched on is none the worse for it.
func TestAccountingRefused(t *testing.T) {
	for rule, says := range map[string]string{"rc 4": "(4)", "rc 3": "(3)", "rc 999": "(999)"} {
		t.Run(rule, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, "enforce")
			n.configure(func(c *conf) { c.library, c.onUnknown = c.library+", accounting: true", "drain" })
			must(t, n.world.Set("on.nvmlDeviceSetAccountingMode", rule))
			n.clean(prolog, newJob())
			if e := n.startOf(100); len(e.Findings) != 0 || len(e.Health) != 1 || !strings.Contains(e.Health[0].Accounting.Unknown, says) {
				t.Errorf("%+v %+v", e.Findings, e.Health)
			}
			n.clean(epilog, newJob())
			if e := n.endOf(100); len(e.Findings) != 0 || e.Health[0].Accounting.Mode != "off" {
				t.Errorf("%+v %+v", e.Findings, e.Health)
			}
		})
	}
}
