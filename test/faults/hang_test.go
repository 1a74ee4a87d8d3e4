package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"bookend/internal/code"
)

// await waits for something that comes about in another process and cannot be waited for otherwise.
func await(t testing.TB, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(margin); !done(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// children are the processes that a process has started and that live.
func children(parent int, exe string) (pids []int) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range stats {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		if len(fields) < 2 || fields[0] == "Z" || fields[1] != strconv.Itoa(parent) {
			continue
		}
		if link, _ := os.Readlink(filepath.Join(filepath.Dir(file), "exe")); link == exe {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			pids = append(pids, pid)
		}
	}
	return pids
}

func stateOf(pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	return strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))[0]
}

// slurmd's own timeout: SIGTERM to the group, and 10 ms later SIGKILL, which counts as a failure. The hook ends
// with the verdict reached and takes its backend with it; what it says in that time is best effort.
func TestTerminated(t *testing.T) {
	for _, h := range hooks {
		t.Run(h.program, func(t *testing.T) {
			said := false
			for range 5 {
				if said = terminated(t, h) || said; said {
					break
				}
			}
			if !said {
				t.Error("never said nor recorded why it left")
			}
		})
	}
}

// terminated stops a hook in the middle of a hanging driver, and reports whether it had time for last words.
func terminated(t *testing.T, h hook) (said bool) {
	t.Helper()
	n := newNode(t, "enforce")
	n.mountRun("size=1m") // the record's place is a tmpfs
	n.configure(func(c *conf) { c.onUnknown = "drain" })
	n.clean(prolog, bystanding())
	if h == epilog {
		n.clean(prolog, newJob())
	}
	others := n.record()
	must(t, n.world.Set("on.nvmlDeviceGetMemoryInfo_v2", "hang-hard"))
	p := n.start(h, newJob())
	o := p.terminate(p.backend())
	if o.exit != 0 {
		t.Errorf("%v", o)
	}
	n.unharmed(others)
	return len(lines(o.output, "BKD-DEADLINE", "SIGTERM")) == 1 && has(n.findings(h), code.Deadline)
}

// Nobody reads what the hook says, and it has more to say than the pipe takes: it ends at its deadline, or where
// that is not known yet, after five seconds.
func TestWatchdog(t *testing.T) {
	config := func(n *node) { n.configure(func(c *conf) { c.extra = "nonsense: {}\n" }) }
	for _, tt := range []struct {
		name string
		hook hook
		harm func(*node)
	}{{"prolog", prolog, (*node).unlogged}, {"epilog", epilog, (*node).unlogged}, {"prolog's configuration", prolog, config}, {"epilog's configuration", epilog, config}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := tt.hook
			n := newNode(t, "enforce")
			n.clean(prolog, bystanding())
			if h == epilog {
				n.clean(prolog, newJob())
			}
			others := n.record()
			n.configure(func(c *conf) { c.tight = true })
			tt.harm(n)
			if exit := n.unheard(h, newJob()); exit != 0 {
				t.Errorf("exit %d", exit)
			}
			n.unharmed(others)
		})
	}
}

// A driver that even SIGKILL cannot free: given up at the deadline, and while the backend is stuck no hook
// starts another, whoever's it is. Once it has gone everything works again.
func TestStuckBackend(t *testing.T) {
	n := newNode(t, "enforce")
	n.clean(prolog, bystanding())
	others := n.record()
	n.configure(func(c *conf) { c.tight, c.onUnknown = true, "drain" })
	must(t, n.world.Set("on.nvmlDeviceGetMemoryInfo_v2", "freeze"))

	if o := n.hook(prolog, newJob()); o.exit != 0 || !has(n.findings(prolog), code.Hang) {
		t.Errorf("%v\n%s", o, n.log())
	}
	frozen := n.stuck()
	if len(frozen) != 1 {
		t.Fatalf("stuck: %v", frozen)
	}
	if shown, _ := n.bookend("status"); !strings.Contains(shown, "driver not answering since ") || !strings.Contains(shown, strconv.Itoa(frozen[0])) {
		t.Errorf("status:\n%s", shown)
	}
	for _, h := range []hook{epilog, prolog} {
		if o := n.hook(h, newJob()); o.exit != 0 {
			t.Errorf("%v", o)
		}
		if len(lines(n.log(), "findings: BKD-STUCK", h.program, "looks=0")) != 1 {
			t.Errorf("%s:\n%s", h.program, n.log())
		}
		if now := n.stuck(); len(now) != 1 || now[0] != frozen[0] {
			t.Errorf("stuck: %v, then %v", frozen, now)
		}
	}
	if !has(n.findings(epilog), code.Stuck) {
		t.Errorf("%+v", n.findings(epilog))
	}
	n.unharmed(others)

	n.unstick("nvmlDeviceGetMemoryInfo_v2")
	n.configure(func(c *conf) { c.tight = false })
	later := newJob().with("SLURM_JOB_ID", "101", "SLURM_JOBID", "101")
	n.clean(prolog, later)
	n.clean(epilog, later)
	if shown, _ := n.bookend("status"); strings.Contains(shown, "driver not answering") {
		t.Errorf("status:\n%s", shown)
	}
	n.unharmed(others)
}

// stuck are the backends of this node that live, by the world whose library they have loaded.
func (n *node) stuck() (pids []int) {
	maps, _ := filepath.Glob("/proc/[0-9]*/maps")
	for _, file := range maps {
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		text, err := os.ReadFile(file)
		if err == nil && strings.Contains(string(text), n.world.NVML()) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// backend waits for the one that a hook has started, and returns its process.
func (p *running) backend() int {
	p.Helper()
	var pids []int
	await(p, "the backend", func() bool {
		pids = children(p.cmd.Process.Pid, program("bookend-gpu"))
		return len(pids) == 1
	})
	return pids[0]
}

// terminate ends a hook as slurmd does at its own timeout, and its backend with it.
func (p *running) terminate(backend int) outcome {
	p.Helper()
	must(p, syscall.Kill(-p.cmd.Process.Pid, syscall.SIGTERM))
	o := p.wait()
	await(p, "the backend's end", func() bool { return stateOf(backend) == "" || stateOf(backend) == "Z" })
	return o
}

// unstick lets a driver answer again that a call had frozen, and waits until whoever was in it is gone.
func (n *node) unstick(call string) {
	n.Helper()
	must(n, n.world.Set("on."+call, ""))
	must(n, n.world.Thaw())
	await(n, "the stuck backend's end", func() bool { return len(n.stuck()) == 0 })
}

// unlogged takes the log's folder away: a problem to be said on stderr.
func (n *node) unlogged() {
	n.Helper()
	must(n, os.RemoveAll(n.in("log")))
	must(n, os.WriteFile(n.in("log"), nil, 0o600))
}

// unheard runs a hook whose output has no room and no reader, which must end by its deadline all the same.
func (n *node) unheard(h hook, j job) (exit int) {
	n.Helper()
	r, w, err := os.Pipe()
	must(n, err)
	defer r.Close()
	fill(n, w)
	p := n.startWith(h, j, w)
	w.Close()
	select {
	case <-p.ended:
	case <-time.After(p.limit + margin):
		n.Fatal("still there after its deadline")
	}
	return p.cmd.ProcessState.ExitCode()
}

// fill leaves no room in a pipe.
func fill(t testing.TB, w *os.File) {
	t.Helper()
	raw, err := w.SyscallConn()
	must(t, err)
	must(t, raw.Write(func(fd uintptr) bool {
		for {
			if _, err := syscall.Write(int(fd), make([]byte, 4096)); err != nil {
				return true
			}
		}
	}))
}

// An end that cannot ask the driver does not forget which cards the job had: later jobs are judged by it.
func TestBlindEndKeepsTheCards(t *testing.T) {
	n := newNode(t, "enforce")
	n.clean(prolog, newJob())
	before := n.run(100).Devices
	must(t, os.Rename(n.world.DriverProc(), n.world.DriverProc()+".away"))
	if o := n.hook(epilog, newJob()); o.exit != 0 {
		t.Errorf("%v", o)
	}
	if after := n.run(100); len(before) != 1 || len(after.Devices) != 1 || after.Devices[0].Device.ID != before[0].Device.ID || !after.Closed() {
		t.Errorf("cards were %+v, record is %+v", before, after)
	}
}
