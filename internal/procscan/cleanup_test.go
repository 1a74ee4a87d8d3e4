package procscan

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/config"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/test/must"
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
	_, err := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	must.Do(t, errors.Join(err, err2, cmd.Start()))
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	must.Be(t, script, must.Have(bufio.NewReader(out).ReadString('\n'))(t), "ready\n")
	return cmd
}

// read looks at a process; all are in the job's cgroup.
func read(pid int) record.Process {
	p := Processes("/proc", "", []int{pid}, time.Minute)[0]
	p.Cgroup, p.EnvJobID = job, 0
	return p
}

// ends is clean-up of these processes of the job.
func ends(grace time.Duration, judged ...record.Process) *cleanup {
	return &cleanup{
		CleanupRequest: CleanupRequest{Proc: "/proc", Processes: judged, Owner: job, Grace: grace, Wait: time.Second}, read: read,
		open: func(pid int) (int, error) { return unix.PidfdOpen(pid, 0) },
		send: func(fd int, sig unix.Signal) error { return unix.PidfdSendSignal(fd, sig, nil, 0) },

		pinned: map[int]int{}, results: make([]CleanupResult, len(judged)),
	}
}

// awaitState waits for a state of a process, which the kernel brings about by itself.
func awaitState(t *testing.T, pid int, state string) {
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

// All share one grace, each gets its own outcome, in order.
func TestEnd(t *testing.T) {
	must.Slower(t, short, func(grace time.Duration) (enough bool) { return endsAll(t, grace) })
	quick := read(spawn(t, "true").Process.Pid)
	must.Be(t, "one that obeys", ends(ages, quick).run()[0].Outcome, record.ByTerm)
}

// endsAll ends processes of all kinds. It gives up if the first, which obeys, had not enough time for that.
func endsAll(t *testing.T, grace time.Duration) (enough bool) {
	t.Helper()
	kill := func(sig unix.Signal, state string) func(*testing.T, *exec.Cmd) {
		return func(t *testing.T, cmd *exec.Cmd) {
			must.Do(t, unix.Kill(cmd.Process.Pid, sig))
			awaitState(t, cmd.Process.Pid, state)
		}
	}
	var judged []record.Process
	var want []CleanupResult
	for _, tt := range []struct {
		script string
		before func(*testing.T, *exec.Cmd)
		want   record.Outcome
	}{
		{"true", nil, record.ByTerm},
		{"trap '' TERM HUP INT", nil, record.ByKill},
		{"true", kill(unix.SIGSTOP, "T"), record.ByKill},
		{"true", kill(unix.SIGKILL, "Z"), record.AlreadyGone},
		{"true", func(_ *testing.T, cmd *exec.Cmd) { _ = cmd.Process.Kill(); _ = cmd.Wait() }, record.AlreadyGone},
	} {
		cmd := spawn(t, tt.script)
		judged = append(judged, read(cmd.Process.Pid))
		want = append(want, CleanupResult{PID: cmd.Process.Pid, Outcome: tt.want})
		if tt.before != nil {
			tt.before(t, cmd)
		}
	}
	got := ends(grace, judged...).run()
	if got[0].Outcome == record.ByKill {
		return false
	}
	must.Be(t, "results", got, want)
	for _, p := range judged {
		must.Not(t, alive(p.PID), "%d is still there", p.PID)
	}
	return true
}

// Whatever is not the very process that was judged, still proven, gets no signal.
func TestEndLeavesAlone(t *testing.T) {
	now := func(edit func(*record.Process)) func(*cleanup) {
		return func(e *cleanup) {
			e.read = func(pid int) record.Process { p := read(pid); edit(&p); return p }
		}
	}
	opens := func(err error) func(*cleanup) {
		return func(e *cleanup) { e.open = func(int) (int, error) { return -1, err } }
	}
	for name, tt := range map[string]struct {
		edit func(*cleanup)
		want record.Outcome
		why  string
	}{
		"its PID is another's":    {now(func(p *record.Process) { p.Start += record.Tick }), record.AlreadyGone, ""},
		"no cgroup any more":      {now(func(p *record.Process) { p.Cgroup.ID = 0 }), record.Refused, "not proven"},
		"it is Slurm's":           {now(func(p *record.Process) { p.Cgroup.Daemon = true }), record.Refused, "Slurm's own"},
		"it calls itself Slurm's": {now(func(p *record.Process) { p.Name = "slurmstepd" }), record.Refused, "Slurm's own"},
		"it cannot be read":       {now(func(p *record.Process) { p.Why = "denied" }), record.Refused, "denied"},
		"another was read":        {now(func(p *record.Process) { p.PID++ }), record.Refused, "read again"},
		"it went":                 {now(func(p *record.Process) { p.Gone = true }), record.AlreadyGone, ""},
		"a kernel without pidfd":  {opens(unix.ENOSYS), record.Refused, "no pidfd"},
		"it went before":          {opens(unix.ESRCH), record.AlreadyGone, ""},
		"no descriptors left":     {opens(unix.EMFILE), record.Refused, "too many open files"},
		"a sandbox that says no":  {opens(unix.EPERM), record.Refused, "not permitted"},
		"what is opened is no pidfd": {func(e *cleanup) {
			e.open = func(int) (int, error) { return unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0) }
		}, record.Refused, "send SIGTERM: bad file descriptor"},
		"it has no start":         {func(e *cleanup) { e.Processes[0].Start = 0 }, record.Refused, "not known"},
		"gone when it was judged": {func(e *cleanup) { e.Processes[0].Gone = true }, record.Refused, "not known"},
		"not read then":           {func(e *cleanup) { e.Processes[0].Why = "denied" }, record.Refused, "not known"},
		"ancestors unknown":       {func(e *cleanup) { e.Proc = t.TempDir() }, record.Refused, "ancestors"},
		"ancestors not to be read": {func(e *cleanup) {
			e.Proc = t.TempDir()
			must.Do(t, os.MkdirAll(filepath.Join(e.Proc, strconv.Itoa(os.Getpid()), "stat"), 0o700))
		}, record.Refused, "ancestors"},
	} {
		t.Run(name, func(t *testing.T) {
			pid := spawn(t, "true").Process.Pid
			e := ends(short, read(pid))
			tt.edit(e)
			got := e.run()[0]
			must.Not(t, got.PID != pid || got.Outcome != tt.want || !strings.Contains(got.Why, tt.why), "%+v, not %+v", got, tt)
			must.Not(t, !alive(pid), "it was ended")
		})
	}
}

// What is never to be ended is not even opened.
func TestEndNever(t *testing.T) {
	stranger := spawn(t, "true").Process.Pid
	for name, pid := range map[string]int{
		"itself": os.Getpid(), "its parent": os.Getppid(), "the first": 1, "none": 0, "a group": -stranger,
	} {
		e := ends(short, record.Process{PID: pid, Start: time.Second})
		e.open = func(pid int) (int, error) { t.Errorf("%s: opened %d", name, pid); return -1, unix.ESRCH }
		got := e.run()[0]
		must.Not(t, got.Outcome != record.Refused || got.Why == "", "%s: %+v", name, got)
	}
}

// A process that hangs in the kernel takes its signals and stays: so does one whose signals get lost.
func TestEndStillThere(t *testing.T) {
	for name, kill := range map[string]error{"hangs": nil, "SIGKILL": unix.EPERM} {
		var sent []unix.Signal
		e := ends(short, read(spawn(t, "true").Process.Pid), read(spawn(t, "true").Process.Pid))
		e.send = func(_ int, sig unix.Signal) error {
			sent = append(sent, sig)
			return map[unix.Signal]error{unix.SIGKILL: kill}[sig]
		}
		for _, r := range e.run() {
			must.Not(t, r.Outcome != record.StillThere || !strings.Contains(r.Why, name), "%s: %+v", name, r)
		}
		want := []unix.Signal{unix.SIGTERM, unix.SIGTERM, unix.SIGKILL, unix.SIGKILL}
		must.Not(t, !slices.Equal(sent, want), "%s: sent %v, want %v", name, sent, want)
	}
}

// Before a process is ended it is proven again to be the one that was judged, and still the ended job's.
func TestProves(t *testing.T) {
	const start = 150 * time.Second
	in := func(o slurm.Owner) record.Process { return record.Process{PID: 70, Start: start, Cgroup: o} }
	another := record.Process{PID: 69, Start: start}
	job, none, run := slurm.Owner{ID: 10}, slurm.Owner{}, slurm.Owner{ID: 10, SLUID: "sA"}
	scope := slurm.Owner{SLUID: "sA"} // a run's cgroup that does not tell the id
	for name, tt := range map[string]struct {
		owner    slurm.Owner
		was, now record.Process
		want     bool
	}{
		"in the job's cgroup":                              {job, in(job), in(job), true},
		"in the run's cgroup":                              {run, in(scope), in(scope), true},
		"in a run's cgroup, of which only the id is known": {job, in(run), in(run), true},
		"seen there before":                                {job, in(none), in(none), true},
		"seen there before, and back in it":                {job, in(none), in(job), true},
		"out of the job's cgroup since":                    {job, in(job), in(none), false},
		"in another job's cgroup since":                    {job, in(job), in(slurm.Owner{ID: 11}), false},
		"in another run's cgroup since":                    {run, in(scope), in(slurm.Owner{ID: 10, SLUID: "sB"}), false},
		"seen before, now another job's":                   {job, in(none), in(slurm.Owner{ID: 11}), false},
		"a run of which the id is unknown":                 {scope, in(scope), in(slurm.Owner{Step: "0"}), false},
		"in two jobs' cgroups":                             {job, in(none), in(slurm.Owner{Conflict: "two jobs"}), false},
		"its PID reused":                                   {job, in(job), record.Process{PID: 70, Start: start + record.Tick, Cgroup: job}, false},
		"another process":                                  {job, in(job), record.Process{PID: 71, Start: start, Cgroup: job}, false},
	} {
		r := CleanupRequest{Owner: tt.owner, Processes: []record.Process{another, tt.was}}
		must.Be(t, name, r.proves(tt.now), tt.want)
	}
}

// A clean-up that the configuration allows is never stopped in the middle.
func TestLongestCleanup(t *testing.T) {
	grace, _ := reflect.TypeFor[config.CleanUp]().FieldByName("Grace")
	_, most, _ := strings.Cut(grace.Tag.Get("allow"), " to ")
	limit := must.Have(time.ParseDuration(most))(t) + 2*config.CleanUp{}.KillWait() + time.Second
	must.Not(t, limit > longest, "clean_up.grace: %s, so a clean-up may take %v", most, limit)
}
