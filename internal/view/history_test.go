package view

import (
	"encoding/json"
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

var morning = time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)

// job is a run of an hour on GPUs by their numbers, that began so many hours after the morning.
func job(id slurm.JobID, uid uint32, hours int, gpus ...int) record.Run {
	began := morning.Add(time.Duration(hours) * time.Hour)
	r := record.Run{Key: fmt.Sprintf("t%d", began.Unix()),
		Job: slurm.Job{ID: id, UID: uid, User: fmt.Sprintf("u%d", uid), Node: "n1",
			Exit: slurm.ExitStatus{Known: true}}}
	r.Start = &record.End{At: time.Duration(hours+1) * time.Hour, Wall: began}
	r.Ends = []record.End{{At: r.Start.At + time.Hour, Wall: began.Add(time.Hour)}}
	for _, n := range gpus {
		minor := n
		d := gpu.Device{ID: gpu.ID(fmt.Sprintf("GPU-%d", n)), BusID: gpu.BusID(fmt.Sprintf("0000:%d0:00.0", n)),
			Minor: &minor}
		r.Devices = append(r.Devices, record.Assigned{Index: n, Device: d})
		look := gpu.Reading{Device: d,
			Memory: gpu.Memory{Used: gpu.Bytes(0), Free: gpu.Bytes(1 << 30), Total: gpu.Bytes(1 << 30),
				Reserved: gpu.Bytes(0)}}
		for _, e := range []*record.End{r.Start, &r.Ends[0]} {
			e.Snapshot.Readings = append(e.Snapshot.Readings, look)
		}
		r.Ends[0].Curves = map[gpu.ID]record.Curve{d.ID: {State: record.Clean}}
	}
	return r
}

// found adds a finding on a GPU to the end of a run.
func found(r record.Run, c catalog.Code, index int, action config.Action) record.Run {
	e := &r.Ends[0]
	e.Findings = append(e.Findings,
		record.Finding{Code: c, GPU: gpu.ID(fmt.Sprintf("GPU-%d", index)), Index: &index})
	e.Verdict.Judged = append(e.Verdict.Judged, record.Judged{Action: action})
	e.Verdict.Action, e.Verdict.Code = action, c
	return r
}

func TestFilter(t *testing.T) {
	array := job(103, 3, 4, 1)
	array.Display.Array = slurm.ArrayTask{Master: 102, Task: 7}
	het := job(105, 3, 5, 1)
	het.Job.HetJobID = 104
	live := job(107, 2, 7, 1)
	live.Ends, live.Job.Exit = nil, slurm.ExitStatus{}
	runs := []record.Run{found(job(100, 1, 0, 0), catalog.Orphan, 0, config.Warn),
		found(job(101, 1, 1, 0, 1), catalog.Throttle, 1, config.Note), array, het, job(106, 2, 6, 0), live}
	ref := func(s string) *slurm.Ref {
		r, err := slurm.ParseRef(s)
		if err != nil {
			t.Fatal(err)
		}
		return &r
	}
	at := func(hours float64) time.Time { return morning.Add(time.Duration(hours * float64(time.Hour))) }
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
		"a job":             {Filter{Job: ref("101")}, []slurm.JobID{101}},
		"a task":            {Filter{Job: ref("102_7")}, []slurm.JobID{103}},
		"another task":      {Filter{Job: ref("102_8")}, nil},
		"an array":          {Filter{Job: ref("102")}, []slurm.JobID{103}},
		"a component":       {Filter{Job: ref("104+1")}, []slurm.JobID{105}},
		"another component": {Filter{Job: ref("104+2")}, nil},
		"a het job":         {Filter{Job: ref("104")}, []slurm.JobID{105}},
		"a user":            {Filter{User: "u3"}, []slurm.JobID{103, 105}},
		"a uid":             {Filter{User: "2"}, []slurm.JobID{106, 107}},
		"a code":            {Filter{Code: catalog.Orphan}, []slurm.JobID{100}},
		"found":             {Filter{Found: true}, []slurm.JobID{100}}, // what is only noted is not loud
		"noted, by code":    {Filter{Code: catalog.Throttle}, []slurm.JobID{101}},
		"found, of a code":  {Filter{Code: catalog.Throttle, Found: true}, nil},
		"since":             {Filter{Since: at(6.5)}, []slurm.JobID{106, 107}},
		"since a live one":  {Filter{Since: at(100)}, []slurm.JobID{107}},
		"until":             {Filter{Until: at(0.5)}, []slurm.JobID{100}},
		"between":           {Filter{Since: at(4.5), Until: at(5.5)}, []slurm.JobID{103, 105}},
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
	for i, r := range record.Newest(runs) {
		if want := []slurm.JobID{106, 107, 105, 103, 101, 100}[i]; r.Job.ID != want {
			t.Errorf("the newest: number %d is %d, want %d", i, r.Job.ID, want)
		}
	}
}

// TestHistory holds what is shown of runs to testdata/history.txtar. What several users meet is told from what one user's
// program does; what a start found is the earlier job's.
func TestHistory(t *testing.T) {
	golden.Archive(t, *update, "testdata/history.txtar", func(given string) string {
		var runs []record.Run
		must.Do(t, json.Unmarshal([]byte(given), &runs))
		var b strings.Builder
		NewHistory("n1", record.Newest(runs), runs, len(runs)/5).Text(&b)
		NewOffenders("n1", runs).Text(&b)
		return b.String()
	})
}
