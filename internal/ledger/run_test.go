package ledger

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

	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/slurm"
	"bookend/test/must"
)

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
		which Which
	}{
		"no record":           {nil, nil, "", NoRun},
		"of other jobs alone": {[]Run{of("a", 1, func(r *Run) { r.Job.ID = 8 })}, nil, "", NoRun},
		"another job's first": {[]Run{of("a", 9, func(r *Run) { r.Job.ID = 8 }), of("b", 1, nil)}, nil, "b",
			OpenRun},
		"the newest": {[]Run{of("a", 1, nil), of("b", 2, nil), of("c", 1, nil)}, nil, "b",
			OpenRun},
		"by SLUID": {[]Run{of("a", 1, by("sA")), of("b", 2, by("sB"))}, by("sA"), "a", OpenRun},
		"by start time": {[]Run{of("a", 1, began(100)), of("b", 2, began(200))}, began(100), "a",
			OpenRun},
		"a sure one before a newer one": {[]Run{of("a", 1, began(100)), of("b", 2, nil)}, began(100), "a", OpenRun},
		"of another start alone":        {[]Run{of("a", 1, began(100))}, began(200), "", NoRun},
		"Slurm does not say which":      {[]Run{of("a", 1, began(100)), of("b", 2, began(200))}, nil, "b", OpenRun},
		"closed by its epilog":          {[]Run{of("a", 1, nil, End{At: 3})}, nil, "a", ClosedRun},
		"another user's, which is newer": {[]Run{of("a", 1, nil), of("b", 2, func(r *Run) { r.Job.UID = 1002 })}, nil, "a",
			OpenRun},
		"another user's with its SLUID": {[]Run{of("a", 1, func(r *Run) { r.Job.UID, r.Job.SLUID = 1002, "sA" })},
			by("sA"), "", NoRun},
		"another run's by its SLUID": {[]Run{of("a", 1, by("sB"))}, by("sA"), "", NoRun},
		"a newer closed one, if it is it": {[]Run{of("a", 1, began(100)), of("b", 2, began(200), End{At: 3})},
			began(200), "b", ClosedRun},
	} {
		hook := of("", 0, tt.job).Job
		if got, which := Match(tt.runs, hook); got.Key != tt.key || which != tt.which {
			t.Errorf("%s: run %q, %s", name, got.Key, which)
		}
	}
}

// State that is kept over a boot has runs of two: of one job id the later boot's is the one that runs, whatever the
// boot times say, and no run of the boot before is live.
func TestRunsOfTwoBoots(t *testing.T) {
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	run := func(id slurm.JobID, boot string, up time.Duration, wall time.Time) Run {
		return Run{Key: boot, Job: slurm.Job{ID: id}, Epoch: gpu.Epoch{Boot: boot}, Start: &End{At: up, Wall: wall}}
	}
	before, other := run(7, "first", 90*time.Hour, noon), run(8, "first", 91*time.Hour, noon)
	now := run(7, "second", time.Minute, noon.Add(time.Hour))
	all := []Run{before, now, other}
	if got, which := Match(all, slurm.Job{ID: 7}); got.Key != "second" || which != OpenRun {
		t.Errorf("%s %+v", which, got)
	}
	for _, r := range []Run{before, other} {
		if by := r.Superseded(all); by == nil || by.First().At != time.Minute {
			t.Errorf("job %d: over by %v", r.Job.ID, by)
		}
	}
	if now.Superseded(all) != nil {
		t.Error("the run of this boot is over")
	}
	over := changed(before, func(r *Run) { r.Ends = []End{{At: 95 * time.Hour, Wall: noon.Add(time.Minute)}} })
	if over.Superseded(all) != nil {
		t.Error("a run that has ended ends a second time")
	}
	// a start that could not read the boot: by boot time, as within one
	unread := run(7, "", time.Hour, noon.Add(2*time.Hour))
	if unread.Superseded([]Run{now}) != nil {
		t.Error("over")
	}
	if now.Superseded([]Run{unread}) == nil {
		t.Error("not over")
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

// What policy drains for the second time in a row was met by the last other job that ended on the GPU, before this one
// began.
func TestMetLast(t *testing.T) {
	const began = 100 * time.Hour // of this job, since the node booted
	here := gpu.Epoch{Boot: "b", Driver: "570", Module: "1"}
	broken, nodriver := finding.Finding{Code: code.Broken, GPU: "GPU-0"}, finding.Finding{Code: code.NoDriver}
	doubted := broken
	doubted.Doubts = []string{"one try"}
	end := func(ago time.Duration, found ...finding.Finding) End {
		return End{At: began - ago, Wall: time.Unix(1e9, 0).Add(-ago), Findings: found}
	}
	job := func(id slurm.JobID, on gpu.ID, ends ...End) Run {
		devices := []Assigned{{Device: gpu.Device{ID: on}}}
		return Run{Job: slurm.Job{ID: id}, Epoch: here, Devices: devices, Ends: ends}
	}
	of := func(epoch gpu.Epoch, r Run) Run { r.Epoch = epoch; return r }
	cut := func(r Run) Run { return r.Bare() }
	stepped := func(e End, by time.Duration) End { e.Wall = e.Wall.Add(by); return e }
	reloaded := func(e End) End { e.Epoch = here; return e }
	unseen := end(time.Second)
	unseen.Unseen = "its epilog never came"
	clean, met := end(time.Minute), end(time.Minute, broken)
	before, beforeMet := end(time.Hour), end(time.Hour, broken)
	for name, tt := range map[string]struct {
		runs []Run
		f    finding.Finding
		want bool
	}{
		"the last job met it":           {[]Run{job(1, "GPU-0", before), job(2, "GPU-0", met)}, broken, true},
		"the one before the last did":   {[]Run{job(1, "GPU-0", beforeMet), job(2, "GPU-0", clean)}, broken, false},
		"and its epilog ran again":      {[]Run{job(1, "GPU-0", beforeMet, end(time.Second, broken)), job(2, "GPU-0", clean)}, broken, false},
		"another GPU's job came last":   {[]Run{job(1, "GPU-0", beforeMet), job(2, "GPU-1", clean)}, broken, true},
		"on another GPU":                {[]Run{job(1, "GPU-1", end(time.Hour, finding.Finding{Code: code.Broken, GPU: "GPU-1"}))}, broken, false},
		"this very job's other end":     {[]Run{job(7, "GPU-0", met)}, broken, false},
		"with a doubt":                  {[]Run{job(1, "GPU-0", end(time.Hour, doubted))}, broken, false},
		"with a doubt, cut":             {[]Run{cut(job(1, "GPU-0", end(time.Hour, doubted)))}, broken, false},
		"cut":                           {[]Run{cut(job(1, "GPU-0", met))}, broken, true},
		"one runs, of one no end came":  {[]Run{job(9, "GPU-0"), job(8, "GPU-0", unseen), job(1, "GPU-0", beforeMet)}, broken, true},
		"of the node, whatever the GPU": {[]Run{job(1, "GPU-1", end(time.Hour, nodriver))}, nodriver, true},
		"side by side, in one hiccup":   {[]Run{job(1, "GPU-1", end(-time.Second, nodriver))}, nodriver, false},
		"before the node booted":        {[]Run{of(gpu.Epoch{Boot: "a"}, job(1, "GPU-0", met))}, broken, false},
		"before the driver was loaded":  {[]Run{of(gpu.Epoch{Boot: "b", Driver: "565"}, job(1, "GPU-0", met))}, broken, false},
		"the driver told nothing then":  {[]Run{of(gpu.Epoch{Boot: "b"}, job(1, "GPU-0", met))}, broken, true},
		"the boot is not known":         {[]Run{of(gpu.Epoch{}, job(1, "GPU-0", met))}, broken, false},
		"no job on record":              {nil, broken, false},
		"the clock was set back since":  {[]Run{job(1, "GPU-0", before), job(2, "GPU-0", stepped(met, -48*time.Hour))}, broken, true},
		"the clock was set ahead then":  {[]Run{job(1, "GPU-0", stepped(beforeMet, 48*time.Hour)), job(2, "GPU-0", clean)}, broken, false},
		"a boot before, by a clock ahead": {[]Run{of(gpu.Epoch{Boot: "a"}, job(1, "GPU-0", stepped(clean, 48*time.Hour))), job(2, "GPU-0", met)},
			broken, true},
		"the driver was reloaded during that job": {[]Run{of(gpu.Epoch{Boot: "b", Driver: "565", Module: "0"},
			job(1, "GPU-0", reloaded(met)))}, broken, true},
	} {
		self := Run{Job: slurm.Job{ID: 7}, Epoch: here, Start: &End{At: began}}
		if got := MetLast(tt.runs, self, tt.f); got != tt.want {
			t.Errorf("%s: got %v, want %v", name, got, tt.want)
		}
		if self.Start = nil; MetLast(tt.runs, self, tt.f) {
			t.Errorf("%s: repeated, though nobody knows when the job began", name)
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
	e := End{Scan: &finding.Scan{}}
	var listed []gpu.Process
	for i := range over {
		p := finding.Process{PID: i + 1}
		e.Findings = append(e.Findings, finding.Finding{Code: code.Stray})
		e.Verdict.Judged = append(e.Verdict.Judged, finding.Judged{Action: config.Warn})
		e.Processes, e.Scan.Holdings = append(e.Processes, p), append(e.Scan.Holdings, finding.Holding{Process: p})
		listed = append(listed, gpu.Process{PID: p.PID})
	}
	e.Snapshot.Readings = []gpu.Reading{{Processes: listed}}
	e.Findings[over-1] = finding.Finding{Code: code.Orphan, Candidates: make([]finding.Holder, over)}
	e.Findings[over-1].Candidates[over-1].Owner = &finding.Owner{Job: 7}
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
	if got.Scan.Partial == "" || f.Code != code.Orphan || r.ProcessesUnknown == "" {
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
	e := End{Scan: &finding.Scan{}, Kernel: &gpu.KernelLog{}, Report: text()}
	all := code.All()
	for i := range many() {
		f := finding.Finding{Code: all[random.IntN(len(all))].Code, GPU: gpu.ID(fmt.Sprintf("GPU-%d", random.IntN(16))),
			Bytes: gpu.Bytes(random.Uint64N(1 << 40)), Observed: text(), Unknown: text()}
		for range many() / 64 {
			f.Candidates = append(f.Candidates,
				finding.Holder{Process: finding.Process{PID: random.IntN(1 << 22), Exe: text()}})
		}
		e.Findings = append(e.Findings, f)
		action := config.Warn
		if random.IntN(3) == 0 {
			action = config.Drain
		}
		e.Verdict.Judged = append(e.Verdict.Judged, finding.Judged{Action: action, Why: text()})
		if i == 0 || action == config.Drain {
			e.Verdict.Action, e.Verdict.Code, e.Verdict.Exit = action, f.Code, 10+i
		}
	}
	for range many() {
		p := finding.Process{PID: random.IntN(1 << 22), Name: text(), Exe: text()}
		e.Processes, e.Scan.Holdings = append(e.Processes, p), append(e.Scan.Holdings, finding.Holding{Process: p})
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
		if e.Verdict.Judged[i].Action == config.Drain {
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
