package judge

import (
	"slices"
	"testing"
	"time"

	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/ledger"
	"bookend/internal/slurm"
	"bookend/internal/slurmconf"
)

// A job that the recorder saw on another's GPU is found at both jobs' ends, where nothing but a mistake explains it; it
// never drains.
func TestRecordedOverlap(t *testing.T) {
	card := func(id gpu.ID) ledger.Assigned { return ledger.Assigned{Device: gpu.Device{ID: id}} }
	run := func(job slurm.JobID, cards ...gpu.ID) (r ledger.Run) {
		r.Job.ID, r.Key = job, "t1"
		for _, id := range cards {
			r.Devices = append(r.Devices, card(id))
		}
		return r
	}
	of := func(job slurm.JobID, id gpu.ID, mib uint64) ledger.RecordedProcess {
		return ledger.RecordedProcess{Seen: ledger.Seen{GPU: id, PID: 40, Owner: slurm.Owner{ID: job}, Most: mib << 20,
			First: time.Second, Last: time.Minute}}
	}
	for name, tt := range map[string]struct {
		change func(*Case)
		want   []code.Code
	}{
		"another job beside it": {func(*Case) {}, []code.Code{code.Foreign}},
		"too little":            {func(c *Case) { c.Past.Recording.GPUs[0].Processes[0].Most = 1 << 20 }, nil},
		"its own":               {func(c *Case) { c.Past.Recording.GPUs[0].Processes[0].Owner.ID = 7 }, nil},
		"of no job":             {func(c *Case) { c.Past.Recording.GPUs[0].Processes[0].Owner.ID = 0 }, nil},
		"of a job without a record": {func(c *Case) {
			c.Past.Recording.GPUs[0].Processes[0].Owner.ID = 9
		}, nil},
		"one that was given the GPU before": {func(c *Case) { c.Node.Runs[0] = run(8, "GPU-b", "GPU-a") }, nil},
		"where GPUs are shared":             {func(c *Case) { c.Sharing.Shared = slurmconf.Yes }, nil},
		"where that is not known":           {func(c *Case) { c.Sharing.Shared = slurmconf.Unknown }, nil},
		"where records were not read":       {func(c *Case) { c.Node.Unread = "too many" }, nil},
		"at a second end":                   {func(c *Case) { c.Past.Again = true }, nil},
		"the end sees it too": {func(c *Case) {
			f := finding.Finding{Code: code.Foreign, GPU: "GPU-a", Holder: &finding.Holder{}}
			f.Holder.PID = 40
			c.Faults = append(c.Faults, f)
		}, []code.Code{code.Foreign}},
		"itself on another's GPU": {func(c *Case) {
			c.Past.Recording, c.Past.Elsewhere = nil, []ledger.RecordedProcess{of(7, "GPU-b", 2048)}
		}, []code.Code{code.Trespass}},
		"little of it there": {func(c *Case) {
			c.Past.Recording, c.Past.Elsewhere = nil, []ledger.RecordedProcess{of(7, "GPU-b", 1)}
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			c := enforcing()
			c.Config.Policy.Epilog = map[code.Code]config.Action{code.Foreign: config.Drain}
			c.Past.Run = run(7, "GPU-a")
			c.Seen.Cards = []finding.Card{card("GPU-a")}
			c.Sharing = &slurmconf.Answer{Shared: slurmconf.No}
			c.Node = &Node{Runs: []ledger.Run{run(8, "GPU-b"), run(7, "GPU-a")}}
			c.Past.Recording = &ledger.Recording{GPUs: []ledger.Recorded{{ID: "GPU-a",
				Processes: []ledger.RecordedProcess{of(8, "GPU-a", 2048)}}}}
			tt.change(&c)
			var got []code.Code
			j := Judge(c)
			for _, f := range j.Found {
				if f.Code == code.Foreign || f.Code == code.Trespass {
					got = append(got, f.Code)
				}
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %v, want %v: %+v", got, tt.want, j.Found)
			}
			if j.Exit != 0 && len(c.Faults) == 0 {
				t.Errorf("exit %d for what was only recorded", j.Exit)
			}
			if asks := len(tt.want) > 0 && len(c.Faults) == 0; asks && !c.AsksRecorded() {
				t.Error("nobody asks whose right it is")
			}
		})
	}
}
