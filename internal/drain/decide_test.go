package drain

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/test/golden"
	"bookend/test/must"
)

const reason42 = "BKD-ORPHAN gpu=0 2518MiB pid=4711 job=42 epilog; see: bookend show 42"

var (
	ended = time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC) // when the hook of job 42 had its verdict
	epoch = gpu.Epoch{Boot: "b1", Driver: "580", Module: "m1"}

	warns, drainsIt = record.Judged{Action: config.Warn}, record.Judged{Action: config.Drain}
)

// orphaned is the end of a job that left a process, and drained for it, so long after the hook of job 42.
func orphaned(id slurm.JobID, later time.Duration) record.Run {
	return record.Run{Job: slurm.Job{ID: id}, Epoch: epoch, Ends: []record.End{{
		At: time.Hour + later, Wall: ended.Add(later), SlurmConf: "/etc/slurm/slurm.conf",
		Findings: []record.Finding{about(catalog.Dirty, 1, 0, 0), about(catalog.Orphan, 0, 2518<<20, 4711)},
		Verdict: record.Verdict{
			Action: config.Drain, Exit: 10, Code: catalog.Orphan, Judged: []record.Judged{warns, drainsIt},
		},
	}}}
}

// lostAtStart is a start that drained for a lost card.
func lostAtStart(id slurm.JobID, later time.Duration) record.Run {
	f := about(catalog.Lost, 1, 0, 0)
	f.GPU = "GPU-b"
	return record.Run{Job: slurm.Job{ID: id}, Epoch: epoch, Start: &record.End{
		At: time.Hour + later, Wall: ended.Add(later), Findings: []record.Finding{f},
		Verdict: record.Verdict{Action: config.Drain, Exit: 20, Code: catalog.Lost, Judged: []record.Judged{drainsIt}},
	}}
}

// after is the moment of a health check, so long after the hook of job 42.
func after(d time.Duration) time.Time { return ended.Add(d) }

// asked is what a health check two minutes after that hook knows, of a node as Slurm leaves it.
func asked() Facts {
	return Facts{
		Now: after(2 * time.Minute), Epoch: epoch,
		Exits: Exits([]record.Run{orphaned(42, 0)}, "b1"),
		Node: slurm.Node{
			Flags: []string{"IDLE", "DRAIN"}, Reason: slurm.EpilogError, By: "root", At: ended.Add(time.Second),
		},
	}
}

func TestDecisions(t *testing.T) {
	defer func(here *time.Location) { time.Local = here }(time.Local)
	time.Local = time.UTC // in which the file has what an admin reads
	golden.Archive(t, *update, "testdata/decisions.txtar", func(given string) string {
		kind, edit, _ := strings.Cut(given, "\n")
		in := map[string]func() Facts{"first": asked, "stood": stood, "hook": func() Facts {
			return Facts{Now: after(time.Second), Node: slurm.Node{Flags: []string{"IDLE", "DRAIN"}, At: ended}}
		}, "check": func() Facts { return Facts{Now: after(time.Second), Node: slurm.Node{Flags: []string{"IDLE"}}} }}[kind]()
		if strings.Contains(edit, `"Exits"`) {
			in.Exits = nil
		}
		if edit != "" {
			must.Do(t, json.Unmarshal([]byte(edit), &in))
		}
		before := must.Have(json.Marshal(in))(t)
		decide := Decide
		if kind == "hook" {
			decide = func(in Facts) Decision { return AtHook(in, asked().Exits[0]) }
		}
		if kind == "check" {
			own := Exit{Phase: slurm.HealthCheck, Reason: "BKD-XIDFATAL g=0 healthcheck; see: bookend status"}
			decide = func(in Facts) Decision { return AtHook(in, own) }
		}
		d := decide(in)
		if last := d.Memory.Last; last == nil || last.Act != d.Act || last.Why != d.Why {
			t.Errorf("%s: remembered is %+v, want %s (%s)", given, last, d.Act, d.Why)
		}
		must.Be(t, "what was known", string(must.Have(json.Marshal(in))(t)), string(before))
		d.Memory.Last = nil
		return fmt.Sprintf("asked: %v (%s)\n%s: %s\n%s\n%s", in.Pending(), in.Conf(), d.Act, d.Why,
			must.Have(json.Marshal(d.Memory))(t), d.Reason)
	})
}

// A reason for one GPU's hardware says that the others are good, if all that is on record of them says so.
func TestHint(t *testing.T) {
	const alone = "BKD-LOST gpu=1 job=7 prolog; see: bookend show 7"
	of := func(code catalog.Code, id gpu.ID) record.Finding { return record.Finding{Code: code, GPU: id} }
	for name, tt := range map[string]struct {
		edit func(*Facts, *record.Run)
		want string
	}{
		"alone":        {func(*Facts, *record.Run) {}, "; 2 of 3 good: bookend quarantine --resume 1"},
		"a note":       {func(in *Facts, _ *record.Run) { in.Last.Findings = append(in.Last.Findings, of(catalog.Output, "")) }, "; 2 of 3 good: bookend quarantine --resume 1"},
		"lost already": {func(in *Facts, _ *record.Run) { in.Last.Cards = in.Last.Cards[1:] }, "; 2 of 3 good: bookend quarantine --resume 1"},
		"not judged": {func(in *Facts, _ *record.Run) {
			in.Last.Findings = append(in.Last.Findings, of(catalog.Unjudged, "GPU-a"))
		}, ""},
		"cut short":     {func(in *Facts, _ *record.Run) { in.Last.Rest = map[string]int{"findings": 1} }, ""},
		"no check":      {func(in *Facts, _ *record.Run) { in.Last = nil }, ""},
		"stopped":       {func(in *Facts, _ *record.Run) { in.Last.Stopped = true }, ""},
		"long ago":      {func(in *Facts, _ *record.Run) { in.Last.Wall = in.Now.Add(-2 * time.Hour) }, ""},
		"another epoch": {func(in *Facts, _ *record.Run) { in.Last.Epoch.Module = "m2" }, ""},
		"one GPU": {func(in *Facts, r *record.Run) {
			in.Last.Cards = in.Last.Cards[:1]
			in.Last.Cards[0].Index, r.Start.Findings[0].Index = 0, new(0)
		}, ""},
		"another is lost": {func(in *Facts, _ *record.Run) { in.Last.Cards = slices.Delete(in.Last.Cards, 1, 2) }, ""},
		"unnumbered":      {func(in *Facts, _ *record.Run) { in.Last.Cards[2].Index = -1 }, ""},
		"another number":  {func(in *Facts, _ *record.Run) { in.Last.Cards[0].Device.ID = "GPU-d" }, ""},
		"no number":       {func(_ *Facts, r *record.Run) { r.Start.Findings[0].Index = nil }, ""},
		"unknown number":  {func(_ *Facts, r *record.Run) { r.Start.Findings[0].Index = new(-1) }, ""},
		"of the driver": {func(_ *Facts, r *record.Run) {
			r.Start.Findings[0], r.Start.Verdict.Code = record.Finding{Code: catalog.Mismatch}, catalog.Mismatch
		}, ""},
		"a leftover": {func(_ *Facts, r *record.Run) {
			r.Start.Findings[0].Code, r.Start.Verdict.Code = catalog.Dirty, catalog.Dirty
		}, ""},
		"another in the check": {func(in *Facts, _ *record.Run) {
			in.Last.Findings = append(in.Last.Findings, of(catalog.Orphan, "GPU-a"))
		}, ""},
		"the node's": {func(in *Facts, _ *record.Run) {
			in.Last.Findings = append(in.Last.Findings, of(catalog.HostMemory, ""))
		}, ""},
		"another stands": {func(in *Facts, _ *record.Run) {
			in.Standing.Faults = append(in.Standing.Faults, record.StandingFault{GPU: "GPU-c"})
		}, ""},
		"another of the job": {func(_ *Facts, r *record.Run) {
			r.Start.Findings = append(r.Start.Findings, of(catalog.Orphan, "GPU-a"))
			r.Start.Verdict.Judged = append(r.Start.Verdict.Judged, warns)
		}, ""},
		"another drains": {func(_ *Facts, r *record.Run) {
			r.Start.Findings = append(r.Start.Findings, of(catalog.Lost, "GPU-a"))
			r.Start.Verdict.Judged = append(r.Start.Verdict.Judged, drainsIt)
		}, ""},
	} {
		in := asked()
		in.Now = after(10 * time.Second)
		in.Node = slurm.Node{Flags: []string{"IDLE", "DRAIN"}, Reason: slurm.PrologError, By: "root", At: ended.Add(time.Second)}
		in.Last = &record.Check{Wall: ended, Epoch: epoch, Findings: []record.Finding{of(catalog.Lost, "GPU-b")}}
		for i, id := range []gpu.ID{"GPU-b", "GPU-a", "GPU-c"} {
			in.Last.Cards = append(in.Last.Cards, record.Assigned{Index: []int{1, 0, 2}[i], Device: gpu.Device{ID: id}})
		}
		in.Standing.Faults = []record.StandingFault{{GPU: "GPU-b"}}
		run := lostAtStart(7, 0)
		tt.edit(&in, &run)
		in.Exits = Exits([]record.Run{run}, "b1")
		d := Decide(in)
		must.Be(t, name, string(d.Act), string(Write))
		must.Be(t, name, Ours(d.Reason), true)
		must.Be(t, name, d.Memory.Written.Reason, d.Reason)
		_, hint, _ := strings.Cut(d.Reason, "bookend show 7")
		must.Be(t, name, hint, tt.want)
		if tt.want != "" {
			must.Be(t, name, d.Reason, alone+tt.want)
		}
	}
}

// However long another's reason is, what is remembered of it is not.
func TestLongReasonOfAnother(t *testing.T) {
	in := asked()
	in.Node.By, in.Node.Reason = "alice", strings.Repeat("x", 1<<20)
	d := Decide(in)
	if d.Act != Leave || len(d.Memory.Last.Why) > 2<<10 || d.Why != d.Memory.Last.Why {
		t.Errorf("%s: %d bytes are remembered", d.Act, len(d.Memory.Last.Why))
	}
}

// stood is a node that has had our reason for an hour.
func stood() Facts {
	in := asked()
	in.Resume = 3
	d := Decide(in)
	in.Memory, in.Now = in.settle(d.Memory, in.Exits), after(time.Hour) // by the check after that
	in.Node = slurm.Node{Flags: []string{"IDLE", "DRAIN"}, Reason: reason42, By: "root", At: ended.Add(2 * time.Minute)}
	in.Cards = map[gpu.ID]record.GPUSeen{"GPU-a": {Clean: true}}
	return in
}

// A drain is a GPU's alone if it is ours, of this boot, and no other cause is on record, decided on or not.
func TestOnlyFor(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*Facts)
		id     gpu.ID
		runs   []record.Run
		boot   string
		want   bool
	}{
		"its own":              {func(*Facts) {}, "GPU-a", []record.Run{orphaned(42, 0)}, "b1", true},
		"another GPU's":        {func(*Facts) {}, "GPU-b", nil, "b1", false},
		"a GPU without a UUID": {func(in *Facts) { in.Memory.Written.Causes[0].GPU = "" }, "", nil, "b1", false},
		"also of the node":     {func(in *Facts) { in.Memory.Written.Causes = append(in.Memory.Written.Causes, Cause{}) }, "GPU-a", nil, "b1", false},
		"DCGM's tests failed": {func(in *Facts) {
			in.Memory.Written.Causes = append(in.Memory.Written.Causes, Cause{Code: catalog.Diagnosed, GPU: "GPU-a"})
		}, "GPU-a", nil, "b1", false},
		"another has failed":    {func(*Facts) {}, "GPU-a", []record.Run{lostAtStart(43, 0)}, "b1", false},
		"of an earlier boot":    {func(*Facts) {}, "GPU-a", nil, "b2", false},
		"an admin's":            {func(in *Facts) { in.Node.By = "alice" }, "GPU-a", nil, "b1", false},
		"another reason":        {func(in *Facts) { in.Node.Reason += "!" }, "GPU-a", nil, "b1", false},
		"not drained":           {func(in *Facts) { in.Node.Flags = []string{"IDLE"} }, "GPU-a", nil, "b1", false},
		"down as well":          {func(in *Facts) { in.Node.Flags = []string{"DOWN", "DRAIN"} }, "GPU-a", nil, "b1", false},
		"it does not respond":   {func(in *Facts) { in.Node.Silent = true }, "GPU-a", nil, "b1", false},
		"nothing is remembered": {func(in *Facts) { in.Memory = Remembered{} }, "GPU-a", nil, "b1", false},
	} {
		in := stood()
		tt.change(&in)
		must.Be(t, name, in.Memory.OnlyFor(tt.id, tt.runs, tt.boot)(in.Node), tt.want)
	}
}

// A health check may repair a GPU only where memory of no process, on this one GPU, is all that the node is drained for.
func TestRepairable(t *testing.T) {
	now := stood().Memory.Written.Epoch
	left := Cause{Code: catalog.Residue, GPU: "GPU-a"}
	for name, tt := range map[string]struct {
		causes []Cause
		now    gpu.Epoch
		want   bool
	}{
		"memory without a process": {[]Cause{left, {Code: catalog.Phantom, GPU: "GPU-a"}}, now, true},
		"a process's memory":       {[]Cause{left, {Code: catalog.Orphan, GPU: "GPU-a"}}, now, false},
		"another GPU's":            {[]Cause{left, {Code: catalog.Residue, GPU: "GPU-b"}}, now, false},
		"a fault":                  {[]Cause{left, {Code: catalog.ECC, GPU: "GPU-a"}}, now, false},
		"of no GPU":                {[]Cause{{Code: catalog.Residue}}, now, false},
		"no cause":                 {nil, now, false},
		"of an earlier boot":       {[]Cause{left}, gpu.Epoch{Boot: "b2", Driver: now.Driver, Module: now.Module}, false},
		"the driver was reloaded":  {[]Cause{left}, gpu.Epoch{Boot: now.Boot, Driver: now.Driver, Module: "m2"}, false},
		"the boot is not known":    {[]Cause{left}, gpu.Epoch{}, false},
	} {
		in := stood()
		in.Memory.Written.Causes = tt.causes
		_, is := in.Memory.Repairable(tt.now)
		must.Be(t, name, is, tt.want)
	}
}

// While a health check's reset of the GPU is not over, no health check ends this drain; of a later one it says nothing.
func TestResetting(t *testing.T) {
	for since, want := range map[time.Duration]bool{0: true, time.Minute: false} {
		in := stood()
		in.Memory.Resetting = in.Memory.Written.Wall.Add(-since)
		d := Decide(in)
		must.Be(t, "kept: "+d.Why, strings.Contains(d.Why, "began to reset its GPU has died") && d.Act == Leave, want)
	}
}

// After a reset that did not help, no health check ends the drain, and a drain that is no longer ours stays as it is.
func TestUnrepaired(t *testing.T) {
	in := stood()
	in.Memory.Written.Causes = []Cause{{Code: catalog.Residue, GPU: "GPU-a"}}
	f := record.Finding{Code: catalog.Reset, GPU: "GPU-a", Index: new(0)}
	renewed := func() Act { return in.Renew(f, time.Hour, "").Act }
	d := in.Renew(f, time.Hour, "")
	must.Be(t, "reason", d.Reason, "BKD-RESET gpu=0 healthcheck; see: bookend status")
	must.Be(t, "still so", in.Renews(f, time.Hour, "")(in.Node), true)
	must.Be(t, "not any more", in.Renews(f, time.Hour, "")(slurm.Node{Flags: []string{"IDLE"}}), false)
	later := stood()
	later.Memory, later.Node.Reason, later.Node.At, later.Exits = d.Memory, d.Reason, in.Now, nil
	for range 4 {
		next := Decide(later)
		must.Not(t, next.Act != Leave || !strings.Contains(next.Why, "no health check can tell that BKD-RESET is over"), "%s: %s", next.Act, next.Why)
		later.Memory = next.Memory
	}
	in.Node.Flags = []string{"DOWN", "DRAIN"}
	must.Be(t, "a node that is down as well", renewed(), Leave)
	in.Node = stood().Node
	in.Node.By = "alice"
	must.Be(t, "an admin's drain", renewed(), Leave)
	in.Node = slurm.Node{Flags: []string{"IDLE"}}
	must.Be(t, "no drain", renewed(), Leave)
}

// A reboot ends what is remembered; an unknown boot id does not.
func TestHere(t *testing.T) {
	m := Decide(asked()).Memory
	for boot, want := range map[string]bool{"b1": true, "": true, "b2": false} {
		must.Be(t, "a reason is remembered in boot "+boot, m.Here(boot).Written != nil, want)
	}
}

func TestExits(t *testing.T) {
	fine, both := orphaned(42, 0), orphaned(42, 0)
	fine.Ends[0].Verdict.Exit = 0
	both.Start = lostAtStart(42, -time.Minute).Start
	for _, tt := range []struct {
		run  record.Run
		boot string
		want int
	}{{both, "b1", 2}, {both, "b2", 0}, {both, "", 0}, {fine, "b1", 0}} {
		tt.run.Epoch.Boot = tt.boot
		must.Be(t, "exits", len(Exits([]record.Run{tt.run}, "b1")), tt.want)
	}
}

// Of several processes on several cards the reason names the one that holds most, among those that drained.
func TestReasonNamesTheLargest(t *testing.T) {
	x := FromEnd(record.Run{Job: slurm.Job{ID: 42}}, slurm.Epilog, record.End{
		Findings: []record.Finding{
			about(catalog.Orphan, 0, 9<<30, 1), about(catalog.Orphan, 1, 1<<30, 2), about(catalog.Orphan, 2, 4<<30, 3),
			about(catalog.Residue, 3, 8<<30, 0),
		},
		Verdict: record.Verdict{
			Action: config.Drain, Exit: 10, Code: catalog.Orphan,
			Judged: []record.Judged{warns, drainsIt, drainsIt, drainsIt},
		},
	})
	must.Be(t, "reason", x.Reason, "BKD-ORPHAN gpu=2 4096MiB pid=3 job=42 epilog; see: bookend show 42")
}

// A hook that was stopped drained for what it had found by then, of which its exit code is left, and is never verified.
func TestStoppedHook(t *testing.T) {
	stopped := func(exit int, c catalog.Code) *Exit {
		return FromEnd(record.Run{Job: slurm.Job{ID: 42}}, slurm.Epilog, record.End{
			Findings: []record.Finding{{Code: catalog.Deadline}}, Verdict: record.Verdict{Exit: exit, Code: c},
		})
	}
	for exit, want := range map[int]string{
		10: "ORPHAN", catalog.ExitOther: "DEADLINE", catalog.Exit(catalog.Deadline): "DEADLINE", 2: "DEADLINE",
	} {
		x := stopped(exit, catalog.Deadline)
		if want := "BKD-" + want + " job=42 epilog; see: bookend show 42"; x.Reason != want || len(x.Causes) != 1 {
			t.Errorf("exit %d: %+v, want %q", exit, x, want)
		}
		must.Not(t, (Written{Epoch: epoch, Causes: x.Causes}).unverifiable() == "",
			"exit %d: a stopped hook's drain could be resumed", exit)
	}
	must.Be(t, "the reason of a record that is not whole", stopped(10, "x [root@now]").Reason, "")
	must.Not(t, (Written{Epoch: epoch}).unverifiable() == "", "a drain without a cause could be resumed")
}

func TestWords(t *testing.T) {
	m := Decide(asked()).Memory
	got := string(m.Words())
	must.Not(t, !strings.Contains(got, "reason written at 2026-11-21") || !strings.Contains(got, reason42),
		"words %q", got)
	got = string(m.Failed(errors.New("no answer")).Words())
	if !strings.Contains(got, "left alone") || !strings.Contains(got, "no answer") || (Remembered{}).Words() != "" {
		t.Errorf("words %q", got)
	}
}
