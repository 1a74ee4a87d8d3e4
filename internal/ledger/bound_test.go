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

	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/slurm"
	"bookend/test/must"
)

// readable is the size that a record must stay below to be read: package state's.
const readable = 1 << 20

// Of every list that is longer than fits the entry that matters most stays and comes first, though it was the last and the smallest;
// where none does the first stay. The others are counted, and the caller's own lists are left as they are.
func TestBoundedLists(t *testing.T) {
	b, own, named := shrinking[0], slurm.Owner{ID: 7}, finding.Process{PID: 999_999}
	over := b.many + 1
	e := End{Scan: &finding.Scan{}, Kernel: &gpu.KernelLog{Xids: make([]gpu.Xid, over), Kills: make([]gpu.HostKill, over)}}
	var listed []gpu.Process
	var candidates []finding.Holder
	for i := range over {
		p := finding.Process{PID: i + 1}
		e.Findings = append(e.Findings, finding.Finding{Code: code.Stray, Bytes: gpu.Bytes(uint64(over - i))})
		e.Verdict.Judged = append(e.Verdict.Judged, finding.Judged{Action: config.Warn})
		e.Processes, e.Scan.Holdings = append(e.Processes, p), append(e.Scan.Holdings, finding.Holding{Process: p})
		listed = append(listed, gpu.Process{PID: p.PID, Memory: gpu.Bytes(uint64(9000 - i))})
		candidates = append(candidates, finding.Holder{Process: p})
	}
	last := over - 1
	e.Processes[last], listed[last] = named, gpu.Process{PID: named.PID}
	e.Scan.Holdings[last].Cgroup, candidates[last].Owner = own, &finding.Owner{Job: 7}
	e.Snapshot.Readings = []gpu.Reading{{Processes: listed}}
	e.Findings[last] = finding.Finding{Code: code.Orphan, Holder: &finding.Holder{Process: named}, Candidates: candidates}
	before, _ := json.Marshal(e)
	got := e.bounded(0, b, own)
	some, few := over-b.some, over-b.few
	want := map[string]int{"xids": few, "kills": few, "processes": 1, "listed": 1, "holdings": some, "candidates": few,
		"findings": some - 2} // the first of each code stays in any case
	if !maps.Equal(got.Rest, want) || len(got.Verdict.Judged) != len(got.Findings) {
		t.Errorf("rest %v, want %v", got.Rest, want)
	}
	f, r := got.Findings[len(got.Findings)-1], got.Snapshot.Readings[0]
	if got.Processes[0].PID != named.PID || got.Scan.Holdings[0].Cgroup != own || got.Scan.Partial == "" ||
		f.Code != code.Orphan || f.Candidates[0].Owner == nil || r.Processes[0].PID != named.PID ||
		r.ProcessesUnknown == "" {
		t.Errorf("what matters most was left out: %+v", f)
	}
	if after, _ := json.Marshal(e); string(before) != string(after) {
		t.Error("the caller's own was changed")
	}
	if again := got.bounded(0, b, own); !reflect.DeepEqual(again, got) {
		t.Errorf("bounded twice it differs:\n%+v\n%+v", got.Rest, again.Rest)
	}
}

// Whatever a hook saw: there is a level at which the record is small enough to be read, and at every level the codes,
// the verdict and what a drain was for are those from before.
func TestBoundedKeepsTheVerdict(t *testing.T) {
	for seed := range uint64(12) {
		random := rand.New(rand.NewPCG(seed, 1))
		r := Run{Version: 1, Key: "t1", Job: slurm.Job{ID: 7}, Start: crowded(random)}
		for range 1 + random.IntN(4) {
			r.Ends = append(r.Ends, *crowded(random))
		}
		for level := range Bare + 1 {
			got := r.Bounded(level)
			for i := range r.Ends {
				sameVerdict(t, r.Ends[i], got.Ends[i])
			}
			sameVerdict(t, *r.Start, *got.Start)
			c := Check{Snapshot: r.Start.Snapshot, Findings: r.Start.Findings, Verdict: r.Start.Verdict,
				Health: r.Start.Health}.Bounded(level)
			sameVerdict(t, *r.Start, End{Findings: c.Findings, Verdict: c.Verdict})
			for _, what := range []any{got, c} {
				data, err := json.Marshal(what)
				if err != nil || level == Bare && len(data) >= readable/2 {
					t.Errorf("seed %d, level %d: %d bytes, %v", seed, level, len(data), err)
				}
			}
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
	i, j := Decisive(before.Findings, v), Decisive(after.Findings, w)
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
	b := shrinking[0]
	for name, most := range map[string]int{
		"`listed`": b.many, "`processes`": b.many, "`holdings`": b.some, "`findings`": b.some, "`candidates`": b.few,
		"`xids`, `kills`": b.few,
	} {
		row := regexp.MustCompile(`(?m)^\|.*` + regexp.QuoteMeta(name) + fmt.Sprintf(`.* \| %d \|$`, most))
		if !row.Match(page) {
			t.Errorf("no row %s with %d", name, most)
		}
	}
	for _, text := range []string{
		fmt.Sprintf("health check keeps %d processes", maxOnCheck),
		fmt.Sprintf("at most %d KiB, a user's report %d KiB", b.text>>10, maxReport>>10),
	} {
		if !strings.Contains(string(page), text) {
			t.Errorf("no %q", text)
		}
	}
}
