package operation

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/attrib"
	"bookend/internal/finding"
	"bookend/internal/slurm"
)

const (
	ages  = time.Minute           // a grace that nothing in these tests waits out
	short = 50 * time.Millisecond // one for those who do
)

var job = slurm.Owner{ID: 42}

// spawn starts a shell that says when it is ready, and stays until its stdin ends.
func spawn(t *testing.T, script string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", script+"; echo ready; read line")
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("%q: %q, %v", script, line, err)
	}
	return cmd
}

// read looks at a process as package holders does, as far as it matters here: all are in the job's cgroup.
func read(pid int) attrib.Process {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return attrib.Process{PID: pid, Gone: true}
	}
	if err != nil {
		return attrib.Process{PID: pid, Why: err.Error()}
	}
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	ticks, err := strconv.ParseUint(string(fields[19]), 10, 64)
	if err != nil {
		return attrib.Process{PID: pid, Why: err.Error()}
	}
	return attrib.Process{
		PID: pid, Start: time.Duration(ticks) * attrib.Tick, State: string(fields[0]), Gone: string(fields[0]) == "Z", Cgroup: job,
	}
}

func owned(p attrib.Process) bool { return p.Cgroup == job }

func order(grace time.Duration) Order {
	return Order{Proc: "/proc", Read: read, Owned: owned, Grace: grace}
}

// until waits for a state of a process, which the kernel brings about by itself.
func until(t *testing.T, pid int, state string) {
	t.Helper()
	for range 30000 {
		if read(pid).State == state {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatalf("process %d is %q, not %q", pid, read(pid).State, state)
}

func alive(pid int) bool { p := read(pid); return !p.Gone && p.Why == "" }

func TestEnd(t *testing.T) {
	for name, tt := range map[string]struct {
		script string
		before func(t *testing.T, pid int)
		grace  time.Duration
		want   finding.Outcome
	}{
		"one that obeys":    {"true", nil, ages, finding.ByTerm},
		"one that does not": {"trap '' TERM HUP INT", nil, short, finding.ByKill},
		"one that is stopped": {"true", func(t *testing.T, pid int) {
			if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			until(t, pid, "T")
		}, short, finding.ByKill},
		"a zombie": {"true", func(t *testing.T, pid int) {
			if err := unix.Kill(pid, unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			until(t, pid, "Z")
		}, ages, finding.AlreadyGone},
	} {
		t.Run(name, func(t *testing.T) {
			pid := spawn(t, tt.script).Process.Pid
			judged := read(pid)
			if tt.before != nil {
				tt.before(t, pid)
			}
			got := End(order(tt.grace), []attrib.Process{judged})
			if len(got) != 1 || got[0] != (Result{PID: pid, Outcome: tt.want}) {
				t.Errorf("%+v, want %s", got, tt.want)
			}
			if alive(pid) {
				t.Error("it is still there")
			}
		})
	}
}

// All share one grace, each gets its own outcome, in order.
func TestEndSeveral(t *testing.T) {
	obeys, ignores, reaped := spawn(t, "true"), spawn(t, "trap '' TERM"), spawn(t, "true")
	judged := []attrib.Process{read(obeys.Process.Pid), read(ignores.Process.Pid), read(reaped.Process.Pid), {PID: 1, Start: 1}}
	_ = reaped.Process.Kill()
	_ = reaped.Wait()
	var got []finding.Outcome
	for i, r := range End(order(short), judged) {
		if r.PID != judged[i].PID {
			t.Errorf("result %d is of %d, want %d", i, r.PID, judged[i].PID)
		}
		got = append(got, r.Outcome)
	}
	if want := []finding.Outcome{finding.ByTerm, finding.ByKill, finding.AlreadyGone, finding.Refused}; len(got) != 4 || got[0] != want[0] || got[1] != want[1] || got[2] != want[2] || got[3] != want[3] {
		t.Errorf("%v, want %v", got, want)
	}
}

// Whatever is not the very process that was judged, still proven, gets no signal.
func TestEndLeavesAlone(t *testing.T) {
	for name, tt := range map[string]struct {
		second func(attrib.Process) attrib.Process // what the look at the pinned process says
		open   error
		want   finding.Outcome
		why    string
	}{
		"its PID is another's":       {second: func(p attrib.Process) attrib.Process { p.Start += attrib.Tick; return p }, want: finding.AlreadyGone},
		"its cgroup is another's":    {second: func(p attrib.Process) attrib.Process { p.Cgroup.ID = 43; return p }, want: finding.Refused, why: "not proven"},
		"no cgroup any more":         {second: func(p attrib.Process) attrib.Process { p.Cgroup = slurm.Owner{}; return p }, want: finding.Refused, why: "not proven"},
		"it is Slurm's":              {second: func(p attrib.Process) attrib.Process { p.Cgroup.Daemon = true; return p }, want: finding.Refused, why: "Slurm's own"},
		"it calls itself Slurm's":    {second: func(p attrib.Process) attrib.Process { p.Name = "slurmstepd"; return p }, want: finding.Refused, why: "Slurm's own"},
		"it cannot be read":          {second: func(p attrib.Process) attrib.Process { return attrib.Process{PID: p.PID, Why: "denied"} }, want: finding.Refused, why: "denied"},
		"another was read":           {second: func(p attrib.Process) attrib.Process { p.PID++; return p }, want: finding.Refused, why: "read again"},
		"it went":                    {second: func(p attrib.Process) attrib.Process { return attrib.Process{PID: p.PID, Gone: true} }, want: finding.AlreadyGone},
		"a kernel without pidfd":     {open: unix.ENOSYS, want: finding.Refused, why: "no pidfd"},
		"it went before":             {open: unix.ESRCH, want: finding.AlreadyGone},
		"no descriptors left":        {open: unix.EMFILE, want: finding.Refused, why: "too many open files"},
		"a thread, and no process":   {open: unix.EINVAL, want: finding.Refused, why: "invalid argument"},
		"a sandbox that says no":     {open: unix.EPERM, want: finding.Refused, why: "not permitted"},
		"what is opened is no pidfd": {want: finding.Refused, why: "send SIGTERM: bad file descriptor"},
	} {
		t.Run(name, func(t *testing.T) {
			pid := spawn(t, "true").Process.Pid
			o := order(short)
			if tt.second != nil {
				o.Read = func(pid int) attrib.Process { return tt.second(read(pid)) }
			} else {
				o.testOnlyOpen = func(int) (int, error) {
					if tt.open != nil {
						return -1, tt.open
					}
					return unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
				}
			}
			got := End(o, []attrib.Process{read(pid)})[0]
			if got.PID != pid || got.Outcome != tt.want || !strings.Contains(got.Why, tt.why) {
				t.Errorf("%+v, want %s because of %q", got, tt.want, tt.why)
			}
			if !alive(pid) {
				t.Error("it was ended")
			}
		})
	}
}

// What is never to be ended is not even opened.
func TestEndNever(t *testing.T) {
	var opened []int
	o := order(short)
	o.Owned = func(attrib.Process) bool { return true }
	o.testOnlyOpen = func(pid int) (int, error) { opened = append(opened, pid); return -1, unix.ESRCH }
	stranger := spawn(t, "true").Process.Pid
	known := func(pid int) attrib.Process { return attrib.Process{PID: pid, Start: time.Second} }
	for name, p := range map[string]attrib.Process{
		"itself": known(os.Getpid()), "its parent": known(os.Getppid()), "the first": known(1), "none": known(0), "a group": known(-stranger),
		"gone when it was judged": {PID: stranger, Gone: true, Start: time.Second}, "not read": {PID: stranger, Why: "denied", Start: time.Second},
		"without a start": {PID: stranger},
	} {
		if got := End(o, []attrib.Process{p}); got[0].Outcome != finding.Refused || got[0].Why == "" {
			t.Errorf("%s: %+v", name, got)
		}
	}
	o.Proc = t.TempDir()
	if got := End(o, []attrib.Process{known(stranger)}); got[0].Outcome != finding.Refused || !strings.Contains(got[0].Why, "ancestors") {
		t.Errorf("ancestors unknown: %+v", got)
	}
	if len(opened) > 0 {
		t.Errorf("opened %v", opened)
	}
}

// A process that hangs in the kernel takes its signals and stays: so does one whose signals get lost.
func TestEndStillThere(t *testing.T) {
	pid := spawn(t, "true").Process.Pid
	var sent []unix.Signal
	o := order(short)
	o.testOnlySend = func(_ int, sig unix.Signal) error { sent = append(sent, sig); return nil }
	got := End(o, []attrib.Process{read(pid)})[0]
	if got.PID != pid || got.Outcome != finding.StillThere || got.Why == "" || len(sent) != 2 || sent[0] != unix.SIGTERM || sent[1] != unix.SIGKILL {
		t.Errorf("%+v, sent %v", got, sent)
	}
	o.testOnlySend = func(_ int, sig unix.Signal) error { return map[unix.Signal]error{unix.SIGKILL: unix.EPERM}[sig] }
	if got := End(o, []attrib.Process{read(pid)})[0]; got.Outcome != finding.StillThere || !strings.Contains(got.Why, "SIGKILL") {
		t.Errorf("SIGKILL not permitted: %+v", got)
	}
}

// A process that stays keeps no other waiting: at the last look each one that has ended is told.
func TestWaitTellsEachThatEnded(t *testing.T) {
	const pairs = 32
	results, pinned := make([]Result, 2*pairs), map[int]int{}
	for i := range results {
		ends := make([]int, 2)
		if err := unix.Pipe(ends); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Close(ends[1]) })
		if pinned[i] = ends[0]; i >= pairs {
			t.Cleanup(func() { _ = unix.Close(ends[0]) })
		} else if _, err := unix.Write(ends[1], []byte{0}); err != nil { // readable, as a process that has ended is
			t.Fatal(err)
		}
	}
	wait(pinned, results, 0, finding.ByTerm)
	for i, r := range results {
		if _, waited := pinned[i]; waited != (i >= pairs) || (r.Outcome == finding.ByTerm) == waited {
			t.Errorf("descriptor %d: %+v, still waited for: %v", i, r, waited)
		}
	}
}

// Each of several processes gets the signal, and with none left there is nothing to wait for.
func TestSignalsEach(t *testing.T) {
	sent := map[int]unix.Signal{}
	o := Order{testOnlySend: func(fd int, sig unix.Signal) error { sent[fd] = sig; return nil }}
	o.signal(map[int]int{0: 100, 1: 101, 2: 102}, make([]Result, 3), unix.SIGTERM)
	if len(sent) != 3 || sent[101] != unix.SIGTERM {
		t.Errorf("sent: %v", sent)
	}
	wait(nil, nil, time.Hour, finding.ByTerm) // longer than a test may take
}
