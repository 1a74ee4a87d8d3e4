package node

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

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
	a = Unconfigured(child.Env{Clock: child.SystemClock()}, phase, 0)
	a.Config.Paths.Run, a.Job.Node = run, "n1"
	opened, faults := a.OpenState()
	if !opened {
		t.Fatal(faults)
	}
	return a, run
}

// A stuck reader that cannot be put on record is the last that this hook starts.
func TestUnkeptReader(t *testing.T) {
	a := Unconfigured(child.Env{Clock: child.SystemClock()}, slurm.Epilog, 0)
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

// Records that cannot be read make findings uncertain, and the hook says why.
func TestUnreadRecordsAreReported(t *testing.T) {
	a, run := open(t, slurm.Epilog)
	must.Do(t, os.WriteFile(filepath.Join(run, "state/n1/damaged"), nil, 0o600)) // a file in the place of a directory
	n, faults := Records(a.Store)
	if n.Unread == "" || len(faults) == 0 {
		t.Errorf("got unread %q and faults %+v, want both", n.Unread, faults)
	}
}

// The kernel names what a process runs by where it lies, whatever link the configuration names it by.
func TestBackendBehindALink(t *testing.T) {
	dir := must.Have(filepath.EvalSymlinks(t.TempDir()))(t)
	must.Do(t, os.WriteFile(dir+"/bookend-gpu", nil, 0o755))
	must.Do(t, os.Symlink(dir, dir+"/current"))
	is := isBackend(dir + "/current/bookend-gpu")
	for exe, want := range map[string]bool{dir + "/bookend-gpu": true, dir + "/bookend-gpu (deleted)": true, dir + "/other": false, "": false} {
		if got := is(record.Holding{Process: record.Process{Exe: exe}}); got != want {
			t.Errorf("%q: %v", exe, got)
		}
	}
}

// The hooks that wait for this one's answer go on as soon as its stuck child is on record, which keeps them from asking.
func TestRecordOfAStuckChildEndsTheWait(t *testing.T) {
	a, _ := open(t, slurm.Epilog)
	a.Config.Paths.Proc = "/proc"
	_, refused := a.meet(state.Library)
	must.Not(t, refused != nil, "%+v", refused)
	must.Fail(t, "before", must.Err(a.Store.Turns.AskDriver(state.Library, time.Now(), 0)), state.ErrLocked)
	_, ticks, err := child.Parent("/proc", os.Getpid())
	must.Do(t, err)
	a.Troubles(Answer{Abandoned: &state.Stuck{PID: os.Getpid(), StartTicks: ticks}}, "")
	_, refused = a.meet(state.Library)
	must.Not(t, refused == nil || refused.Troubles[0].Code != catalog.Stuck, "%+v", refused)
	must.Do(t, must.Err(a.Store.Turns.AskDriver(state.Library, time.Time{}, 0)))
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

// A lost GPU that the driver reports outside a reading may be another job's: it never drains, nor does an error of the
// driver in a test, after it has answered.
func TestLostByTheDriver(t *testing.T) {
	a, _ := open(t, slurm.Epilog)
	faults := []gpu.Fault{{Code: gpu.FaultLost, Detail: "GPU is lost"}, {Code: gpu.FaultDriver, Detail: "oops"}}
	for in, doubts := range map[string]int{"": 0, "the test allocation: ": 1} {
		found := a.Troubles(Answer{Faults: faults}, in)
		i := slices.IndexFunc(found, func(f record.Finding) bool { return f.Code == catalog.Lost })
		if len(found) != 2 || i < 0 || len(found[i].Doubts) != 1 || len(found[1-i].Doubts) != doubts {
			t.Errorf("%q: %+v", in, found)
		}
	}
}

// A backend that gets stuck after its answer and cannot be put on record is a finding, whichever step met it: nothing
// keeps other hooks from the driver.
func TestStuckAfterItsAnswerAndNotOnRecord(t *testing.T) {
	for name, meets := range map[string]func(*Access) []record.Finding{
		"the next question": func(a *Access) []record.Finding {
			return a.Troubles(a.ask(protocol.Request{}, Params{}), "")
		},
		"a search of /proc": func(a *Access) []record.Finding {
			a.unkept = true // no child is started
			e := &observer{a: a}
			e.Holders(0)
			faults := e.faults
			return faults
		},
	} {
		a, run := open(t, slurm.Epilog)
		a.Env.Stderr = io.Discard
		a.ending = func() Answer { return Answer{Abandoned: &state.Stuck{PID: 70}} }
		must.Do(t, os.RemoveAll(run))
		unwritten := func(f record.Finding) bool { return f.Code == catalog.StateWrite }
		if found := meets(a); !slices.ContainsFunc(found, unwritten) {
			t.Errorf("%s: %+v", name, found)
		}
	}
}
