package faults

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"bookend/internal/code"
	"bookend/internal/diagnosis"
	"bookend/internal/gpu"
	"bookend/test/fakegpu"
)

// causes are the names of those that an end answered with yes.
func (n *node) causes() (yes []diagnosis.Name) {
	n.Helper()
	d := n.endOf(100).Diagnosis
	if d == nil {
		n.Fatalf("no one asked why: %+v", n.endOf(100))
	}
	for _, c := range d.Causes {
		if c.Answer == diagnosis.Yes {
			yes = append(yes, c.Name)
		}
	}
	return yes
}

// runsOut is a job's program that runs out of memory as its arguments say.
func runsOut(args ...string) func(*node) string {
	return func(n *node) string {
		said, _ := n.program(append([]string{"alloc", "--torch"}, args...)...)
		return said
	}
}

// limited is one that cannot start for want of address space.
func limited(n *node) string {
	n.Helper()
	said, _ := n.wrapped(exec.Command("/bin/sh", "-c",
		"ulimit -v 8388608; exec "+n.world.FakeCUDA()+" alloc --mib 100 --torch"))
	return said
}

// shortages are what those who run out of memory are in.
var shortages = map[string]struct {
	before func(n *node)               // the job
	runs   func(n *node) (said string) // the job's program
	yes    []diagnosis.Name
	reads  []string
}{
	"its own use": {
		runs: runsOut("--mib", "130000", "--ask", "20000"), yes: []diagnosis.Name{diagnosis.Own},
		reads: []string{"OUT OF MEMORY on n1 GPU 0: your job itself used up the GPU",
			"Ruled out: other users, ", "127.5 GiB in use, 19.5 GiB more asked, of 139.8 GiB"},
	},
	"somebody else's process": {
		before: func(n *node) { n.guest() }, runs: runsOut("--mib", "20000", "--ask", "40000"),
		yes: []diagnosis.Name{diagnosis.Others},
		reads: []string{"OUT OF MEMORY on n1 GPU 0: another process held memory of your GPU",
			"98.2 GiB when your job began, since ", "Try: another node: sbatch --exclude=n1"},
	},
	"memory of an earlier job, without a process": {
		before: func(n *node) {
			n.clean(prolog, numbered(99))
			n.exported(100000)
			n.exits(0, epilog, numbered(99))
			n.found(n.endOf(99).Findings, code.Residue)
		},
		runs: runsOut("--mib", "20000", "--ask", "40000"), yes: []diagnosis.Name{diagnosis.Leftover, diagnosis.Unlisted},
		reads: []string{"OUT OF MEMORY on n1 GPU 0: an earlier job left GPU memory in use",
			"97.7 GiB when your job began, probably by your job 99"},
	},
	"ulimit -v": {
		runs: func(n *node) string {
			n.task(taskProlog, newJob().With("SLURM_RLIMIT_AS", "U8589934592"))
			return limited(n)
		},
		yes: []diagnosis.Name{diagnosis.Limits},
		reads: []string{"limit -v is 8.0 GiB; CUDA needs far more than the GPU's memory",
			"Try: ulimit -v unlimited"},
	},
	"a fault of the GPU": {
		before: (*node).silent, yes: []diagnosis.Name{diagnosis.Fault},
		runs: func(n *node) string {
			n.kernel(n.xidLine(0, 79, offTheBus))
			return "RuntimeError: CUDA error: out of memory\n"
		},
		reads: []string{"he driver reported a fault of the GPU"},
	},
}

// What those who run out of memory are in, told in the job's own output by both hooks of real processes on a GPU. The
// table of package diagnosis has every cause.
func TestWhyOutOfMemory(t *testing.T) {
	for name, tt := range shortages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, "observe")
			if tt.before != nil {
				tt.before(n)
			}
			j := n.begin(newJob())
			said := tt.runs(n)
			told := n.finish(j, failed, "epoch 1\n"+said)
			if yes := n.causes(); !slices.Equal(yes, tt.yes) {
				t.Errorf("yes is answered for %v: %+v\nof %s", yes, n.endOf(100).Diagnosis, said)
			}
			for _, part := range tt.reads {
				if !strings.Contains(unfolded(told), part) {
					t.Errorf("want %q, the user reads:\n%s", part, strings.Join(told, "\n"))
				}
			}
			if shown, _ := n.bookend("show", "100"); len(lines(shown, "    YES ")) != len(tt.yes) {
				t.Errorf("show:\n%s", shown)
			}
		})
	}
}

// Nobody is told a story without a reason, or where the admin wants none; an admin may want one of every job. To one
// whose job ended well the findings say it all; where there are none left, no more is told than what was there.
func TestWhyIsAsked(t *testing.T) {
	own := runsOut("--mib", "130000", "--ask", "20000")
	well := func(*node) string { return "done\n" }
	for name, tt := range map[string]struct {
		show   string
		before func(n *node) *fakegpu.Program
		runs   func(n *node) string
		status string
		lines  int // of the report; 0: several
		reads  string
	}{
		"none":       {"none", nil, own, failed, -1, ""},
		"problems":   {"problems", nil, well, "0", -1, ""},
		"ended well": {"summary", nil, well, "0", 1, "n1 GPU 0 clean: 139.8 of 139.8 GiB free"},
		"ended well all the same": {"summary", nil, own, "0", 0,
			"OUT OF MEMORY on n1 GPU 0, but your job ended without an error: your job itself"},
		"somebody was there": {"summary", (*node).guest, well, "0", 0,
			"Seen while your job ran: another process held memory of your GPU 98.2 GiB when your"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, "observe")
			n.configure(func(c *conf) { c.extra = "job_log: " + tt.show + "\n" })
			gone := func() {}
			if tt.before != nil {
				gone = tt.before(n).End
			}
			j := n.begin(newJob())
			gone()
			told := n.finish(j, tt.status, tt.runs(n))
			if !strings.Contains(unfolded(told), tt.reads) || tt.lines != 0 && len(told) != max(0, tt.lines) ||
				tt.lines == 0 && len(told) < 3 {
				t.Errorf("want %q, the user reads:\n%s", tt.reads, strings.Join(told, "\n"))
			}
			if d := n.endOf(100).Diagnosis; (d == nil) != (tt.status == "0" && tt.lines != 0) { // an admin may ask later
				t.Errorf("%+v", d)
			}
		})
	}
}

// switched requires the changes of accounting that the driver was asked for.
func (n *node) switched(want ...string) {
	n.Helper()
	all, err := n.world.AccountingSwitches()
	must(n, err)
	if !slices.Equal(all, want) {
		n.Errorf("switched: %q, want %q", all, want)
	}
}

// The driver kept what the job's process had at most, though it was gone long before the job's end.
func TestPeak(t *testing.T) {
	n := newNode(t, "enforce", fakegpu.With("gpu0.accounting_mode", "1"), fakegpu.With("gpu1.accounting_mode", "1"))
	// an earlier job's
	n.set("gpu0.accounted", fmt.Sprintf("4711:140000:%d:1000:0", time.Now().Add(-time.Hour).UnixMicro()))
	j := n.begin(newJob())
	said, pid := n.program("alloc", "--mib", "100000", "--ask", "60000", "--torch")
	n.finish(j, failed, said)
	const peak = 100000 + 527 - 9 // MiB: what the driver shows of a process, its context included
	e := n.endOf(100)
	peaks, kept := e.Diagnosis.Peaks, e.Health[0].Accounting.Processes
	if len(peaks) != 1 || peaks[0].PID != pid || peaks[0].Peak != gpu.Bytes(peak<<20) || len(kept) != 1 ||
		kept[0].PID != pid {
		t.Errorf("%+v, %+v", peaks, kept)
	}
	n.shows(fmt.Sprintf("peak: PID %d had 98.2 GiB at most", pid), "show", "100")
	n.switched()
}

// Where the admin wants it, a start switches it on for the job's GPUs; nothing ever switches it off.
func TestAccountingIsSwitchedOn(t *testing.T) {
	n := newNode(t, "enforce")
	n.configure(func(c *conf) { c.library += ", accounting: true" })
	n.clean(prolog, newJob())
	n.switched("0 1")
	_, pid := n.program("alloc", "--mib", "1000", "--sleep", "0.01")
	n.clean(epilog, newJob())
	if kept := n.endOf(100).Health[0].Accounting.Processes; len(kept) != 1 || kept[0].PID != pid {
		t.Errorf("%+v", kept)
	}
	n.configure(func(c *conf) { c.library = n.world.NVML() }) // the admin has thought better of it
	n.job(102)
	n.switched("0 1")
}
