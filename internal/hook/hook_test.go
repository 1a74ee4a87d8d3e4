package hook

import (
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/child"
	"bookend/internal/config"
	"bookend/internal/drain"
	"bookend/internal/gpu"
	"bookend/internal/judge"
	"bookend/internal/node"
	"bookend/internal/procscan"
	"bookend/internal/publish"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/internal/state"
	"bookend/test/must"
	"bookend/test/onrecord"
)

// Clean-up is for the one epilog of a run that slurmd itself runs, where an admin wants it. A hook without time ends no
// process, and says so.
func TestCleanUp(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*judge.Case)
		want   bool
	}{
		"enabled":                   {func(*judge.Case) {}, true},
		"off":                       {func(c *judge.Case) { c.Config.CleanUp.Enabled = false }, false},
		"inside the job":            {func(c *judge.Case) { c.InJob = true }, false},
		"its end is on record":      {func(c *judge.Case) { c.Past.Turn = judge.Repeated }, false},
		"another epilog is at work": {func(c *judge.Case) { c.Past.Turn = judge.Concurrent }, false},
	} {
		a, _ := onrecord.Node(t, slurm.Epilog)
		c := a.Case()
		c.Config.CleanUp.Enabled = true
		tt.change(&c)
		if got := mayCleanUp(c); got != tt.want {
			t.Errorf("%s: may clean up: got %v, want %v", name, got, tt.want)
		}
		a.Deadline.End = a.Env.Clock.Boot() + time.Second
		if did, ended := endAll(a, c.Seen, []record.Holder{{}}); len(did) != 1 || did[0].Unknown == "" || ended {
			t.Errorf("got %+v and %v, want one finding that says why, and nothing ended", did, ended)
		}
	}
}

// A hook that is stuck ends at the deadline that the README promises for the default configuration, or 5 s after its
// start if it could not read its configuration. It runs on a clock of its own: no machine is too slow for this test.
func TestShippedDeadlineEndsHooks(t *testing.T) {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM) // its goroutine must not be of a test's bubble
	for _, tt := range []struct {
		hook    func(Env) int
		context slurm.Context
		stuck   string // reading this variable
		promise time.Duration
	}{
		{Prolog, slurm.Prolog, "SLURM_JOB_ID", 5 * time.Second},
		{Epilog, slurm.Epilog, "SLURM_JOB_ID", 15 * time.Second},
		{Prolog, slurm.Prolog, "BOOKEND_CONFIG", 5 * time.Second},
		{Epilog, slurm.Epilog, "BOOKEND_CONFIG", 5 * time.Second},
		{Prolog, slurm.TaskProlog, "SLURM_RLIMIT_AS", time.Second}, // the job's script waits for it
	} {
		environ := map[string]string{
			"SLURM_SCRIPT_CONTEXT": string(tt.context), "SLURM_JOB_GPUS": "0",
			"BOOKEND_CONFIG": filepath.Join(t.TempDir(), "missing.yaml"),
		}
		synctest.Test(t, func(t *testing.T) {
			began, ended := time.Now(), make(chan struct{})
			getenv := func(name string) string {
				if name == tt.stuck {
					<-ended
					runtime.Goexit() // what follows would write to this machine's own directories
				}
				return environ[name]
			}
			go tt.hook(Env{
				Args: []string{"bookend"}, Getenv: getenv, Stdout: io.Discard, Stderr: io.Discard, EUID: 1,
				Clock: child.Clock{Wall: time.Now, Boot: func() time.Duration { return time.Since(began) }},
				Exit:  func(int) { close(ended) },
			})
			<-ended
			if took := time.Since(began); took < tt.promise || took > tt.promise+deadlineWords {
				t.Errorf("%s stuck at %s: ended after %v, want %v", tt.context, tt.stuck, took, tt.promise)
			}
		})
	}
}

// A hook that is stopped leaves what its exit code follows from, without which the drain would have neither reason nor
// cause; of one that was stopped for something else it leaves that alone.
func TestStoppedAfterTheVerdict(t *testing.T) {
	for name, tt := range map[string]struct {
		found record.Finding
		later int // an exit code that follows from something else, 0 for none
		want  string
	}{
		"a lost GPU": {record.Finding{Code: catalog.Lost, GPU: "GPU-0"}, 0, "BKD-LOST BKD-DEADLINE"},
		"nothing":    {record.Finding{Code: catalog.Again}, 0, "BKD-DEADLINE"},
		"another":    {record.Finding{Code: catalog.Lost, GPU: "GPU-0"}, 42, "BKD-DEADLINE"},
	} {
		a, _ := onrecord.Node(t, slurm.Prolog)
		var said strings.Builder
		a.Env.Getenv, a.Env.Stderr = func(string) string { return "" }, &said
		a.Env.Clock.Boot = func() time.Duration { return time.Hour + 2*time.Second }
		a.Config.Mode = config.Enforce
		h, c := &hook{a: a}, a.Case()
		c.Faults = []record.Finding{tt.found}
		h.judge(c)
		if tt.later != 0 {
			h.stopped.reach(tt.later)
		}
		var left record.End
		h.stopped.setUnfinished(func(e record.End) { left = e })
		h.stopped.leave(a.Env, slurm.Prolog, time.Hour, "SIGTERM")
		if got := said.String(); got != "bookend: BKD-DEADLINE: stopped by SIGTERM after 2s\n" {
			t.Errorf("%s: said %q", name, got)
		}
		var codes []string
		for _, f := range left.Findings {
			codes = append(codes, string(f.Code))
		}
		if got := strings.Join(codes, " "); got != tt.want || left.Verdict.Exit != h.stopped.exitCode() {
			t.Errorf("%s: left %q, exit %d, want %q and %d", name, got, left.Verdict.Exit, tt.want, h.stopped.exitCode())
		}
		exit := drain.FromEnd(record.Run{}, slurm.Prolog, left)
		if tt.want == "BKD-LOST BKD-DEADLINE" && (len(exit.Causes) != 1 || exit.Causes[0].GPU != "GPU-0") {
			t.Errorf("%s: its causes are %+v", name, exit.Causes)
		}
	}
}

// A hook that is the first does not wait, and stays the first. One that had to wait for the first of its kind takes its
// place only if that has not closed the run.
func TestOutlast(t *testing.T) {
	for _, tt := range []struct {
		closed     bool
		turn, want judge.Turn
	}{
		{true, judge.First, judge.First},
		{true, judge.Concurrent, judge.Repeated}, {false, judge.Concurrent, judge.Undecided},
	} {
		a, c := onrecord.Epilog(t, tt.closed)
		c.Past.Turn = tt.turn
		if got := awaitFirst(a, c).Past.Turn; got != tt.want {
			t.Errorf("closed by the first %v: turn %v, then %v, want %v", tt.closed, tt.turn, got, tt.want)
		}
	}
}

// Ends do without slow facts only after a health check that read those of every GPU and found nothing.
func TestExamined(t *testing.T) {
	both := []gpu.Health{{Device: "GPU-a"}, {Device: "GPU-b"}}
	two := []gpu.Reading{{Device: gpu.Device{ID: "GPU-a"}}, {Device: gpu.Device{ID: "GPU-b"}}}
	for name, tt := range map[string]struct {
		seen   []gpu.Reading
		health []gpu.Health
		found  []record.Finding
		want   bool
	}{
		"all of them":    {two, both, nil, true},
		"one of two":     {two, both[:1], nil, false},
		"none":           {two, nil, nil, false},
		"nothing seen":   {nil, nil, nil, false},
		"with a finding": {two, both, []record.Finding{{Code: catalog.ECC}}, false},
	} {
		a, _ := onrecord.Node(t, slurm.HealthCheck)
		must.Do(t, state.LastExamined.Save(a.Store, time.Second))
		c := judge.Check{Case: a.Case()}
		c.Seen.Side.Snapshot.Readings, c.Seen.Health = tt.seen, tt.health
		faults := examined(a, c, judge.Judgement{Found: tt.found})
		if len(faults) > 0 || (state.LastExamined.Peek(a.Store) > 0) != tt.want {
			t.Errorf("%s: examined at %v, want any %v", name, state.LastExamined.Peek(a.Store), tt.want)
		}
	}
}

// Clean-up tells of which GPU it ended a process, by the first that lists it; one that only had a GPU open is on none.
func TestEndedOn(t *testing.T) {
	var seen judge.Seen
	for i, id := range []gpu.ID{"GPU-a", "GPU-b", "GPU-c"} {
		device := gpu.Device{ID: id}
		seen.Cards = append(seen.Cards, record.Assigned{Index: i, Device: device})
		reading := gpu.Reading{Device: device}
		if i > 0 {
			reading.Processes = []gpu.Process{{PID: 70}}
		}
		seen.Side.Snapshot.Readings = append(seen.Side.Snapshot.Readings, reading)
	}
	for pid, want := range map[int]gpu.ID{70: "GPU-b", 71: ""} {
		f := outcome(seen, record.Holder{Process: record.Process{PID: pid}}, procscan.CleanupResult{PID: pid})
		if f.GPU != want || (f.Index != nil) != (want != "") || f.Index != nil && *f.Index != 1 {
			t.Errorf("process %d: %+v, want it on %q", pid, f, want)
		}
	}
}

// An end that could not look keeps the GPUs of the start; one that could adds its own, and completes a start's life of
// the driver only where that knew none.
func TestCompleted(t *testing.T) {
	old, now := gpu.Epoch{Boot: "b", Driver: "570", Module: "1"}, gpu.Epoch{Boot: "b", Driver: "580", Module: "2"}
	of := func(ids ...gpu.ID) (all []record.Assigned) {
		for _, id := range ids {
			all = append(all, record.Assigned{Device: gpu.Device{ID: id}})
		}
		return all
	}
	for name, tt := range map[string]struct {
		began       gpu.Epoch
		start, seen []record.Assigned
		want        []record.Assigned
		epoch       gpu.Epoch
	}{
		"nothing seen":             {old, of("GPU-a"), nil, of("GPU-a"), old},
		"seen":                     {old, of("GPU-a"), of("GPU-a"), of("GPU-a"), old},
		"not known at the start":   {old, of(""), of("GPU-b"), of("GPU-b"), old},
		"of a later run":           {old, of("GPU-a", "GPU-b"), of("GPU-b", "GPU-c"), of("GPU-b", "GPU-c", "GPU-a"), old},
		"began without the driver": {gpu.Epoch{}, of("GPU-a"), nil, of("GPU-a"), now},
	} {
		c := judge.Case{Phase: slurm.Epilog}
		c.Past.Run = record.Run{Epoch: tt.began, Devices: tt.start}
		c.Seen.Cards, c.Seen.Epoch = tt.seen, now
		if run := completed(c); !slices.Equal(run.Devices, tt.want) || run.Epoch != tt.epoch {
			t.Errorf("%s: %+v, want %+v in %+v", name, run, tt.want, tt.epoch)
		}
	}
}

// A panic ends the steps of a hook, not what was found by then: that is reported with it, and the admin's policy
// decides.
func TestPanicBeforeAVerdict(t *testing.T) {
	a, c := onrecord.Epilog(t, true)
	a.Env.Stderr, a.Env.Getenv = io.Discard, func(string) string { return "" }
	a.Deadline.Clock.Boot = func() time.Duration { panic("no time") } // first asked in the middle of the observation
	c.Job, c.Job.GPUProblem = a.Job, "not told"                       // no driver is asked
	c.Config.Mode, c.Config.OnOwnError = config.Enforce, config.Drain
	h := &hook{a: a}
	o, worth := h.attempt(func(h *hook) (publish.Account, bool) { return epilog(h, c), true })
	var codes []catalog.Code
	for _, f := range o.Judgement.Found {
		codes = append(codes, f.Code)
	}
	want, exit := []catalog.Code{catalog.Again, catalog.Panicked}, catalog.Exit(catalog.Panicked)
	if !worth || !slices.Equal(codes, want) || h.stopped.exitCode() != exit {
		t.Errorf("found %v, exit %d, want %v and %d", codes, h.stopped.exitCode(), want, exit)
	}
	runs, _ := a.Store.Runs()
	if ends := runs[0].Ends; len(ends) != 2 || len(ends[1].Findings) != 2 || ends[1].Verdict.Exit != exit {
		t.Errorf("on record: %+v", ends)
	}
}

// A health check that panicked before it saw anything has not checked the node, and says so by its exit code.
func TestPanicOfACheck(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing.yaml")
	env := Env{Stderr: io.Discard, Getenv: func(string) string { return missing }, EUID: 1, Clock: child.SystemClock()}
	h := &hook{a: node.With(env, slurm.HealthCheck, config.Default(), 0), watchdog: newWatchdog()}
	h.attempt(func(h *hook) (publish.Account, bool) {
		h.configure()
		panic("a defect")
	})
	if got, want := h.stopped.exitCode(), catalog.Exit(catalog.Panicked); got != want {
		t.Errorf("exit %d, want %d", got, want)
	}
}

// Where not even the panic can be reported, the exit code is the one reached and not Go's own, which would drain the
// node.
func TestPanicOfTheReport(t *testing.T) {
	env := Env{Stderr: defect{}, EUID: 1, Clock: child.SystemClock()}
	exit := rootHook(env, slurm.Prolog, func(*hook) (publish.Account, bool) { panic("a defect") })
	if exit != 0 {
		t.Errorf("exit %d", exit)
	}
}

type defect struct{}

func (defect) Write([]byte) (int, error) { panic("another") }

// Where a hook exits 0 and scontrol drains, an error that stands counts as drained once the node is.
func TestDrainedOnceTheNodeIs(t *testing.T) {
	epoch := gpu.Epoch{Boot: "b", Driver: "580", Module: "m"}
	for after, want := range map[string]bool{"IDLE+COMPLETING+DRAIN": true, "IDLE": false} {
		a, run := onrecord.Node(t, slurm.Epilog)
		a.Env.EUID, a.Job.ID, a.Config.Slurm.Scontrol = 1, 7, filepath.Join(run, "scontrol")
		a.Deadline.End = a.Env.Clock.Boot() + 4*time.Second + time.Duration(a.Times.Outputs) // none left to spread calls
		const script = "#!/bin/sh\n[ $1 = show ] || { >$0.told; exit; }\nstate=IDLE\n[ -e $0.told ] && state="
		must.Do(t, os.WriteFile(a.Config.Slurm.Scontrol, []byte(script+after+"\nprintf 'NodeName=n1 \\n   State=%s \\n' $state\n"), 0o755))
		must.Do(t, state.Standing.Save(a.Store, record.Standing{Epoch: epoch, Faults: []record.StandingFault{
			{Xid: gpu.Xid{Code: 79, BusID: "0000:1b:00.0"}, GPU: "GPU-a"}}}))
		a.Env.Getenv = func(string) string { return "" }
		h := &hook{a: a}
		o := publish.Account{Case: a.Case(), Judgement: judge.Judgement{
			Found: []record.Finding{{Code: catalog.XidFatal, Xid: 79, GPU: "GPU-a", Earlier: true}},
			Verdict: record.Verdict{Action: config.Drain, Exit: 29, ByScontrol: true, Code: catalog.XidFatal,
				Judged: []record.Judged{{Action: config.Drain}}}}}
		o.Case.Seen.Epoch = epoch
		o = h.giveReason(o)
		kept := must.Have(state.Standing.Load(a.Store))(t)
		must.Not(t, len(kept.Faults) != 1 || kept.Faults[0].Drained != want, "%s: %+v, %+v", after, kept.Faults, o.Judgement.Found)
	}
}
