package page

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/test/must"
)

// ranFor is a run of an hour on GPUs by their numbers, that began so many hours after the start of the day.
func ranFor(id slurm.JobID, uid uint32, hours int, gpus ...int) record.Run {
	at := time.Duration(hours+1) * time.Hour
	r := record.Run{Key: "w", Job: slurm.Job{ID: id, UID: uid, User: fmt.Sprintf("u%d", uid)},
		Start: &record.End{At: at, Wall: clock(float64(hours))},
		Ends:  []record.End{{At: at + time.Hour, Wall: clock(float64(hours + 1))}}}
	for _, n := range gpus {
		r.Devices = append(r.Devices, record.Assigned{Index: n, Device: gpu.Device{Minor: &n,
			ID: gpu.ID(fmt.Sprintf("GPU-%d", n)), BusID: gpu.BusID(fmt.Sprintf("0000:%d0:00.0", n))}})
	}
	return r
}

func clock(hours float64) time.Time {
	return time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC).Add(time.Duration(hours * float64(time.Hour)))
}

// with adds a finding to the end of a run.
func with(r record.Run, c catalog.Code, action config.Action) record.Run {
	r.Ends[0].Findings = []record.Finding{{Code: c}}
	r.Ends[0].Verdict.Judged = []record.Judged{{Action: action}}
	return r
}

// A name means a GPU that the driver has now before one of the records, and none if it could be either of two.
func TestFirstGPU(t *testing.T) {
	at := func(index int, id gpu.ID, bus gpu.BusID) record.Assigned {
		return record.Assigned{Index: index, Device: gpu.Device{ID: id, BusID: bus}}
	}
	now := []record.Assigned{at(1, "GPU-a", "0000:10:00.0"), at(2, "GPU-b", "0000:20:00.0"), at(2, "GPU-c", "0000:30:00.0")}
	older := ranFor(100, 1, 0)
	older.Devices = []record.Assigned{at(0, "GPU-a", "0000:10:00.0"), at(1, "GPU-old", "0000:10:00.0"), at(3, "GPU-gone", "0000:40:00.0"),
		{Index: 4, Device: gpu.Device{ID: "MIG-d", Parent: "GPU-d", BusID: "0000:50:00.0"}}}
	all := WithRecorded(now, []record.Run{older})
	for name, want := range map[string]gpu.ID{"1": "GPU-a", "0000:10:00.0": "GPU-a", "gpu-c": "GPU-c", "3": "GPU-gone", "0": "",
		"2": "", "GPU-old": "", "4": "", "5": "", "": ""} {
		got, found := Filter{GPU: name}.FirstGPU(all, len(now))
		must.Not(t, got.Device.ID != want || found != (want != ""), "%q: %+v, %v, want %q", name, got, found, want)
	}
}

func TestFilter(t *testing.T) {
	array := ranFor(103, 3, 4, 1)
	array.Display.Array = slurm.ArrayTask{Master: 102, Task: 7}
	het := ranFor(105, 3, 5, 1)
	het.Job.HetJobID = 104
	live := ranFor(107, 2, 7, 1)
	live.Ends = nil
	runs := []record.Run{with(ranFor(100, 1, 0, 0), catalog.Orphan, config.Warn),
		with(ranFor(101, 1, 1, 0, 1), catalog.Throttle, config.Note), array, het, ranFor(106, 2, 6, 0), live}
	of := func(s string) Filter {
		ref := must.Have(slurm.ParseRef(s))(t)
		return Filter{Of: func(r record.Run) bool { return ref.Selects(r.Job, r.Display.Array) }}
	}
	for name, tt := range map[string]struct {
		f    Filter
		want []slurm.JobID
	}{
		"all":               {Filter{}, []slurm.JobID{100, 101, 103, 105, 106, 107}},
		"a GPU":             {Filter{GPU: "0"}, []slurm.JobID{100, 101, 106}},
		"by UUID":           {Filter{GPU: "gpu-1"}, []slurm.JobID{101, 103, 105, 107}},
		"by bus id":         {Filter{GPU: "0000:10:00.0"}, []slurm.JobID{101, 103, 105, 107}},
		"by device node":    {Filter{GPU: "nvidia0"}, []slurm.JobID{100, 101, 106}},
		"no such GPU":       {Filter{GPU: "9"}, nil},
		"a job":             {of("101"), []slurm.JobID{101}},
		"a task":            {of("102_7"), []slurm.JobID{103}},
		"another task":      {of("102_8"), nil},
		"an array":          {of("102"), []slurm.JobID{103}},
		"a component":       {of("104+1"), []slurm.JobID{105}},
		"another component": {of("104+2"), nil},
		"a het job":         {of("104"), []slurm.JobID{105}},
		"a user":            {Filter{User: "u3"}, []slurm.JobID{103, 105}},
		"a uid":             {Filter{User: "2"}, []slurm.JobID{106, 107}},
		"a code":            {Filter{Code: catalog.Orphan}, []slurm.JobID{100}},
		"found":             {Filter{Found: true}, []slurm.JobID{100}}, // what is only noted is not
		"noted, by code":    {Filter{Code: catalog.Throttle}, []slurm.JobID{101}},
		"found, of a code":  {Filter{Code: catalog.Throttle, Found: true}, nil},
		"since":             {Filter{Since: clock(6.5)}, []slurm.JobID{106, 107}},
		"since a live one":  {Filter{Since: clock(100)}, []slurm.JobID{107}},
		"until":             {Filter{Until: clock(0.5)}, []slurm.JobID{100}},
		"between":           {Filter{Since: clock(4.5), Until: clock(5.5)}, []slurm.JobID{103, 105}},
		"all at once":       {Filter{GPU: "0", User: "u1", Code: catalog.Orphan}, []slurm.JobID{100}},
		"and nothing":       {Filter{GPU: "1", Code: catalog.Orphan}, nil},
	} {
		var got []slurm.JobID
		for _, r := range tt.f.Pick(runs) {
			got = append(got, r.Job.ID)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}
