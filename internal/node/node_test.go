package node

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"bookend/internal/backend"
	"bookend/internal/catalog"
	"bookend/internal/child"
	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/procscan"
	"bookend/internal/protocol"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/internal/state"
	"bookend/test/must"
)

func open(t *testing.T, phase slurm.Context) (a *Access, run string) {
	t.Helper()
	run = t.TempDir()
	a = With(child.Env{Clock: child.SystemClock()}, phase, config.Default(), 0)
	a.Config.Paths.Run, a.Job.Node = run, "n1"
	opened, faults := a.OpenState()
	if !opened {
		t.Fatal(faults)
	}
	return a, run
}

// A stuck reader that cannot be put on record is the last that this hook starts.
func TestUnkeptReader(t *testing.T) {
	a := With(child.Env{Clock: child.SystemClock()}, slurm.Epilog, config.Default(), 0)
	a.Config.Paths.Run = t.TempDir()
	for _, tt := range []struct {
		outcome child.Outcome
		want    bool
	}{{child.Hung, false}, {child.Abandoned, true}} {
		failure := &child.Error{Op: procscan.HoldersOp, Result: child.Result{Outcome: tt.outcome}}
		a.AbandonedReader(failure, nil)
		if a.unkept != tt.want {
			t.Errorf("after a reader that was %s: got %v, want %v", tt.outcome, a.unkept, tt.want)
		}
	}
}

// Two findings with the same words are reported once.
func TestOnce(t *testing.T) {
	said := []record.Finding{{Unknown: "a"}}
	news := Once([]record.Finding{{Unknown: "a"}, {Unknown: "b"}, {Unknown: "b"}, {Unknown: "c"}}, said)
	if len(news) != 2 || news[0].Unknown != "b" || news[1].Unknown != "c" {
		t.Errorf("got %+v, want b and c", news)
	}
}

// The kernel names what a process runs by where it lies, whatever link the configuration names it by.
func TestBackendBehindALink(t *testing.T) {
	dir := must.Have(filepath.EvalSymlinks(t.TempDir()))(t)
	must.Do(t, os.WriteFile(dir+"/bookend-gpu", nil, 0o755))
	must.Do(t, os.Symlink(dir, dir+"/current"))
	a := &Access{}
	a.Config.Backend = dir + "/current/bookend-gpu"
	for exe, want := range map[string]bool{dir + "/bookend-gpu": true, dir + "/bookend-gpu (deleted)": true, dir + "/other": false, "": false} {
		if got := a.isBackend(record.Holding{Process: record.Process{Exe: exe}}); got != want {
			t.Errorf("%q: %v", exe, got)
		}
	}
}

// The hooks that wait for this one's answer go on as soon as its stuck child is on record, which keeps them from asking.
func TestRecordOfAStuckChildEndsTheWait(t *testing.T) {
	a, _ := open(t, slurm.Epilog)
	a.Config.Paths.Proc = "/proc"
	_, refused := a.Meet()
	must.Not(t, refused != nil, "%+v", refused)
	must.Fail(t, "before", must.Err(a.Store.Turns.AskDriver(0)), state.ErrLocked)
	_, ticks, err := child.Parent("/proc", os.Getpid())
	must.Do(t, err)
	a.Troubles(backend.Answer{Abandoned: &backend.Abandoned{PID: os.Getpid(), StartTicks: ticks}}, "")
	_, refused = a.Meet()
	must.Not(t, refused == nil || refused.Troubles[0].Code != catalog.Stuck, "%+v", refused)
	must.Do(t, must.Err(a.Store.Turns.AskDriver(0)))
}

// A hook that waited for another's answer watches as long as it was asked to, if that fits.
func TestWithin(t *testing.T) {
	const second = time.Second
	for name, tt := range map[string]struct {
		watch, deadline, left time.Duration
		want, wantDeadline    time.Duration
	}{
		"it fits":          {second, 7 * second, 5 * second, second, 5 * second},
		"it fits just so":  {second, 7 * second, second + BackendReserve, second, second + BackendReserve},
		"it does not":      {6 * second, 7 * second, 5 * second, 5*second - BackendReserve, 5 * second},
		"there is no time": {second, 7 * second, 100 * time.Millisecond, 0, 100 * time.Millisecond},
		"more than asked":  {second, 3 * second, 5 * second, second, 3 * second},
		"no watch":         {0, 7 * second, 5 * second, 0, 5 * second},
	} {
		r := Within(protocol.Request{DeadlineMillis: tt.deadline.Milliseconds(), Watch: gpu.WatchRule{Max: tt.watch}}, tt.left)
		if r.Watch.Max != tt.want || r.DeadlineMillis != tt.wantDeadline.Milliseconds() {
			t.Errorf("%s: watch %v, deadline %d ms", name, r.Watch.Max, r.DeadlineMillis)
		}
	}
}

// Each hook has its own phase's deadlines; a health check has its own, and watches as an end does.
func TestTimesOfAPhase(t *testing.T) {
	want := config.Default()
	for phase, times := range map[slurm.Context]config.HookDeadline{
		slurm.Prolog: want.Deadlines.Prolog, slurm.Epilog: want.Deadlines.Epilog,
		slurm.HealthCheck: want.Deadlines.HealthCheck.Hook(),
	} {
		missing := filepath.Join(t.TempDir(), "missing.yaml")
		a, _ := Configured(child.Env{Getenv: func(string) string { return missing }, EUID: 1, Clock: child.SystemClock()}, phase, 0)
		settle := want.Settle.Epilog
		if phase == slurm.Prolog {
			settle = want.Settle.Prolog
		}
		if a.Times != times || a.Settle != settle {
			t.Errorf("%s: %+v and %+v, want %+v and %+v", phase, a.Times, a.Settle, times, settle)
		}
	}
}

// A lost GPU that the driver reports outside a reading may be another job's: it never drains.
func TestLostByTheDriver(t *testing.T) {
	a, _ := open(t, slurm.Epilog)
	faults := []gpu.Fault{{Code: gpu.FaultLost, Detail: "GPU is lost"}, {Code: gpu.FaultDriver, Detail: "oops"}}
	found := a.Troubles(backend.Answer{Faults: faults}, "watch: ")
	i := slices.IndexFunc(found, func(f record.Finding) bool { return f.Code == catalog.Lost })
	if len(found) != 2 || i < 0 || len(found[i].Doubts) != 1 || len(found[1-i].Doubts) != 0 {
		t.Errorf("%+v", found)
	}
}

// Which readers of /proc keep a new one from being started.
func TestHungAt(t *testing.T) {
	at := []record.Instance{{PID: 70, Start: 1}}
	many := make([]state.Stuck, state.MaxReaders)
	for i := range many {
		many[i] = state.Stuck{Op: procscan.HoldersOp, At: at}
	}
	for name, tt := range map[string]struct {
		readers []state.Stuck
		at      int
		blocked bool
	}{
		"none":              {nil, 0, false},
		"one":               {many[:1], 1, false},
		"did not say":       {[]state.Stuck{{Op: procscan.HoldersOp}}, 0, true},
		"another operation": {[]state.Stuck{{Op: procscan.ProcessesOp}}, 0, false},
		"nearly too many":   {many[1:], state.MaxReaders - 1, false},
		"too many":          {many, 1, false}, // the one that stands for all
	} {
		skip, blocked := hungAt(procscan.HoldersOp, tt.readers)
		must.Not(t, len(skip) != tt.at || blocked != tt.blocked, "%s: got %d places, blocked %v", name, len(skip), blocked)
	}
}

// A backend that gets stuck after its answer and cannot be put on record is a finding, whichever step met it: nothing
// keeps other hooks from the driver.
func TestStuckAfterItsAnswerAndNotOnRecord(t *testing.T) {
	for name, meets := range map[string]func(*Access) []record.Finding{
		"the next question": func(a *Access) []record.Finding {
			return a.Troubles(a.Ask(protocol.Request{}, backend.Params{}), "")
		},
		"a search of /proc": func(a *Access) []record.Finding {
			a.unkept = true // no child is started
			_, faults := a.Holders(0)
			return faults
		},
	} {
		a, run := open(t, slurm.Epilog)
		a.Env.Stderr = io.Discard
		a.ending = func() backend.Answer { return backend.Answer{Abandoned: &backend.Abandoned{PID: 70}} }
		must.Do(t, os.RemoveAll(run))
		unwritten := func(f record.Finding) bool { return f.Code == catalog.StateWrite }
		if found := meets(a); !slices.ContainsFunc(found, unwritten) {
			t.Errorf("%s: %+v", name, found)
		}
	}
}
