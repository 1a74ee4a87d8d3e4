package report

import (
	"strings"
	"testing"

	"bookend/internal/catalog"
	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/test/must"
)

// A node is to be avoided for what the start proves and reports, also if an earlier job left it. What is hidden, does
// programs no harm or proves nothing is no reason.
func TestVet(t *testing.T) {
	dirty := found(catalog.Dirty, holder(1001), &record.Owner{Job: 4, UID: 1001})
	doubted := dirty
	doubted.Doubts = []string{"process 9 may hold it"}
	unread := record.Finding{Code: catalog.Dirty, GPU: "GPU-a", Unknown: "list withheld"}
	doubtful := fails(catalog.XidFatal, "", 79)
	doubtful.Doubts = []string{"the driver does not say whether the GPU was reset since"}
	amd := scene(1, record.Flat, dirty)
	amd.Cards[0].Device.Vendor = "amd"
	hidden := scene(1, record.Flat, dirty)
	hidden.Verdict.Judged[0].Action = config.Note
	reset := record.Finding{Code: catalog.RemapPending, GPU: "GPU-a", Index: new(int)}
	beside := func(of slurm.JobID, shared bool) Scene {
		s := scene(1, record.Flat)
		s.Shared, s.Now.Processes = shared, map[int]record.Process{9: {PID: 9, UID: 1002, Cgroup: slurm.Owner{ID: of}}}
		s.Now.Snapshot.Readings[0].Processes = []gpu.Process{{PID: 9, Memory: gpu.Bytes(20480 * mebi)}}
		return s
	}
	withheld := beside(41, false)
	withheld.Now.Snapshot.Readings[0].ProcessesUnknown = "of all MIG instances"
	for name, tt := range map[string]struct {
		s    Scene
		want record.Answer
		why  string
	}{
		"clean":                     {scene(2, record.Clean), record.No, ""},
		"in use, as is allowed":     {scene(1, record.Flat), record.No, ""},
		"a suspended job's":         {beside(41, false), record.CannotTell, "GPU 0: another job has 20.0 GiB of it"},
		"a list that tells nothing": {withheld, record.No, ""},
		"one's of a shared GPU":     {beside(41, true), record.No, ""},
		"its own, at the end":       {beside(42, false), record.No, ""},
		"hidden":                    {hidden, record.No, ""},
		"rows wait for a reset":     {scene(1, record.Clean, reset), record.No, ""},
		"own leftover":              {scene(1, record.Flat, dirty), record.Yes, "GPU 0: GPU was not clean at the start, 20.0 GiB (BKD-DIRTY)"},
		"holder not certain":        {scene(1, record.Flat, doubted), record.Yes, "BKD-DIRTY"},
		"a lost GPU":                {scene(1, record.Clean, reset, fails(catalog.Lost, "", 0)), record.Yes, "BKD-LOST"},
		"no driver that fits":       {scene(1, record.Clean, record.Finding{Code: catalog.Mismatch}), record.Yes, "BKD-MISMATCH"},
		"a doubt":                   {scene(1, record.Clean, doubtful), record.CannotTell, "BKD-XIDFATAL"},
		"unknown":                   {scene(1, record.Flat, unread), record.CannotTell, "GPU was not clean at the start (BKD-DIRTY)"},
		"a driver that hangs":       {scene(1, record.Unreadable, record.Finding{Code: catalog.Hang}), record.CannotTell, "BKD-HANG"},
		"a driver that is stuck": {scene(1, record.Unreadable, record.Finding{Code: catalog.Stuck}), record.CannotTell,
			"BKD-STUCK"},
		"still changing":  {scene(1, record.Moving, found(catalog.Moving, nil, nil)), record.CannotTell, "BKD-MOVING"},
		"untried vendor":  {amd, record.CannotTell, "BKD-DIRTY"},
		"both":            {scene(1, record.Unreadable, unread, dirty), record.Yes, "20.0 GiB"},
		"not looked at":   {scene(1, record.Unreadable, record.Finding{Code: catalog.BackendCrash}), record.CannotTell, "not checked: backend crashed"},
		"no GPU is known": {scene(0, record.Clean), record.CannotTell, "reason unknown"},
	} {
		must.Not(t, name == "a suspended job's" && strings.Contains(Start(tt.s), "no action needed"), "%s", Start(tt.s))
		avoid, why := Vet(tt.s)
		must.Not(t, avoid != tt.want || !strings.Contains(why, tt.why) || (why == "") != (tt.why == ""),
			"%s: %s, %q, want %s, %q", name, avoid, why, tt.want, tt.why)
	}
}

func TestVetRunning(t *testing.T) {
	s := scene(2, record.Clean)
	s.Recording = &record.Recording{GPUs: []record.GPURecording{{ID: "GPU-a"}, {ID: "GPU-b"}}}
	must.Be(t, "without an error", VetRunning(s), "")
	s.Recording.GPUs[1].Faults = []record.RecordedFault{{Code: 79}}
	must.Not(t, !strings.HasPrefix(VetRunning(s), "GPU 1 since the job's start: ") || !strings.Contains(VetRunning(s), gpu.Error(79)),
		"%q", VetRunning(s))
}
