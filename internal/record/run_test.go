package record

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/gpu"
	"bookend/internal/slurm"
	"bookend/test/must"
)

// An end may be another run's only where Slurm does not say which, and one of the same job has just ended.
func TestMistakable(t *testing.T) {
	job := slurm.Job{ID: 100, UID: 7}
	open := Run{Key: "w2", Job: job, Epoch: gpu.Epoch{Boot: "b"}, Start: &End{At: 30 * time.Second}}
	ended := func(change func(*Run)) []Run {
		r := Run{Key: "w1", Job: job, Epoch: gpu.Epoch{Boot: "b"}, Ends: []End{{At: 20 * time.Second}}}
		change(&r)
		return []Run{open, r}
	}
	same := func(*Run) {}
	sure := job
	sure.Start = time.Unix(1_790_000_000, 0)
	known := open
	known.Job.Start = sure.Start
	for name, tt := range map[string]struct {
		run  Run
		runs []Run
		job  slurm.Job
		now  time.Duration
		want bool
	}{
		"just ended":          {open, ended(same), job, time.Minute, true},
		"long ago":            {open, ended(same), job, time.Hour, false},
		"not by this clock":   {open, ended(same), job, 10 * time.Second, false},
		"the only run":        {open, []Run{open}, job, time.Minute, false},
		"this very run":       {open, ended(func(r *Run) { r.Key = "w2" }), job, time.Minute, false},
		"another job":         {open, ended(func(r *Run) { r.Job.ID = 101 }), job, time.Minute, false},
		"another user's":      {open, ended(func(r *Run) { r.Job.UID = 8 }), job, time.Minute, false},
		"of a former boot":    {open, ended(func(r *Run) { r.Epoch.Boot = "a" }), job, time.Minute, false},
		"still open":          {open, ended(func(r *Run) { r.Ends = nil }), job, time.Minute, false},
		"Slurm tells the run": {known, ended(same), sure, time.Minute, false},
	} {
		if got := tt.run.Mistakable(tt.runs, tt.job, tt.now, 5*time.Minute); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}

// A process that was seen in two jobs' cgroups proves nothing of either.
func TestNoProofOfTwoJobs(t *testing.T) {
	r := Recording{GPUs: []GPURecording{{Processes: []RecordedProcess{{PID: 7, Owner: slurm.Owner{ID: 100, Conflict: "two jobs"}}}}}}
	if proofs := r.Proofs(); len(proofs) > 0 {
		t.Errorf("%+v", proofs)
	}
}

// A job is named as its user knows it, everywhere the same.
func TestJobName(t *testing.T) {
	run := func(id, leader slurm.JobID, array slurm.ArrayTask) Run {
		return Run{Job: slurm.Job{ID: id, HetJobID: leader}, Display: Display{Array: array}}
	}
	for want, r := range map[string]Run{
		"1": run(1, 0, slurm.ArrayTask{}), "102_7": run(103, 0, slurm.ArrayTask{Master: 102, Task: 7}),
		"104+1": run(105, 104, slurm.ArrayTask{}), "104+0": run(104, 104, slurm.ArrayTask{}),
	} {
		if got := r.JobName(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// Within a boot CLOCK_BOOTTIME orders runs, however the wall clock was set meanwhile. Boots are ordered by the wall clock
// at each one's newest record.
func TestNewest(t *testing.T) {
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	run := func(key, boot string, up time.Duration, wall time.Time) Run {
		return Run{Key: key, Epoch: gpu.Epoch{Boot: boot}, Start: &End{At: up, Wall: wall}}
	}
	for name, tt := range map[string]struct {
		runs []Run
		want string
	}{
		"one boot": {[]Run{run("1", "b", time.Minute, noon), run("2", "b", time.Hour, noon.Add(time.Hour))}, "21"},
		"set back": {[]Run{run("1", "b", time.Minute, noon), run("2", "b", time.Hour, noon.Add(-48*time.Hour))}, "21"},
		"set ahead, and back": {[]Run{run("1", "b", time.Minute, noon.Add(91*24*time.Hour)),
			run("2", "b", time.Hour, noon.Add(time.Hour))}, "21"},
		"a clock without a battery": {[]Run{run("1", "a", 90*time.Hour, noon), run("2", "b", time.Minute, time.Unix(60, 0)),
			run("3", "b", time.Hour, noon.Add(2*time.Hour))}, "321"},
		"two boots": {[]Run{run("1", "a", 90*time.Hour, noon), run("2", "b", time.Minute, noon.Add(time.Hour))}, "21"},
		"a boot that is unknown": {[]Run{run("1", "", 90*time.Hour, noon), run("2", "b", time.Minute, noon.Add(time.Hour)),
			run("3", "", time.Minute, noon.Add(2*time.Hour))}, "321"},
	} {
		for range 2 {
			got := ""
			for _, r := range Newest(tt.runs) {
				got += r.Key
			}
			if got != tt.want {
				t.Errorf("%s: %s, want %s", name, got, tt.want)
			}
			slices.Reverse(tt.runs)
		}
	}
}

// readable is the size that a record must stay below to be read: package state's.
const readable = 1 << 20

// Of every list that is longer than fits the first entries stay, of the findings besides the first of each code. The others are
// counted, a list of the GPU's processes counts as not whole, and the caller's own lists are left as they are.
func TestBoundedLists(t *testing.T) {
	few, many := maxEntries["findings"], maxEntries["listed"]
	over := many + 1
	e := End{Scan: &Scan{}}
	var listed []gpu.Process
	for i := range over {
		p := Process{PID: i + 1}
		e.Findings = append(e.Findings, Finding{Code: catalog.Stray})
		e.Verdict.Judged = append(e.Verdict.Judged, Judged{Action: catalog.ToWarn})
		e.Processes, e.Scan.Holdings = append(e.Processes, p), append(e.Scan.Holdings, Holding{Process: p})
		listed = append(listed, gpu.Process{PID: p.PID})
	}
	e.Snapshot.Readings = []gpu.Reading{{Processes: listed}}
	e.Findings[over-1] = Finding{Code: catalog.Orphan, Candidates: make([]Holder, over)}
	e.Findings[over-1].Candidates[over-1].Owner = &Owner{Job: 7}
	before, _ := json.Marshal(e)
	got := e.Bounded()
	want := map[string]int{"processes": 1, "listed": 1, "holdings": over - few, "candidates": over - few, "findings": over - few - 2}
	if !maps.Equal(got.Rest, want) || len(got.Verdict.Judged) != len(got.Findings) {
		t.Errorf("rest %v, want %v", got.Rest, want)
	}
	f, r := got.Findings[len(got.Findings)-1], got.Snapshot.Readings[0]
	if f.Candidates[0].Owner == nil {
		t.Error("the candidate with an owner, which may clear it, is gone")
	}
	if got.Scan.Partial == "" || f.Code != catalog.Orphan || r.ProcessesUnknown == "" {
		t.Errorf("what was left out is not told: %+v", got)
	}
	if after, _ := json.Marshal(e); string(before) != string(after) {
		t.Error("the caller's own was changed")
	}
	if again := got.Bounded(); !reflect.DeepEqual(again, got) {
		t.Errorf("bounded twice it differs:\n%+v\n%+v", got.Rest, again.Rest)
	}
}

// Whatever a hook saw: its codes, its verdict and what a drain was for stay when lists are cut and when the evidence is left
// out, and without evidence the record is small enough to be read.
func TestBoundedKeepsTheVerdict(t *testing.T) {
	for seed := range uint64(12) {
		random := rand.New(rand.NewPCG(seed, 1))
		r := Run{Version: 1, Key: "t1", Job: slurm.Job{ID: 7}, Start: crowded(random)}
		for range 1 + random.IntN(4) {
			r.Ends = append(r.Ends, *crowded(random))
		}
		bounded, bare := r.Start.Bounded(), r.Bare()
		sameVerdict(t, *r.Start, bounded)
		sameVerdict(t, *r.Start, *bare.Start)
		for i := range r.Ends {
			sameVerdict(t, r.Ends[i], r.Ends[i].Bounded())
			sameVerdict(t, r.Ends[i], bare.Ends[i])
		}
		check := Check{Snapshot: r.Start.Snapshot, Findings: r.Start.Findings, Verdict: r.Start.Verdict, Health: r.Start.Health}
		for _, c := range []Check{check.Bounded(), check.Bare()} {
			sameVerdict(t, *r.Start, End{Findings: c.Findings, Verdict: c.Verdict})
		}
		for _, what := range []any{bare, check.Bare()} {
			data, err := json.Marshal(what)
			must.Not(t, err != nil || len(data) >= readable/2, "seed %d: %d bytes, %v", seed, len(data), err)
		}
	}
}

// crowded is an end with far too much of what has no bound of its own, in texts that JSON makes six times as long.
func crowded(random *rand.Rand) *End {
	many := func() int { return 1 << random.IntN(11) }
	text := func() string { return strings.Repeat("\x01", random.IntN(1<<random.IntN(13))) }
	e := End{Scan: &Scan{}, Kernel: &gpu.KernelLog{}, Report: text()}
	all := catalog.All()
	for i := range many() {
		f := Finding{Code: all[random.IntN(len(all))].Code, GPU: gpu.ID(fmt.Sprintf("GPU-%d", random.IntN(16))),
			Bytes: gpu.Bytes(random.Uint64N(1 << 40)), Observed: text(), Unknown: text()}
		for range many() / 64 {
			f.Candidates = append(f.Candidates,
				Holder{Process: Process{PID: random.IntN(1 << 22), Exe: text()}})
		}
		e.Findings = append(e.Findings, f)
		action := catalog.ToWarn
		if random.IntN(3) == 0 {
			action = catalog.ToDrain
		}
		e.Verdict.Judged = append(e.Verdict.Judged, Judged{Action: action, Why: text()})
		if i == 0 || action == catalog.ToDrain {
			e.Verdict.Action, e.Verdict.Code, e.Verdict.Exit = action, f.Code, 10+i
		}
	}
	for range many() {
		p := Process{PID: random.IntN(1 << 22), Name: text(), Exe: text()}
		e.Processes, e.Scan.Holdings = append(e.Processes, p), append(e.Scan.Holdings, Holding{Process: p})
		e.Kernel.Xids = append(e.Kernel.Xids, gpu.Xid{Text: text()})
	}
	for i := range 16 {
		reading := gpu.Reading{Device: gpu.Device{ID: gpu.ID(fmt.Sprintf("GPU-%d", i))}}
		for range many() {
			reading.Processes = append(reading.Processes,
				gpu.Process{PID: random.IntN(1 << 22), Memory: gpu.Bytes(random.Uint64())})
		}
		e.Snapshot.Readings = append(e.Snapshot.Readings, reading)
		e.Health = append(e.Health, gpu.Health{Facts: make([]gpu.Fact, 64)})
	}
	return &e
}

// sameVerdict compares what decides after an end: codes, exit code, the causes of a drain, and the finding it is for.
func sameVerdict(t *testing.T, before, after End) {
	t.Helper()
	v, w := before.Verdict, after.Verdict
	if v.Exit != w.Exit || v.Code != w.Code || v.Action != w.Action || len(w.Judged) != len(after.Findings) ||
		judged(before) != judged(after) {
		t.Errorf("%s, exit %d\nwas %s, exit %d", judged(after), w.Exit, judged(before), v.Exit)
	}
	i, j := v.Decisive(before.Findings), w.Decisive(after.Findings)
	if (i < 0) != (j < 0) || i >= 0 &&
		(before.Findings[i].GPU != after.Findings[j].GPU || before.Findings[i].Bytes != after.Findings[j].Bytes) {
		t.Errorf("the drain was for %+v, and is for %+v", i, j)
	}
}

// judged are an end's codes, and what package drain takes the causes of a drain from.
func judged(e End) string {
	all := map[string]bool{}
	for i, f := range e.Findings {
		all[string(f.Code)] = true
		if e.Verdict.Judged[i].Action == catalog.ToDrain {
			all[fmt.Sprintf("%s %s", f.Code, f.GPU)] = true
		}
	}
	return fmt.Sprint(slices.Sorted(maps.Keys(all)))
}

// docs/limits.md has the limits as they are.
func TestBoundsAreDocumented(t *testing.T) {
	page := must.Have(os.ReadFile("../../docs/limits.md"))(t)
	for name, most := range maxEntries {
		row := regexp.MustCompile(`(?m)^\|.*` + regexp.QuoteMeta("`"+name+"`") + fmt.Sprintf(`.* \| %d \|$`, most))
		if !row.Match(page) {
			t.Errorf("no row %s with %d", name, most)
		}
	}
	for _, text := range []string{
		fmt.Sprintf("at most %d KiB, a user's report %d KiB", maxText>>10, maxReport>>10),
	} {
		if !strings.Contains(string(page), text) {
			t.Errorf("no %q", text)
		}
	}
}

// An epilog finds its run by SLUID, else by start time, else the newest one of the job id. A job id that another user's
// job had before, as after a reset of Slurm's ids, is another job's.
func TestMatch(t *testing.T) {
	began := func(unix int64) func(*Run) { return func(r *Run) { r.Job.Start = time.Unix(unix, 0) } }
	by := func(sluid slurm.SLUID) func(*Run) { return func(r *Run) { r.Job.SLUID = sluid } }
	of := func(key string, at time.Duration, change func(*Run), ends ...End) Run {
		r := Run{Key: key, Job: slurm.Job{ID: 7, UID: 1001}, Start: &End{At: at}, Ends: ends}
		if change != nil {
			change(&r)
		}
		return r
	}
	for name, tt := range map[string]struct {
		runs  []Run
		job   func(*Run)
		key   string
		which string
	}{
		"no record":           {nil, nil, "", "none"},
		"of other jobs alone": {[]Run{of("a", 1, func(r *Run) { r.Job.ID = 8 })}, nil, "", "none"},
		"another job's first": {[]Run{of("a", 9, func(r *Run) { r.Job.ID = 8 }), of("b", 1, nil)}, nil, "b",
			"open"},
		"the newest": {[]Run{of("a", 1, nil), of("b", 2, nil), of("c", 1, nil)}, nil, "b",
			"open"},
		"by SLUID": {[]Run{of("a", 1, by("sA")), of("b", 2, by("sB"))}, by("sA"), "a", "open"},
		"by start time": {[]Run{of("a", 1, began(100)), of("b", 2, began(200))}, began(100), "a",
			"open"},
		"a sure one before a newer one": {[]Run{of("a", 1, began(100)), of("b", 2, nil)}, began(100), "a", "open"},
		"of another start alone":        {[]Run{of("a", 1, began(100))}, began(200), "", "none"},
		"Slurm does not say which":      {[]Run{of("a", 1, began(100)), of("b", 2, began(200))}, nil, "b", "open"},
		"closed by its epilog":          {[]Run{of("a", 1, nil, End{At: 3})}, nil, "a", "closed"},
		"another user's, which is newer": {[]Run{of("a", 1, nil), of("b", 2, func(r *Run) { r.Job.UID = 1002 })}, nil, "a",
			"open"},
		"another user's with its SLUID": {[]Run{of("a", 1, func(r *Run) { r.Job.UID, r.Job.SLUID = 1002, "sA" })},
			by("sA"), "", "none"},
		"another run's by its SLUID": {[]Run{of("a", 1, by("sB"))}, by("sA"), "", "none"},
		"a newer closed one, if it is it": {[]Run{of("a", 1, began(100)), of("b", 2, began(200), End{At: 3})},
			began(200), "b", "closed"},
	} {
		hook := of("", 0, tt.job).Job
		got, which := Match(tt.runs, hook), "open"
		if got.Key == "" {
			which = "none"
		} else if got.Epilog() != nil {
			which = "closed"
		}
		if got.Key != tt.key || which != tt.which {
			t.Errorf("%s: run %q, %s", name, got.Key, which)
		}
	}
}
