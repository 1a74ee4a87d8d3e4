package docs

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"bookend/internal/answer"
	"bookend/internal/attrib"
	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/ledger"
	"bookend/internal/metrics"
	"bookend/internal/settle"
	"bookend/internal/slurm"
	"bookend/internal/state"
)

// TestMain shows all times in one time zone, wherever the samples are made.
func TestMain(m *testing.M) {
	time.Local = time.UTC
	os.Exit(m.Run())
}

// screens are samples of the command line by name.
var screens = map[string]func() string{
	"status": func() string {
		return drawn("status", func(w io.Writer) { atAGlance().Status().Text(w) })
	},
	"show": func() string {
		return drawn("show 4", func(w io.Writer) {
			runs := []ledger.Run{orphaned(4, 1001, "alice", ended)}
			answer.NewShow("n1", "4", runs, runs, state.Recorded{}).Text(w)
		})
	},
	"offenders": func() string {
		return drawn("history --repeat-offenders --since 4w", func(w io.Writer) {
			answer.NewOffenders("n1", sick()).Text(w)
		})
	},
}

func drawn(command string, draw func(io.Writer)) string {
	var b strings.Builder
	fmt.Fprintf(&b, "root@n1# bookend %s\n", command)
	draw(answer.On(&b, false))
	return b.String()
}

const secondCard = gpu.ID("GPU-d2c81f77-5b0e-4a7c-9d16-0c5a3b9e7f21")

func cards() []gpu.Device {
	first, second := 0, 1
	return []gpu.Device{
		{ID: card, BusID: busID, Minor: &first, Name: "NVIDIA H200"}, {ID: secondCard, BusID: "00000000:5D:00.0",
			Minor: &second, Name: "NVIDIA H200"},
	}
}

func memory(used uint64) gpu.Memory {
	return gpu.Memory{Total: gpu.Bytes(143771 * mebi), Reserved: gpu.Bytes(615 * mebi), Used: gpu.Bytes(used * mebi),
		Free: gpu.Bytes((143156 - used) * mebi)}
}

// run is a job on one of the cards, clean at both ends, that ran for an hour.
func run(id slurm.JobID, uid uint32, user string, index int, over time.Time) ledger.Run {
	d := cards()[index]
	r := ledger.Run{
		Job: slurm.Job{ID: id, Node: "n1", UID: uid, User: user, Partition: "gpu",
			Exit: slurm.ExitStatus{Known: true}}, Devices: []ledger.Assigned{{Index: index, Device: d}},
		Key: fmt.Sprintf("t%d", over.Unix()),
	}
	look := func(at time.Duration, wall time.Time) ledger.End {
		return ledger.End{
			At: at, Wall: wall, Snapshot: gpu.Snapshot{At: at, Readings: []gpu.Reading{{Device: d, Memory: memory(0)}}},
			Curves: map[gpu.ID]settle.Curve{d.ID: {State: settle.Clean, Looks: 1}},
			Probes: []gpu.Probe{{Device: d.ID, Result: gpu.ProbeOK, Free: gpu.Bytes(143156 * mebi),
				Largest: gpu.Bytes(143154 * mebi), Attempts: 1, At: at,
				Times: gpu.ProbeTimes{Init: 240 * time.Millisecond, Search: 40 * time.Millisecond,
					Release: 20 * time.Millisecond}}},
		}
	}
	start := look(boot-time.Hour, over.Add(-time.Hour))
	r.Start, r.Ends = &start, []ledger.End{look(boot, over)}
	return r
}

// orphaned is such a job that left a process behind.
func orphaned(id slurm.JobID, uid uint32, user string, over time.Time) ledger.Run {
	r := run(id, uid, user, 0, over)
	e := &r.Ends[0]
	e.Snapshot.Readings[0].Memory, e.Snapshot.Readings[0].Processes = memory(20527), []gpu.Process{{PID: 9351,
		Memory: gpu.Bytes(20518 * mebi)}}
	e.Curves[card] = settle.Curve{State: settle.Flat, Looks: 9, Span: 3700 * time.Millisecond, Steady: true}
	e.Probes = []gpu.Probe{{Device: card, Result: gpu.ProbeSkipped, Why: "process outlived its job (BKD-ORPHAN)"}}
	f := found(code.Orphan, 20518, holder(9351, uid, "train", 50*time.Minute),
		&finding.Owner{Job: id, UID: uid, Level: attrib.ByCgroup})
	f.Holder.State, f.Holder.Classes = "S", []attrib.Class{attrib.Orphan}
	e.Findings = []finding.Finding{f}
	e.Verdict = finding.Verdict{Action: config.Warn, Code: code.Orphan, Held: "observe mode",
		Judged: []finding.Judged{{Action: config.Drain}}}
	return r
}

// atAGlance is a node with what such a job left, and with another job that runs.
func atAGlance() answer.Node {
	left, live := orphaned(4, 1001, "alice", ended), run(5, 1002, "bob", 1, ended.Add(time.Hour))
	live.Start.Wall, live.Ends = ended.Add(5*time.Minute), nil
	runs := []ledger.Run{left, live, run(3, 1001, "alice", 0, ended.Add(-2*time.Hour))}
	answers, state, drained, none := true, "MIXED", false, ""
	return answer.Node{
		Name: "n1", Mode: config.Observe, At: ended.Add(10 * time.Minute), Runs: runs,
		Last: map[metrics.Hook]time.Time{metrics.Prolog: live.Start.Wall, metrics.Epilog: ended,
			metrics.HealthCheck: ended.Add(9 * time.Minute)},
		Driver: &answer.Driver{Answers: &answers, Release: "580.95.05", Seconds: 0.1},
		Slurm:  &answer.SlurmNode{State: &state, Drained: &drained, Reason: &none},
		Cards: answer.NewCards(answer.Scene{
			Runs: runs, At: func(at time.Duration) time.Time { return ended.Add(at - boot) },
			Who: map[int]attrib.Process{
				9351: {PID: 9351, UID: 1001, Name: "train", Start: boot - 50*time.Minute, Cgroup: slurm.Owner{ID: 4}},
				9702: {PID: 9702, UID: 1002, Name: "python3", Start: boot + 6*time.Minute, Cgroup: slurm.Owner{ID: 5}},
			},
			Limits: finding.Limits{Report: 32 * mebi, Drain: 512 * mebi, PerClient: 9 * mebi},
			Now: gpu.Snapshot{Readings: []gpu.Reading{
				{Device: cards()[0], Memory: memory(20527), Processes: []gpu.Process{{PID: 9351,
					Memory: gpu.Bytes(20518 * mebi)}}},
				{Device: cards()[1], Memory: memory(96009), Processes: []gpu.Process{{PID: 9702,
					Memory: gpu.Bytes(96000 * mebi)}}},
			}},
		}),
	}
}

// sick are a month's runs: a card that several users meet the same on, and one user who leaves processes.
func sick() (runs []ledger.Run) {
	for i, uid := range []uint32{1001, 1002, 1003, 1002} {
		r := run(slurm.JobID(20+i), uid, "", 1, ended.AddDate(0, 0, -2*i))
		one := 1
		r.Ends[0].Findings = []finding.Finding{{Code: code.XidFatal, GPU: secondCard, Index: &one}}
		r.Ends[0].Verdict.Judged = []finding.Judged{{Action: config.Drain}}
		runs = append(runs, r)
	}
	for i := range 3 {
		runs = append(runs, orphaned(slurm.JobID(4+i), 1001, "alice", ended.AddDate(0, 0, -i)))
	}
	return append(runs, run(30, 1003, "carol", 0, ended.AddDate(0, 0, -9)))
}
