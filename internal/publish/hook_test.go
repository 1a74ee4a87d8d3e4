package publish

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/config"
	"bookend/internal/drain"
	"bookend/internal/gpu"
	"bookend/internal/judge"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/internal/state"
	"bookend/test/must"
	"bookend/test/onrecord"
)

// A finding is one line of the log, and the same one as long as only its figures wander.
func TestWords(t *testing.T) {
	index := 3
	f := record.Finding{
		Code: catalog.Orphan, GPU: "GPU-a", Index: &index, Bytes: gpu.Bytes(2 << 30),
		Holder: &record.Holder{Process: record.Process{PID: 70, Name: "x"}},
		Owner:  &record.Owner{Job: 9, Level: record.BySighting},
	}
	for want, f := range map[string]record.Finding{
		"GPU 3, 2048 MiB, process 70, job 9 (sighting)": f,
		"GPU GPU-a, unknown: no reading":                {Code: catalog.Unread, GPU: "GPU-a", Unknown: "no reading"},
		"as it was seen":                                {Code: catalog.BadEnv, Observed: "as it was seen"},
	} {
		if got := words(f); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	more := f
	if more.Bytes = gpu.Bytes(1); subject(f) != subject(more) {
		t.Errorf("%q, then %q: a figure that wanders is said again", subject(f), subject(more))
	}
}

// Of two hooks that drain at the same moment one writes its reason: not the one whose decision another has overtaken.
func TestOneReason(t *testing.T) {
	for _, overtaken := range []bool{true, false} {
		a, run := onrecord.Node(t, slurm.Epilog)
		a.Config.Slurm.Scontrol = filepath.Join(run, "missing")
		if overtaken {
			must.Do(t, a.Store.SwapDrain(drain.Remembered{}, drain.Remembered{Settled: []drain.Ref{{Job: 6}}}))
		}
		own := drain.Exit{Ref: drain.Ref{Job: 7, At: time.Hour}, Phase: slurm.Epilog, Wall: a.Env.Clock.Wall(),
			Reason: "BKD-RESIDUE gpu=0 600MiB job=7 epilog; see: bookend show 7", Causes: []drain.Cause{{Code: catalog.Residue, GPU: "GPU-a"}}}
		_, _, err := writeReason(a, scontrol(a, "", func() time.Duration { return time.Second }), drain.Facts{Now: a.Env.Clock.Wall()}, own)
		if (err == nil) != overtaken {
			t.Errorf("overtaken %v: %v, want scontrol, which is missing, started or not", overtaken, err)
		}
	}
}

// A hook that exits 0 drains by scontrol alone, whichever program is to write reasons. The node's state afterwards
// counts: a drain that did not come about is a finding.
func TestDrainByScontrol(t *testing.T) {
	const up, down = "IDLE", "IDLE+COMPLETING+DRAIN"
	for name, tt := range map[string]struct {
		before, after, want string
		by                  config.ReasonBy
		quarantined         bool // the other GPU
	}{
		"drains":                     {up, down, "", config.ReasonByHook, false},
		"another in quarantine":      {up, down, "", config.ReasonByHook, true},
		"drains, reasons by another": {up, down, "", config.ReasonByNone, false},
		"is not drained":             {up, up, "the node was not drained: drain node", config.ReasonByHook, false},
		"another state":              {"DOWN", "DOWN", "the node was not drained: the node's state has DOWN", config.ReasonByHook, false},
		"no answer":                  {"", "", "the node was not drained: read node", config.ReasonByHook, false},
		"drained already":            {down, down, "the node is drained without a reason", config.ReasonByHook, false},
	} {
		a, run := onrecord.Node(t, slurm.Epilog)
		a.Env.EUID = 1 // the script need not be trusted
		a.Job.ID, a.Config.Drain.ReasonBy, a.Config.Slurm.Scontrol = 7, tt.by, filepath.Join(run, "scontrol")
		a.Deadline.End = a.Env.Clock.Boot() + reasonCalls*reasonTime + time.Duration(a.Times.Outputs) // no spread
		show := "printf 'NodeName=n1 \\n   State=%s \\n'"
		text := fmt.Sprintf("#!/bin/sh\n[ $1 = show ] || { echo \"$*\" >$0.told; exit; }\n[ -e $0.told ] && "+show+" || "+show+"\n",
			tt.after, tt.before)
		must.Do(t, os.WriteFile(a.Config.Slurm.Scontrol, []byte(text), 0o755))
		epoch := gpu.Epoch{Boot: "b1", Driver: "580", Module: "m1"}
		must.Do(t, state.LastCheck.Save(a.Store, &record.Check{Wall: a.Env.Clock.Wall(), Epoch: epoch, Cards: []record.Assigned{
			{Index: 0, Device: gpu.Device{ID: "GPU-a"}}, {Index: 1, Device: gpu.Device{ID: "GPU-b"}}}}))
		end := record.End{At: time.Hour, Findings: []record.Finding{{Code: catalog.Lost, GPU: "GPU-a", Index: new(0)}}, Verdict: record.Verdict{
			Action: config.Drain, Exit: 10, ByScontrol: true, Code: catalog.Lost, Judged: []record.Judged{{Action: config.Drain}}}}
		hint := "; 1 of 2 good: bookend quarantine --resume 0"
		if tt.quarantined {
			hint = ""
			must.Do(t, a.Store.Quarantine(state.Quarantine{GPU: 1}, []slurm.JobID{9}))
		}
		found := Reason(a, judge.Seen{Epoch: epoch}, end)
		got := ""
		for _, f := range found {
			got += f.Observed
		}
		if !strings.HasPrefix(got, tt.want) || (got == "") != (tt.want == "") || len(found) > 1 {
			t.Errorf("%s: %+v, want %q", name, found, tt.want)
		}
		told, _ := os.ReadFile(a.Config.Slurm.Scontrol + ".told")
		if want := "update NodeName=n1 State=DRAIN Reason=BKD-LOST gpu=0 job=7 epilog; see: bookend show 7" + hint + "\n"; (string(told) == want) != (tt.before == up) {
			t.Errorf("%s: scontrol was told %q", name, told)
		}
		m := must.Have(a.Store.Drain())(t)
		must.Be(t, name+": on record as ours", m.Written != nil, tt.before == up)
	}
}

// A health check that would drain says that the node is drained already, which is no new drain for the metrics.
func TestDrainedBeforeACheck(t *testing.T) {
	for state, drained := range map[string]bool{"IDLE+DRAIN": true, "MIXED": false} {
		a, run := onrecord.Node(t, slurm.HealthCheck)
		a.Env.EUID, a.Config.Slurm.Scontrol = 1, filepath.Join(run, "scontrol")
		a.Deadline.End = a.Env.Clock.Boot() + time.Minute
		text := fmt.Sprintf("#!/bin/sh\nprintf 'NodeName=n1 \\n   State=%s \\n'\n", state)
		must.Do(t, os.WriteFile(a.Config.Slurm.Scontrol, []byte(text), 0o755))
		j := judge.Judgement{Found: []record.Finding{{Code: catalog.Lost, GPU: "GPU-a"}},
			Verdict: record.Verdict{Action: config.Drain, Code: catalog.Lost, Judged: []record.Judged{{Action: config.Drain}}}}
		was, held, faults := DrainIdle(a, judge.Check{}, j)
		must.Not(t, was.Drained() != drained || held == "" || len(faults) > 0, "%s: %+v, %q, %+v", state, was, held, faults)
	}
}

// An exit that a damaged record held is forgotten, also when an earlier hook met the damage and even when the GPUs have
// been clean since: the health check does not resume the node without it.
func TestDrainOfADamagedRecord(t *testing.T) {
	a, _ := onrecord.Epilog(t, false)
	input := func() drain.Facts {
		in, _ := drainInput(a, judge.Seen{Epoch: gpu.Epoch{Boot: "b1"}}, drain.Remembered{})
		return in
	}
	in := input()
	must.Not(t, in.Partial || in.Lost, "a whole record: %+v", in)
	records := must.Have(filepath.Glob(filepath.Join(a.Config.Paths.Run, "state/n1/*/*.json")))(t)
	must.Be(t, "records", len(records), 1)
	must.Do(t, os.WriteFile(records[0], []byte("{"), 0o600))
	_, damage := a.Store.Runs()
	must.Be(t, "an earlier hook's damage", len(damage), 1)
	in = input()
	must.Not(t, in.Partial || !in.Lost, "set aside: %+v", in)
	must.Do(t, a.Store.Settle(7))
	in = input()
	must.Not(t, in.Partial || !in.Lost, "settled: %+v", in)
}
