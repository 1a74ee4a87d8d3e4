package view

import (
	"strings"
	"testing"
	"time"

	"bookend/internal/attrib"
	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/ledger"
	"bookend/internal/policy"
	"bookend/internal/slurm"
)

func TestJobWordsItsFindings(t *testing.T) {
	index := 0
	r := heir()
	r.Ends[0].At = 100 * time.Second // its Wall is 07:35:20
	r.Ends[0].Findings = []finding.Finding{
		{
			Code: code.Orphan, Index: &index, Bytes: gpu.Bytes(1 << 30),
			Holder: &finding.Holder{Process: attrib.Process{PID: 70, Name: "train", UID: 5, State: "S", Start: 90 * time.Second}},
			Owner:  &finding.Owner{Job: 3, UID: 5, Level: attrib.ByExclusive},
		},
		{Code: code.Residue, Index: &index, Owner: &finding.Owner{Job: 3, UID: 5, Level: attrib.ByExclusive}},
		{Code: code.BadConfig, Observed: "config: \x1b[2J"},
	}
	var b strings.Builder
	Job(&b, r)
	for _, want := range []string{
		"\n  BKD-ORPHAN GPU 0: process outlived its job [warn]\n    memory:   1024 MiB\n",
		"    process:  PID 70 (train), uid 5, state S, started 2026-11-21 07:35:10\n",
		"    job:      3 (uid 5), evidence: exclusive (it started while the job had the card alone)\n",
		"    job:      3 (uid 5), evidence: exclusive (it came while the job had the card alone)\n",
		"\n  BKD-CONFIG: configuration is not valid [warn]\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("lacks %q:\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "\x1b") {
		t.Errorf("a control character came through: %q", b.String())
	}
}

func TestOutcomeOfACardThatWasDirty(t *testing.T) {
	r := heir()
	if got, want := outcome(r, r.Ends[0], r.Start), "clean; still there from before: 20480 MiB"; got != want {
		t.Errorf("as dirty as before: %q, want %q", got, want)
	}
	r.Ends[0].Snapshot.Readings[0].Memory.Used = gpu.Bytes(0)
	if got := outcome(r, r.Ends[0], r.Start); got != "clean" {
		t.Errorf("what was there has gone: %q", got)
	}
	r.Ends[0].Snapshot.Readings[0].Memory.Used = gpu.Unknown("not read")
	if got := outcome(r, r.Ends[0], r.Start); got != "clean" {
		t.Errorf("how much is unknown: %q", got)
	}
}

func TestStatusHasTroublesOfNowAndOnRecord(t *testing.T) {
	run := func(id slurm.JobID, minute int, actions map[code.Code]config.Action) ledger.Run {
		e := ledger.End{Wall: time.Date(2026, 11, 21, 8, minute, 0, 0, time.Local)}
		for c, a := range actions {
			e.Findings = append(e.Findings, finding.Finding{Code: c})
			e.Verdict.Judged = append(e.Verdict.Judged, policy.Judged{Action: a})
		}
		return ledger.Run{Job: slurm.Job{ID: id}, Ends: []ledger.End{e}}
	}
	noDriver := map[code.Code]config.Action{code.NoDriver: config.Warn}
	runs := []ledger.Run{
		run(1, 10, noDriver), run(2, 20, noDriver),
		run(3, 15, map[code.Code]config.Action{code.NoRecord: config.Note}), run(4, 16, map[code.Code]config.Action{code.Orphan: config.Drain}),
	}
	var b strings.Builder
	Status(&b, Node{Name: "n1", Now: []Trouble{{Text: "the backend is not there"}}, Runs: runs})
	want := "  trouble: the backend is not there\n" +
		"  trouble on record: BKD-NODRIVER, no GPU driver: job 2 at 2026-11-21 08:20:00 (bookend show 2)\njobs with GPUs now: 0\n"
	if !strings.Contains(b.String(), want) {
		t.Errorf("lacks %q:\n%s", want, b.String())
	}
	for i := range recent {
		runs = append(runs, run(slurm.JobID(10+i), 30+i, nil))
	}
	b.Reset()
	Status(&b, Node{Name: "n1", Runs: runs})
	if strings.Contains(b.String(), "trouble") {
		t.Errorf("long over:\n%s", b.String())
	}
}

func TestSnapshotAccountsForAllMemory(t *testing.T) {
	minor := 0
	s := gpu.Snapshot{Readings: []gpu.Reading{{
		Device:    gpu.Device{ID: card0, BusID: "0000:1b:00.0", Minor: &minor},
		Memory:    gpu.Memory{Total: gpu.Bytes(1000 << 20), Reserved: gpu.Bytes(615 << 20), Used: gpu.Bytes(100 << 20), Free: gpu.Bytes(285 << 20)},
		Processes: []gpu.Process{{PID: 70, Memory: gpu.Bytes(90 << 20)}},
	}}}
	who := map[int]attrib.Process{70: {PID: 70, Name: "train", State: "S", Start: time.Second}}
	var b strings.Builder
	Snapshot(&b, s, who, func(d time.Duration) time.Time { return time.Date(2026, 11, 21, 8, 0, 0, 0, time.Local).Add(d) })
	want := "0000:1b:00.0 nvidia0  GPU-0  100 MiB used, 285 MiB free of 1000 MiB (615 MiB reserved by the driver itself)\n" +
		"  90 MiB  PID 70 (train), uid 0, state S, started 2026-11-21 08:00:01\n"
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

// A job on a card it was not given may be one that nobody here knows: then its user is not root for that.
func TestJobNamesATrespasser(t *testing.T) {
	minor := 3
	r := heir()
	r.Ends[0].Neighbours = &gpu.Snapshot{Readings: []gpu.Reading{{Device: gpu.Device{ID: "GPU-3", Minor: &minor}}}}
	r.Ends[0].Findings = []finding.Finding{
		{
			Code: code.Trespass, GPU: "GPU-3", Unknown: "in the cgroup of job 555, of which this node has no record",
			Holder: &finding.Holder{Process: attrib.Process{PID: 70, Name: "train", UID: 1001}},
			Owner:  &finding.Owner{Job: 555, Level: attrib.ByCgroup},
		},
		{
			Code: code.Trespass, GPU: "GPU-9", Unknown: "no record", Holder: &finding.Holder{Process: attrib.Process{PID: 71, Why: "denied"}},
			Owner: &finding.Owner{SLUID: "s0123456789ABC", Level: attrib.BySighting},
		},
	}
	var b strings.Builder
	Job(&b, r)
	for _, want := range []string{
		"\n  BKD-TRESPASS GPU-3 (/dev/nvidia3): job on a card it was not given [warn]\n", "\n  BKD-TRESPASS GPU-9: job",
		"    job:      555 (uid unknown, its process runs as uid 1001), evidence: cgroup (",
		"    job:      s0123456789ABC (uid unknown), evidence: sighting (",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("lacks %q:\n%s", want, b.String())
		}
	}
}

// Every candidate is named with what speaks for it, and whether the search was whole.
func TestJobNamesCandidates(t *testing.T) {
	f := finding.Finding{Code: code.Residue, GPU: card0, Searched: true, Candidates: []finding.Holder{{
		Process: attrib.Process{PID: 71, UID: 1000, Name: "a) R (b\n", State: "S", Container: "docker:0123"},
		Classes: []attrib.Class{attrib.Exported, attrib.Container}, Open: []string{"nvidiactl"}, Owner: &finding.Owner{Job: 7, Level: attrib.BySighting},
	}}}
	got := strings.Join(details(f, policy.Judged{}, func(time.Duration) time.Time { return time.Time{} }), "\n")
	for _, want := range []string{
		"maybe:    PID 71 (a) R (b", "uid 1000", "exported container", "in docker:0123", "has open nvidiactl, job 7 by sighting",
		"search:   every process of the node was looked into; 1 may hold it",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if strings.Contains(got, "b\n)") {
		t.Errorf("a name broke its line:\n%s", got)
	}
}
