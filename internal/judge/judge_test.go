package judge

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/drain"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/ledger"
	"bookend/internal/settle"
	"bookend/internal/slurm"
)

// enforcing is the end of a job at which something was found, where hooks may drain.
func enforcing(found ...finding.Finding) Case {
	c := Case{Phase: slurm.Epilog, Config: config.Default(), Faults: found, Job: slurm.Job{ID: 7, Context: slurm.Epilog}}
	c.Config.Mode = config.Enforce
	return c
}

// What a doubt keeps from draining leaves a trace: the strongest finding's.
func TestDoubt(t *testing.T) {
	orphan := func(mib uint64, doubts ...string) finding.Finding {
		return finding.Finding{Code: code.Orphan, Bytes: gpu.Bytes(mib << 20), Doubts: doubts}
	}
	unknown := finding.Finding{Code: code.Residue, Unknown: "old driver"}
	for name, tt := range map[string]struct {
		found []finding.Finding
		want  string
	}{
		"nothing found":        {nil, ""},
		"nothing withheld":     {[]finding.Finding{orphan(600)}, ""},
		"never to drain":       {[]finding.Finding{{Code: code.Dirty, Doubts: []string{"it was there before this job"}}}, ""},
		"the first reason":     {[]finding.Finding{orphan(600, "job 5 could own it as well", "x")}, "BKD-ORPHAN: job 5 could own it as well"},
		"the most memory":      {[]finding.Finding{orphan(600, "a"), orphan(700, "b"), orphan(650, "c")}, "BKD-ORPHAN: b"},
		"as much memory":       {[]finding.Finding{orphan(600, "a"), orphan(600, "b")}, "BKD-ORPHAN: a"},
		"unknown":              {[]finding.Finding{unknown}, "BKD-RESIDUE: unknown: old driver"},
		"known before unknown": {[]finding.Finding{unknown, orphan(1, "a"), unknown}, "BKD-ORPHAN: a"},
		"beside a drain":       {[]finding.Finding{orphan(600), orphan(1, "a")}, "BKD-ORPHAN: a"},
	} {
		j := Judge(enforcing(tt.found...)).Late(orphan(9))
		if got := j.Doubt(); got != tt.want {
			t.Errorf("%s: doubt: got %q, want %q", name, got, tt.want)
		}
	}
}

// A finding and what policy made of it are one value; a record has them as two lists of one length.
func TestJudgementAsRecord(t *testing.T) {
	c := enforcing(finding.Finding{Code: code.Orphan}, finding.Finding{Code: code.NoRecord})
	j := Judge(c)
	v := j.Verdict
	if j.Exit != 10 || v.Exit != 10 || v.Code != code.Orphan || len(v.Judged) != 2 || len(j.Found) != 2 {
		t.Fatalf("got %+v and verdict %+v, want exit 10 and two findings", j, v)
	}
	for i, want := range []config.Action{config.Drain, config.Note} {
		if j.Of(i).Action != want || v.Judged[i].Action != want {
			t.Errorf("finding %d: got %q, on record %q, want %q", i, j.Of(i).Action, v.Judged[i].Action, want)
		}
	}
}

// What is found later may decide until the last word, and only be told after that. The judgement before it stays.
func TestLaterFindings(t *testing.T) {
	c := enforcing()
	before := Judge(c)
	after := before.With(c, finding.Finding{Code: code.Lost})
	told := before.Late(finding.Finding{Code: code.Lost}, finding.Finding{Code: code.Again})
	if before.Exit != 0 || len(before.Found) != 0 || after.Exit != 20 || told.Exit != 0 {
		t.Errorf("got exits %d, then %d, told late %d; want 0, 20, 0", before.Exit, after.Exit, told.Exit)
	}
	if !told.Tells(0) || told.Tells(1) {
		t.Errorf("got %+v, want the first told and the note not", told.Found)
	}
}

// The node's records are asked only where a GPU is not clean.
func TestAsks(t *testing.T) {
	card := finding.Card{Device: gpu.Device{ID: "GPU-0"}}
	for state, want := range map[settle.State]bool{settle.Clean: false, settle.Flat: true, "": true} {
		c := enforcing()
		c.Seen.Cards = []finding.Card{card}
		c.Seen.Side = finding.Side{Curves: map[gpu.ID]settle.Curve{"GPU-0": {State: state}}}
		if got := c.Asks(); got != want {
			t.Errorf("%q: got %v, want %v", state, got, want)
		}
	}
}

// The start counts in the driver's life that it was seen in, and for its own run.
func TestStartOf(t *testing.T) {
	epoch := gpu.Epoch{Boot: "b", Driver: "580", Module: "m"}
	job := slurm.Job{ID: 7, SLUID: "sA"}
	run := func(change func(*ledger.Run)) ledger.Run {
		r := ledger.Run{Job: job, Epoch: epoch, Start: &ledger.End{}}
		change(&r)
		return r
	}
	for name, tt := range map[string]struct {
		run    ledger.Run
		counts bool
		found  int
	}{
		"its own":                   {run(func(*ledger.Run) {}), true, 0},
		"none":                      {run(func(r *ledger.Run) { r.Start = nil }), false, 0},
		"one that got nowhere":      {run(func(r *ledger.Run) { r.Epoch = gpu.Epoch{} }), false, 0},
		"of another boot":           {run(func(r *ledger.Run) { r.Epoch.Boot = "c" }), false, 1},
		"of which half is known":    {run(func(r *ledger.Run) { r.Epoch.Module = "" }), false, 1},
		"ended, and surely its own": {run(func(r *ledger.Run) { r.Ends = []ledger.End{{}} }), true, 0},
		"ended, perhaps another's":  {run(func(r *ledger.Run) { r.Ends, r.Job.SLUID = []ledger.End{{}}, "" }), false, 0},
	} {
		side, found := StartOf(tt.run, job, epoch)
		if (side != nil) != tt.counts || len(found) != tt.found {
			t.Errorf("%s: got a start: %v, %+v; want %v and %d findings", name, side != nil, found, tt.counts, tt.found)
		}
	}
}

// CUDA that does not work at two jobs in a row drains, once the node's records are there to tell.
func TestRepeated(t *testing.T) {
	broken := finding.Finding{Code: code.Broken, GPU: "GPU-0"}
	c := enforcing(broken)
	if j := Judge(c); j.Exit != 0 || !c.AsksRepeat(j) {
		t.Errorf("without records: exit %d, asks %v; want 0 and true", j.Exit, c.AsksRepeat(j))
	}
	last := ledger.Run{Job: slurm.Job{ID: 6}, Devices: []ledger.Assigned{{Device: gpu.Device{ID: "GPU-0"}}}, Ends: []ledger.End{{}}}
	c.Node = &Node{Runs: []ledger.Run{last}}
	if j := Judge(c); j.Exit != 0 {
		t.Errorf("the last job met nothing: exit %d, want 0", j.Exit)
	}
	c.Node.Runs[0].Ends[0].Findings = []finding.Finding{broken}
	if j := Judge(c); j.Exit != 18 {
		t.Errorf("the last job met it: exit %d, want 18", j.Exit)
	}
	if j := Judge(enforcing(finding.Finding{Code: code.Orphan})); c.AsksRepeat(j) {
		t.Error("an orphan asks for no repetition")
	}
}

// What a GPU carried in another epoch explains nothing now, nor does anything where one half of the epoch is unknown.
func TestBaselinesOf(t *testing.T) {
	learned := gpu.Epoch{Boot: "b", Driver: "580", Module: "m"}
	known := map[gpu.ID]finding.Baseline{"GPU-0": {GPU: "GPU-0", Epoch: learned, Bytes: 48 << 20, Holder: "dcgm.service"}}
	for now, want := range map[gpu.Epoch]int{
		learned: 1, {Boot: "c", Driver: "580", Module: "m"}: 0, {Boot: "b", Driver: "580", Module: "n"}: 0,
		{Boot: "b", Driver: "580"}: 0, {}: 0,
	} {
		if got := BaselinesOf(known, now); len(got) != want {
			t.Errorf("epoch %+v: got %+v, want %d of them", now, got, want)
		}
	}
}

// A card that a job has says nothing for a drain's end, however clean it is: what was on it may be under the job. One
// that could not be read says nothing either.
func TestSeenByCard(t *testing.T) {
	var cards []finding.Card
	for i, bus := range []gpu.BusID{"0000:10:00.0", "0000:20:00.0", "0000:30:00.0"} {
		device := gpu.Device{ID: gpu.ID(fmt.Sprint("GPU-", i)), BusID: bus, Minor: &i, Vendor: "nvidia"}
		cards = append(cards, finding.Card{Index: i, Device: device})
	}
	epoch := gpu.Epoch{Boot: "b", Driver: "580", Module: "m"}
	read := func(card finding.Card) gpu.Reading {
		return gpu.Reading{Device: card.Device, Memory: gpu.Memory{Total: gpu.Bytes(80 << 30), Reserved: gpu.Bytes(0), Used: gpu.Bytes(0), Free: gpu.Bytes(80 << 30)}}
	}
	live := ledger.Run{
		Job: slurm.Job{ID: 7, UID: 1001}, Key: "w1", Epoch: epoch, Devices: []ledger.Assigned{{Index: 1, Device: cards[1].Device}},
		Start: &ledger.End{At: time.Second, Wall: time.Unix(1000, 0)},
	}
	c := Check{Case: Case{Config: config.Default(), Node: &Node{Runs: []ledger.Run{live}}}}
	c.Seen.Epoch, c.Seen.Cards = epoch, cards
	c.Seen.Side.Snapshot = gpu.Snapshot{At: time.Minute, Readings: []gpu.Reading{read(cards[0]), read(cards[1])}}
	seen := c.DrainSeen(Judgement{})
	for i, want := range []struct {
		memory drain.Answer
		why    string
	}{{drain.Clean, ""}, {drain.Unknown, "a job still has it"}, {drain.Unknown, "could not be read"}} {
		if got := seen[cards[i].Device.ID]; got.Memory != want.memory || !strings.Contains(got.Why, want.why) || got.Given != (i == 1) {
			t.Errorf("GPU %d: %+v, want %v %q", i, got, want.memory, want.why)
		}
	}
}

// A process is a job's where a cgroup says so; a number that two jobs had, or a cgroup of no job, says nothing.
func TestWhose(t *testing.T) {
	w := whose{job: slurm.Job{ID: 100, SLUID: "sA"}, own: map[int]bool{}, disputed: map[int]bool{}}
	for _, seen := range []struct {
		pid   int
		owner slurm.Owner
	}{
		{1, slurm.Owner{ID: 100}}, {1, slurm.Owner{ID: 100, Step: "0"}},
		{2, slurm.Owner{ID: 7}},
		{3, slurm.Owner{}},
		{4, slurm.Owner{ID: 100}}, {4, slurm.Owner{ID: 7}}, {4, slurm.Owner{ID: 100}},
		{5, slurm.Owner{ID: 100, Conflict: "two jobs"}},
		{6, slurm.Owner{SLUID: "sA"}},
		{7, slurm.Owner{ID: 100, SLUID: "sB"}}, // another run of the same number
	} {
		w.saw(seen.pid, seen.owner)
	}
	if want := map[int]bool{1: true, 2: false, 6: true, 7: false}; !maps.Equal(w.own, want) {
		t.Errorf("%v, want %v", w.own, want)
	}
}
