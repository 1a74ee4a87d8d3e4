package answer

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/ledger"
	"bookend/internal/settle"
	"bookend/internal/slurm"
)

var morning = time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)

// job is a run of an hour on GPUs by their numbers, that began so many hours after the morning.
func job(id slurm.JobID, uid uint32, hours int, cards ...int) ledger.Run {
	began := morning.Add(time.Duration(hours) * time.Hour)
	r := ledger.Run{Key: fmt.Sprintf("t%d", began.Unix()),
		Job: slurm.Job{ID: id, UID: uid, User: fmt.Sprintf("u%d", uid), Node: "n1",
			Exit: slurm.ExitStatus{Known: true}}}
	r.Start = &ledger.End{At: time.Duration(hours+1) * time.Hour, Wall: began}
	r.Ends = []ledger.End{{At: r.Start.At + time.Hour, Wall: began.Add(time.Hour)}}
	for _, n := range cards {
		minor := n
		d := gpu.Device{ID: gpu.ID(fmt.Sprintf("GPU-%d", n)), BusID: gpu.BusID(fmt.Sprintf("0000:%d0:00.0", n)),
			Minor: &minor}
		r.Devices = append(r.Devices, ledger.Assigned{Index: n, Device: d})
		look := gpu.Reading{Device: d,
			Memory: gpu.Memory{Used: gpu.Bytes(0), Free: gpu.Bytes(1 << 30), Total: gpu.Bytes(1 << 30),
				Reserved: gpu.Bytes(0)}}
		for _, e := range []*ledger.End{r.Start, &r.Ends[0]} {
			e.Snapshot.Readings = append(e.Snapshot.Readings, look)
		}
		r.Ends[0].Curves = map[gpu.ID]settle.Curve{d.ID: {State: settle.Clean}}
	}
	return r
}

// found adds a finding on a GPU to the end of a run.
func found(r ledger.Run, c code.Code, card int, action config.Action, owner *finding.Owner) ledger.Run {
	e := &r.Ends[0]
	e.Findings = append(e.Findings,
		finding.Finding{Code: c, GPU: gpu.ID(fmt.Sprintf("GPU-%d", card)), Index: &card, Bytes: gpu.Bytes(5 << 20),
			Owner: owner})
	e.Verdict.Judged = append(e.Verdict.Judged, finding.Judged{Action: action})
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
	runs := []ledger.Run{found(job(100, 1, 0, 0), code.Orphan, 0, config.Warn, nil),
		found(job(101, 1, 1, 0, 1), code.Throttle, 1, config.Note, nil), array, het, job(106, 2, 6, 0), live}
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
		"a code":            {Filter{Code: code.Orphan}, []slurm.JobID{100}},
		"found":             {Filter{Found: true}, []slurm.JobID{100}}, // what is only noted is not loud
		"noted, by code":    {Filter{Code: code.Throttle}, []slurm.JobID{101}},
		"found, of a code":  {Filter{Code: code.Throttle, Found: true}, nil},
		"since":             {Filter{Since: at(6.5)}, []slurm.JobID{106, 107}},
		"since a live one":  {Filter{Since: at(100)}, []slurm.JobID{107}},
		"until":             {Filter{Until: at(0.5)}, []slurm.JobID{100}},
		"between":           {Filter{Since: at(4.5), Until: at(5.5)}, []slurm.JobID{103, 105}},
		"all at once":       {Filter{GPU: "0", User: "u1", Code: code.Orphan}, []slurm.JobID{100}},
		"and nothing":       {Filter{GPU: "1", Code: code.Orphan}, nil},
	} {
		var got []slurm.JobID
		for _, r := range tt.f.Pick(runs) {
			got = append(got, r.Job.ID)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
	for i, r := range ledger.Newest(runs) {
		if want := []slurm.JobID{106, 107, 105, 103, 101, 100}[i]; r.Job.ID != want {
			t.Errorf("the newest: number %d is %d, want %d", i, r.Job.ID, want)
		}
	}
}

func TestHistory(t *testing.T) {
	lost := job(9, 1, 0, 0)
	lost.Ends = nil
	again := job(9, 1, 2, 0)
	closed := job(10, 1, 3, 0)
	closed.Ends = []ledger.End{{Wall: morning, Unseen: "no epilog came"}}
	bare := job(11, 1, 4, 0)
	bare.Start, bare.Job.Exit = nil, slurm.ExitStatus{Known: true, Raw: 9}
	runs := []ledger.Run{lost, again, closed, bare}
	h := NewHistory("n1", runs, runs, 2)
	if h.More != 2 || len(h.Runs) != 4 || h.Version != Version || h.Kind != KindHistory {
		t.Fatalf("%+v", h)
	}
	for i, want := range []State{Lost, Ended, Lost, Ended} {
		if h.Runs[i].State != want {
			t.Errorf("run %d is %s, want %s", i, h.Runs[i].State, want)
		}
	}
	for i, r := range h.Runs {
		if r.EndedAt.IsZero() != (i == 0 || i == 2) || r.BeganAt.IsZero() != (i == 3) || (r.Unseen != "") != (i == 2) ||
			(r.Seconds != nil) != (i == 1) || r.Peak.Known() {
			t.Errorf("run %d: %+v", i, r)
		}
	}
	if r := h.Runs[1]; *r.Seconds != 3600 || *r.Exit != 0 || !r.EndedAt.Equal(morning.Add(3*time.Hour)) {
		t.Errorf("%+v", r)
	}
	if r := h.Runs[3]; *r.Exit != 0 || *r.Signal != 9 || r.Start != nil || r.End == nil {
		t.Errorf("%+v", r)
	}
}

// What several users meet is told from what one user's program does; what a start found is the earlier job's.
func TestOffenders(t *testing.T) {
	dirty := job(8, 4, 8, 0)
	dirty.Start.Findings = []finding.Finding{{Code: code.Dirty, GPU: "GPU-0"}}
	dirtyToo := job(9, 5, 9, 0)
	dirtyToo.Start.Findings = dirty.Start.Findings
	blamed := &finding.Owner{Job: 77, UID: 70}
	runs := []ledger.Run{
		found(job(1, 1, 1, 0), code.Orphan, 0, config.Warn, nil),
		found(job(2, 1, 2, 0), code.Orphan, 0, config.Warn, nil),
		found(found(job(3, 2, 3, 1), code.XidFatal, 1, config.Drain, nil), code.XidFatal, 1, config.Drain, nil),
		found(job(4, 3, 4, 1), code.XidFatal, 1, config.Drain, nil),
		found(job(5, 3, 5, 1), code.XidFatal, 1, config.Drain, nil),
		found(job(6, 1, 6, 2), code.Stray, 2, config.Warn, nil),
		found(job(7, 1, 7, 2), code.Stray, 2, config.Warn, nil),
		dirty, dirtyToo, found(job(10, 6, 10, 2), code.Throttle, 2, config.Note, nil),
		found(job(11, 7, 11, 2), code.Throttle, 2, config.Note, nil),
		found(job(12, 8, 12, 3), code.Residue, 3, config.Warn, blamed),
		found(job(13, 9, 13, 3), code.Residue, 3, config.Warn, blamed),
		found(job(14, 9, 14, 3), code.Gap, 3, config.Warn, nil),
	}
	l := NewOffenders("n1", runs)
	if l.Runs != len(runs) || len(l.Cards) != 4 || l.Cards[0].ID != "GPU-1" {
		t.Fatalf("%+v", l)
	}
	for _, want := range []struct {
		card            string
		code            code.Code
		all, runs, jobs int
		users           int
		first, last     int // hours
		suspect         Suspect
	}{
		{"GPU-0", code.Orphan, 4, 2, 2, 1, 2, 3, SuspectUser},
		{"GPU-1", code.XidFatal, 3, 3, 3, 2, 4, 6, SuspectCard},
		{"GPU-2", code.Stray, 4, 2, 2, 1, 7, 8, SuspectNode},
		{"GPU-3", code.Residue, 3, 2, 1, 1, 13, 14, SuspectUser},
	} {
		i := slices.IndexFunc(l.Cards, func(c Offender) bool { return string(c.ID) == want.card })
		c := l.Cards[i]
		if c.Runs != want.all || len(c.Codes) != 1 {
			t.Errorf("%s: %+v", want.card, c)
			continue
		}
		r := c.Codes[0]
		first, last := morning.Add(time.Duration(want.first)*time.Hour), morning.Add(time.Duration(want.last)*time.Hour)
		if r.Code != want.code || r.Runs != want.runs || r.Jobs != want.jobs || r.Users != want.users ||
			r.Suspect != want.suspect || !r.FirstAt.Equal(first) || !r.LastAt.Equal(last) {
			t.Errorf("%s: %+v, want %+v", want.card, r, want)
		}
	}
}
