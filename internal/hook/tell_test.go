package hook

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/judge"
	"bookend/internal/node"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/internal/state"
	"bookend/test/must"
	"bookend/test/onrecord"
)

// A spool has a run's peaks as measured only if samples cover the whole run, on all that it may have used.
func TestUsage(t *testing.T) {
	type facts struct {
		run  record.Run
		end  record.End
		past int // restarts that the start counted
		out  judge.JobOutput
	}
	const measured = "ok 60s of 2 nodes: H200 7 of 140, busy 50"
	const astray = "ok 60s of 2 nodes:  7 of 0, busy 50 (it may have used other GPUs)"
	for name, c := range map[string]struct {
		change func(*facts)
		want   string
	}{
		"whole":       {func(*facts) {}, measured},
		"failed":      {func(f *facts) { f.run.Job.Exit.Raw = 256 }, "failed" + measured[2:]},
		"step failed": {func(f *facts) { f.run.Job.Exit.Derived = 256 }, "failed" + measured[2:]},
		"no exit":     {func(f *facts) { f.run.Job.Exit.Known = false }, "unknown" + measured[2:]},
		"cancelled":   {func(f *facts) { f.out.Cancelled = true }, "failed" + measured[2:]},
		"no output":   {func(f *facts) { f.out.Unknown = "its first node has it" }, "unknown" + measured[2:]},
		"half of it":  {func(f *facts) { f.out.Outputs = []record.Output{{Read: 9, Size: 9}, {Why: "a pipe"}} }, "unknown" + measured[2:]},
		"a long one":  {func(f *facts) { f.out.Outputs = []record.Output{{Read: 64 << 10, Size: 1 << 30}} }, measured},
		"no script":   {func(f *facts) { f.run.Job.Batch = false }, "unknown" + measured[2:]},
		"requeued":    {func(f *facts) { f.run.Job.Restarts = 1 }, "failed" + measured[2:]},
		"ran out": {func(f *facts) { f.end.Diagnosis = &record.Diagnosis{Reason: record.ByMessage} },
			"ok 60s of 2 nodes, ran out: H200 7 of 140, busy 50"},
		"no start":    {func(f *facts) { f.run.Start = nil }, "unknown 0s of 2 nodes: H200 7 of 140, busy 50 (no record of the start)"},
		"no recorder": {func(f *facts) { f.end.Recording = nil }, "ok 60s of 2 nodes: H200 0 of 140 (the samples do not cover the whole run)"},
		"began late":  {func(f *facts) { f.end.Recording.From = 30 * time.Second }, measured + " (the samples do not cover the whole run)"},
		"ended early": {func(f *facts) { f.end.Recording.To = 50 * time.Second }, measured + " (the samples do not cover the whole run)"},
		"rare":        {func(f *facts) { f.end.Recording.Every = 6 * time.Second }, measured + " (the samples do not cover the whole run)"},
		"unread":      {func(f *facts) { f.end.Recording.GPUs[0].Unread = 1 }, measured + " (the samples do not cover the whole run)"},
		"short":       {func(f *facts) { f.end.Recording.Samples = 29 }, measured + " (there are too few samples)"},
		"slow":        {func(f *facts) { f.run.Start.At -= time.Hour; f.end.Recording.From -= time.Hour }, strings.Replace(measured, "60s", "3660s", 1) + " (there are too few samples)"},
		"elsewhere":   {func(f *facts) { f.end.Recording.Elsewhere = []record.RecordedProcess{{}} }, astray},
		"unplaced":    {func(f *facts) { f.run.Job.GPUIndexes = []int{0, 1} }, astray},
		"another GPU": {func(f *facts) { f.end.Recording.GPUs[0].ID = "GPU-9" },
			"ok 60s of 2 nodes: H200 0 of 140 (the use of a GPU was not sampled)"},
		"NUMA node": {func(f *facts) { f.end.Snapshot.Readings[0].Memory.Unjudged = "files" },
			"ok 60s of 2 nodes: H200 0 of 140 (the use of a GPU was not sampled)"},
		"lost":     {func(f *facts) { f.end.Snapshot.Readings = nil }, "ok 60s of 2 nodes:  7 of 0, busy 50"},
		"MIG":      {func(f *facts) { f.end.Snapshot.Readings[0].Device.Parent = "GPU-9" }, measured + ", MIG"},
		"MIG mode": {func(f *facts) { f.end.Snapshot.Readings[0].Parts = true }, measured + ", MIG"},
		"MPS":      {func(f *facts) { f.run.Job.MPSPercent = "50" }, measured + ", MPS"},
		"other jobs": {func(f *facts) {
			f.end.Recording.GPUs[0].Processes = []record.RecordedProcess{{Owner: slurm.Owner{ID: 7}}, {Owner: slurm.Owner{ID: 8}}}
		}, measured + ", other jobs"},
		"leftover memory": {func(f *facts) {
			f.run.Start.Snapshot.Readings = []gpu.Reading{{Device: gpu.Device{ID: "GPU-1"}, Memory: gpu.Memory{Used: gpu.Bytes(65 << 20)}}}
		}, measured + ", leftover memory"},
		"clean": {func(f *facts) {
			f.run.Start.Snapshot.Readings = []gpu.Reading{{Device: gpu.Device{ID: "GPU-1"}, Memory: gpu.Memory{Used: gpu.Bytes(64 << 20)}}}
		}, measured},
		"another user's, in no job": {func(f *facts) {
			f.end.Recording.GPUs[0].Processes = []record.RecordedProcess{{UID: 1001, Most: 65 << 20}}
		}, measured + ", other jobs"},
		"services, a container, small ones": {func(f *facts) {
			f.end.Recording.GPUs[0].Processes = []record.RecordedProcess{{UID: 1001, Most: 65 << 20, Service: "x"}, {UID: 1, Most: 65 << 20, Apart: true}, {UID: 1001, Most: 64 << 20}}
		}, measured},
		"its own": {func(f *facts) {
			f.end.Recording.GPUs[0].Processes = []record.RecordedProcess{{Owner: slurm.Owner{ID: 7}}, {}}
		}, measured},
	} {
		device := gpu.Device{ID: "GPU-1", Name: "H200"}
		f := facts{
			run: record.Run{Job: slurm.Job{ID: 7, Batch: true, NodeList: "n[1-2]", GPUIndexes: []int{0}, Exit: slurm.ExitStatus{Known: true}},
				Devices: []record.Assigned{{Device: device}}, Start: &record.End{At: time.Second}},
			end: record.End{At: 63 * time.Second, Began: 61 * time.Second,
				Snapshot: gpu.Snapshot{Readings: []gpu.Reading{{Device: device, Memory: gpu.Memory{Total: gpu.Bytes(140)}}}},
				Recording: &record.Recording{From: time.Second, To: 61 * time.Second, Every: time.Second, Samples: 61,
					GPUs: []record.GPURecording{{ID: "GPU-1", Samples: 61, Peak: record.Most{Bytes: 7}, Busy: record.Busy{Samples: 2, Sum: 100}}}}},
		}
		c.change(&f)
		past := f.run
		past.Job.Restarts = f.past
		s := spooled(judge.Case{Past: judge.Past{Run: past}, Output: f.out}, f.run, "train", f.end)
		u := s.Used
		got := fmt.Sprintf("%s %gs of %d nodes", u.End, u.Seconds, u.Nodes)
		if u.RanOut {
			got += ", ran out"
		}
		for _, g := range u.GPUs {
			got += fmt.Sprintf(": %s %d of %d", g.Model, g.Peak, g.Total)
			if g.Busy != nil {
				got += fmt.Sprintf(", busy %d", *g.Busy)
			}
			if g.Shared != "" {
				got += ", " + g.Shared
			}
		}
		if u.Unmeasured != "" {
			got += " (" + u.Unmeasured + ")"
		}
		must.Be(t, name, got, c.want)
		must.Be(t, name, u.Name, "train")
	}
}

// What earlier runs used is compared with the job's smallest GPU, unless a size, or which GPUs it has, is not certain.
func TestSmallest(t *testing.T) {
	type facts struct {
		a    *node.Access
		run  record.Run
		seen []gpu.Reading
	}
	for name, c := range map[string]struct {
		change func(*facts)
		want   string
	}{
		"the smaller":    {func(*facts) {}, "A 40"},
		"not wanted":     {func(f *facts) { f.a.Config.JobLog.Peaks = false }, " 0"},
		"one only":       {func(f *facts) { f.run.Devices = f.run.Devices[:1] }, "B 140"},
		"of unknown":     {func(f *facts) { f.seen[0].Memory.Total = gpu.Figure{} }, "B 0"},
		"not read":       {func(f *facts) { f.seen = f.seen[:1] }, " 0"},
		"a part":         {func(f *facts) { f.seen[1].Parts = true }, " 0"},
		"of a NUMA node": {func(f *facts) { f.seen[0].Memory.Unjudged = "files" }, " 0"},
		"not its number": {func(f *facts) { f.run.Job.GPUIndexes = []int{0, 1, 2} }, " 0"},
		"perhaps others": {func(f *facts) { f.run.Numbering.Perhaps = []gpu.ID{"GPU-3"} }, " 0"},
		"a child hangs on the user's files": {func(f *facts) {
			f.a.Config.Paths.Proc = "/proc"
			user, self := uint32(0), must.Have(os.ReadFile("/proc/self/stat"))(t)
			ticks := must.Have(strconv.ParseUint(strings.Fields(string(self[strings.LastIndexByte(string(self), ')'):]))[20], 10, 64))(t)
			stuck := state.Stuck{PID: os.Getpid(), StartTicks: ticks, Op: "append", User: &user}
			must.Do(t, state.StuckChildren.Add(f.a.Store, stuck, func(int, uint64) bool { return true }))
		}, " 0"},
	} {
		a, _ := onrecord.Node(t, slurm.Prolog)
		a.Config.JobLog.Peaks = true
		f := facts{a: a}
		for i, of := range []gpu.Reading{{Device: gpu.Device{Name: "B"}, Memory: gpu.Memory{Total: gpu.Bytes(140)}},
			{Device: gpu.Device{Name: "A"}, Memory: gpu.Memory{Total: gpu.Bytes(40)}}} {
			of.Device.ID = gpu.ID(fmt.Sprint("GPU-", i))
			f.run.Devices, f.seen = append(f.run.Devices, record.Assigned{Device: of.Device}), append(f.seen, of)
		}
		c.change(&f)
		f.run.Start = &record.End{Snapshot: gpu.Snapshot{Readings: f.seen}}
		model, total := smallest(a, f.run)
		must.Be(t, name, fmt.Sprint(model, " ", total), c.want)
	}
}

// The name service is asked about a user only if something may be written as that user.
func TestAccount(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*node.Access)
		asked  bool
	}{
		"a script":              {func(*node.Access) {}, true},
		"no report":             {func(a *node.Access) { a.Config.JobLog.Show = "none" }, false},
		"no report, but spool":  {func(a *node.Access) { a.Config.JobLog.Show, a.Config.Spool = "none", "/spool/%u" }, true},
		"no script":             {func(a *node.Access) { a.Job.Batch = false }, false},
		"no script, but spool":  {func(a *node.Access) { a.Job.Batch, a.Config.Spool = false, "/spool/%u" }, true},
		"a hook that is a user": {func(a *node.Access) { a.Env.EUID = 1 }, false},
	} {
		a := &node.Access{Config: config.Default(), Job: slurm.Job{UID: 4, GID: 65534, Batch: true}}
		c.change(a)
		who, err := account(a)()
		must.Do(t, err)
		must.Be(t, name, len(who.Groups) > 0, c.asked)
	}
}
