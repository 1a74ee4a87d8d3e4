package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"bookend/internal/code"
	"bookend/internal/diagnosis"
	"bookend/internal/slurm"
)

// Of two epilogs of one end beside each other the second may be the only one whose exit code anybody reads: where what
// the first left is on record still open, it judges as that one does, though Slurm tells no start time.
func TestSecondEpilogJudgesAsTheFirst(t *testing.T) {
	t.Parallel()
	n := newNode(t, "enforce")
	n.configure(func(c *conf) { c.settle = "{max: 5s, flat: 2500ms}" }) // time enough for the second to begin
	n.clean(prolog, newJob())
	n.leftover()
	first := n.start(epilog, newJob())
	await(t, "the first epilog at work", func() bool {
		_, err := os.Stat(filepath.Join(n.conf.run, "state", nodeName, "lock-ends"))
		return err == nil
	})
	second := n.hook(epilog, newJob())
	if o := first.wait(); o.exit != 10 || second.exit != 10 {
		t.Errorf("first %v, second %v: %+v", o, second, n.run(100).Ends)
	}
}

// A second epilog whose first one dies is the end of the job: its owner reads the report, and why memory ran out.
func TestSecondEpilogAfterTheFirstDied(t *testing.T) {
	for _, at := range []string{"epilog", "prolog", "never"} {
		t.Run("tests at "+at, func(t *testing.T) { t.Parallel(); secondAfterTheFirstDied(t, "probe: {at: "+at+"}\n") })
	}
}

func secondAfterTheFirstDied(t *testing.T, config string) {
	n := newNode(t, "enforce")
	n.configure(func(c *conf) { c.extra = config })
	j := n.begin(newJob().with("SLURM_JOB_START_TIME", "1790000000"))
	output := j["SLURM_JOB_STDOUT"]
	must(t, os.WriteFile(output, []byte("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB.\n"), 0o644))
	must(t, n.world.Set("on.nvmlDeviceGetMemoryInfo_v2", "freeze"))
	// The start's answer may be so new that hooks do not wait for one another.
	must(t, os.Remove(filepath.Join(n.conf.run, "state", nodeName, "answered.json")))
	e := j.with("SLURM_SCRIPT_CONTEXT", string(slurm.Epilog), "SLURM_JOB_EXIT_CODE", failed, "SLURM_JOB_DERIVED_EC", "0")
	first := n.start(ending, e)
	first.backend()
	second := n.start(ending, e)
	await(t, "the second epilog, which waits for its turn with the driver", func() bool {
		open, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", second.cmd.Process.Pid))
		return slices.ContainsFunc(open, func(fd string) bool {
			file, _ := os.Readlink(fd)
			return filepath.Base(file) == "lock-driver"
		})
	})
	must(t, syscall.Kill(-first.cmd.Process.Pid, syscall.SIGKILL))
	first.wait()
	must(t, n.world.Set("on.nvmlDeviceGetMemoryInfo_v2", ""))
	must(t, n.world.Thaw())
	second.wait()
	text, err := os.ReadFile(output)
	must(t, err)
	if d := n.endOf(100).Diagnosis; d == nil || d.Reason != diagnosis.ByMessage || !strings.Contains(string(text), "Why out of memory:") {
		t.Errorf("diagnosis %+v, output:\n%s", d, text)
	}
}

// A hook that dies while it ends a leftover has asked it to end already: one that does not is killed all the same.
func TestCleanUpOutlivesItsHook(t *testing.T) {
	t.Parallel()
	n := newNode(t, "enforce")
	n.configure(func(c *conf) {
		c.extra, c.settle = "clean_up: {enabled: true, grace: 2s}\n", "{max: 2s, flat: 800ms}"
	})
	n.clean(prolog, newJob())
	p := n.leftover("--stop")
	n.inCgroup(p, "100")
	h := n.start(epilog, newJob())
	await(t, "the clean-up", func() bool { return len(ownChildren("cleanup", h.cmd.Process.Pid)) == 1 })
	must(t, syscall.Kill(-h.cmd.Process.Pid, syscall.SIGKILL))
	h.wait()
	await(t, "the leftover's end", func() bool { return syscall.Kill(p.PID, 0) != nil || zombie(t, p.PID) })
}

// A child that hangs reading /proc is no driver that hangs. Earlier releases put both in one record.
func TestStuckInProcIsNoDriverFault(t *testing.T) {
	t.Parallel()
	for op, want := range map[string]diagnosis.Answer{"holders": diagnosis.No, "backend": diagnosis.Yes} {
		n := newNode(t, "enforce")
		j := n.begin(newJob())
		stat, err := os.ReadFile("/proc/self/stat")
		must(t, err)
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		stuck := fmt.Sprintf(`{"pid":%d,"start_ticks":%s,"since_ns":1,"op":%q}`, os.Getpid(), fields[19], op)
		must(t, os.WriteFile(filepath.Join(n.conf.run, "state", nodeName, "stuck.json"), []byte(stuck), 0o600))
		_, exit := n.end(j, failed, "x\n")
		if c := n.endOf(100).Diagnosis.Cause(diagnosis.Fault); exit != 0 || c.Answer != want || has(n.findings(epilog), code.Stuck) != (op == "backend") {
			t.Errorf("%s: exit %d, %+v", op, exit, c)
		}
		blamed := len(lines(n.log(), string(code.Stuck)+":", "driver not answering")) > 0
		if shown, _ := n.bookend("status"); blamed != (op == "backend") || strings.Contains(shown, "driver not answering") != blamed {
			t.Errorf("%s:\n%s\n%s", op, shown, n.log())
		}
	}
}
