package main

import (
	"slices"
	"strings"
	"testing"

	"bookend/internal/diagnosis"
	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/test/gpu/runrecord"
)

// The judge must see each way in which Bookend can be wrong. Here are one run and what is true of it: a process with
// 1000 MiB on the second GPU of two.
func judged(do func(*run)) bool {
	r := &run{
		lane: &lane{node: "n", cards: []card{{uuid: "GPU-b"}, {uuid: "GPU-a"}}}, rec: &runrecord.Run{},
		scene: &scene{holder: &runrecord.Holder{PID: 7, GPU: "GPU-a", Held: 1000 * mib, Allocated: 900 * mib}},
	}
	do(r)
	return r.rec.Judge() == runrecord.Right
}

// each has every change of what is right judged. Those whose names begin with "right" are right.
func each[T any](t *testing.T, right func() T, judge func(*run, T), changes map[string]func(*T)) {
	t.Helper()
	changes["right"] = func(*T) {}
	for name, change := range changes {
		value := right()
		change(&value)
		if got, want := judged(func(r *run) { judge(r, value) }), strings.HasPrefix(name, "right"); got != want {
			t.Errorf("%s: judged right is %v, want %v", name, got, want)
		}
	}
}

func TestNames(t *testing.T) {
	want := leftover{code: "BKD-RESIDUE", pid: 7, classes: "orphan stopped", candidates: []int{9, 8},
		candidate: "exported", job: 3, evidence: "exclusive"}
	process := func(pid int, all ...record.Class) record.Holder {
		return record.Holder{Process: record.Process{PID: pid}, Classes: all}
	}
	each(t, func() record.Finding {
		holder := process(7, "orphan", "stopped")
		return record.Finding{Code: "BKD-RESIDUE", Holder: &holder, GPU: "GPU-a", Bytes: gpu.Bytes(1000 * mib),
			Owner: &record.Owner{Job: 3, Level: record.ByExclusive}, Searched: true,
			Candidates: []record.Holder{process(8, "exported"), process(9, "exported")}}
	}, func(r *run, f record.Finding) { r.names(f, want) }, map[string]func(*record.Finding){
		"another process":    func(f *record.Finding) { f.Holder.PID = 8 },
		"a class less":       func(f *record.Finding) { f.Holder.Classes = f.Holder.Classes[:1] },
		"another job":        func(f *record.Finding) { f.Owner.Job = 4 },
		"a hint for a proof": func(f *record.Finding) { f.Owner.Level = record.ByEnvironment },
		"unknown":            func(f *record.Finding) { f.Unknown = "why" },
		"another GPU":        func(f *record.Finding) { f.GPU = "GPU-b" },
		"65 MiB less":        func(f *record.Finding) { f.Bytes.Bytes -= 65 * mib },
		"65 MiB more":        func(f *record.Finding) { f.Bytes.Bytes += 65 * mib },
		"right, 64 MiB off":  func(f *record.Finding) { f.Bytes.Bytes += 64 * mib },
		"a candidate less":   func(f *record.Finding) { f.Candidates = f.Candidates[:1] },
		"a candidate more": func(f *record.Finding) {
			f.Candidates = append(f.Candidates, process(10, "exported"))
		},
		"a candidate's class":    func(f *record.Finding) { f.Candidates[0].Classes = nil },
		"a search cut short":     func(f *record.Finding) { f.Searched = false },
		"no one accused":         func(f *record.Finding) { *f = record.Finding{} },
		"right, in other orders": func(f *record.Finding) { slices.Reverse(f.Candidates) },
	})
}

func TestClean(t *testing.T) {
	clean := func() *record.End {
		return &record.End{Snapshot: gpu.Snapshot{Readings: []gpu.Reading{{Device: gpu.Device{ID: "GPU-b"}}}},
			Curves: map[gpu.ID]record.Curve{"GPU-b": {State: record.Clean}}}
	}
	each(t, func() job {
		return job{Job: runrecord.Job{GPUs: []runrecord.GPU{{UUID: "GPU-b"}}, CUDA: []runrecord.GPU{{UUID: "GPU-b"}},
			Output: "| bookend: n GPU 0 clean: x\n"}, Start: clean(), End: clean()}
	}, func(r *run, j job) { r.clean(&j) }, map[string]func(*job){
		"no record":                     func(j *job) { j.End = nil },
		"not at rest":                   func(j *job) { j.End.Curves["GPU-b"] = record.Curve{State: record.Flat} },
		"no GPU was read":               func(j *job) { j.Start.Snapshot.Readings = nil },
		"a finding":                     func(j *job) { j.End.Findings = []record.Finding{{Code: "BKD-NORECORD"}} },
		"a search of all of /proc":      func(j *job) { j.End.Scan = &record.Scan{Looked: 100} },
		"a user told otherwise":         func(j *job) { j.Output = strings.Replace(j.Output, " clean: ", " ", 1) },
		"not Bookend's words":           func(j *job) { j.Output = strings.TrimPrefix(j.Output, "| ") },
		"another GPU than the number":   func(j *job) { j.GPUs[0].UUID, j.CUDA[0].UUID = "GPU-a", "GPU-a" },
		"another GPU than CUDA's":       func(j *job) { j.CUDA[0].UUID = "GPU-a" },
		"no GPU at all":                 func(j *job) { j.GPUs = nil },
		"right, CUDA names none":        func(j *job) { j.CUDA = nil },
		"a number that Slurm never had": func(j *job) { j.GPUs[0].Index = 2 },
	})
}

// What a job's own programs say of its cards.
func TestCUDACards(t *testing.T) {
	const log = `slurm gpus=1,3
ready pid=7 gpu=GPU-8f0b1c00-77c1-4d0e-9b3a-5e2f00c0a001 bytes=2097152
ready pid=8 gpu=GPU-8f0b1c00-77c1-4d0e-9b3a-5e2f00c0a003 bytes=2097152 used=9
ready pid=9 gpu=GPU-8f0b1c00-77c1-4d0e-9b3a-5e2f00c0a003 bytes=2097152
`
	want := []runrecord.GPU{{Index: 1, UUID: "GPU-8f0b1c00-77c1-4d0e-9b3a-5e2f00c0a001"},
		{Index: 3, UUID: "GPU-8f0b1c00-77c1-4d0e-9b3a-5e2f00c0a003"}}
	if got := cudaCards(log); !slices.Equal(got, want) {
		t.Errorf("GPUs %v, want %v", got, want)
	}
}

func TestHealthChecks(t *testing.T) {
	idle := func() nodeCheck { return nodeCheck{NodeCheck: runrecord.NodeCheck{Cards: []string{"GPU-a", "GPU-b"}}} }
	each(t, idle, func(r *run, c nodeCheck) { r.nothingFound(c) }, map[string]func(*nodeCheck){
		"right, an old drain":  func(c *nodeCheck) { c.Lines = []string{leftAlone + "no longer drained"} },
		"it did something":     func(c *nodeCheck) { c.Lines = []string{"drain: resumed: clean 2 of 2 times"} },
		"it failed":            func(c *nodeCheck) { c.Exit = 1 },
		"it printed a line":    func(c *nodeCheck) { c.Said = "bookend: x" },
		"a GPU was not read":   func(c *nodeCheck) { c.Cards = c.Cards[:1] },
		"it left no record":    func(c *nodeCheck) { c.Cards = nil },
		"a note":               func(c *nodeCheck) { c.Findings = []record.Finding{{Code: "BKD-THROTTLE"}} },
		"a line in the log":    func(c *nodeCheck) { c.Lines = []string{"findings: BKD-X"} },
		"two, of which one is": func(c *nodeCheck) { c.Lines = []string{leftAlone, "findings: BKD-X"} },
	})
}

func TestHealthChecksFind(t *testing.T) {
	want := leftover{code: "BKD-ORPHAN", pid: 7, classes: "orphan", job: 3, evidence: "exclusive"}
	each(t, func() nodeCheck {
		c := nodeCheck{NodeCheck: runrecord.NodeCheck{Cards: []string{"GPU-a", "GPU-b"},
			Seen: []runrecord.Occupant{{GPU: "GPU-a", PID: 7}}}}
		c.Findings = []record.Finding{{Code: "BKD-ORPHAN", GPU: "GPU-a", Bytes: gpu.Bytes(1000 * mib),
			Holder: &record.Holder{Process: record.Process{PID: 7}, Classes: []record.Class{"orphan"}},
			Owner:  &record.Owner{Job: 3, Level: record.ByExclusive}}}
		c.verdict.Judged = []record.Judged{{Action: "warn"}}
		return c
	}, func(r *run, c nodeCheck) { r.foundOnCard(c, want, "warn") }, map[string]func(*nodeCheck){
		"nothing":             func(c *nodeCheck) { c.Findings = nil },
		"ignored":             func(c *nodeCheck) { c.verdict.Judged[0].Action = "ignore" },
		"a second finding":    func(c *nodeCheck) { c.Findings = append(c.Findings, c.Findings[0]) },
		"it saw no one":       func(c *nodeCheck) { c.Seen = nil },
		"it saw another":      func(c *nodeCheck) { c.Seen[0].PID = 8 },
		"it looked elsewhere": func(c *nodeCheck) { c.Seen[0].GPU = "GPU-b" },
	})
	each(t, func() []string { return []string{"x", "BKD-ORPHAN: GPU 0, process 7"} },
		func(r *run, lines []string) {
			r.logged(nodeCheck{NodeCheck: runrecord.NodeCheck{Lines: lines}}, "BKD-ORPHAN", "process 7")
		},
		map[string]func(*[]string){
			"two lines say it together": func(l *[]string) { *l = []string{"BKD-ORPHAN: GPU 0", "process 7"} },
			"no line":                   func(l *[]string) { *l = nil },
		})
	each(t, func() string { return "drained: BKD-ORPHAN gpu=1 1000MiB pid=7 job=3 epilog; see: bookend show 3" },
		func(r *run, reason string) {
			r.reasonIs(reason, &job{Job: runrecord.Job{ID: 3, GPUs: []runrecord.GPU{{Index: 1, UUID: "GPU-a"}}}})
		}, map[string]func(*string){
			"bytes":        func(s *string) { *s = strings.Replace(*s, "1000", "1065", 1) },
			"card":         func(s *string) { *s = strings.Replace(*s, "gpu=1", "gpu=0", 1) },
			"process":      func(s *string) { *s = strings.Replace(*s, "pid=7", "pid=8", 1) },
			"job":          func(s *string) { *s = strings.Replace(*s, "job=3", "job=4", 1) },
			"job to show":  func(s *string) { *s = strings.Replace(*s, "w 3", "w 4", 1) },
			"Slurm's own":  func(s *string) { *s = "drained: Epilog error" },
			"in service":   func(s *string) { *s = inService },
			"words behind": func(s *string) { *s += " [root]" },
		})
}

func TestUntouched(t *testing.T) {
	for most, want := range map[uint64]bool{20480: true, 20543: true, 20544: false, 143000: false} {
		if got := judged(func(r *run) { r.untouched(20480*mib, most*mib) }); got != want {
			t.Errorf("%d MiB in use meanwhile: right is %v, want %v", most, got, want)
		}
	}
}

func TestBecause(t *testing.T) {
	set := func(name record.CauseName, answer record.Answer) func(*job) {
		return func(j *job) {
			i := slices.IndexFunc(j.End.Diagnosis.Causes, func(c record.Cause) bool { return c.Name == name })
			j.End.Diagnosis.Causes[i].Answer = answer
		}
	}
	right := func() job { // names one cause, as its log does
		d := &record.Diagnosis{Reason: record.ByFailure}
		for _, name := range causes {
			d.Causes = append(d.Causes, record.Cause{Name: name, Answer: record.No, Evidence: "seen"})
		}
		j := job{End: &record.End{Diagnosis: d}, Job: runrecord.Job{State: "FAILED", GPUs: []runrecord.GPU{{UUID: "GPU-b"}},
			Output: "| bookend:   Ruled out: the rest\n| bookend:   For your admin: bookend show 7 (on n)\n"}}
		set(record.CauseOthers, record.Yes)(&j)
		return j
	}
	judge := func(r *run, j job) {
		r.because(&j, answers{yes: list(record.CauseOthers), either: list(record.CausePieces)})
	}
	each(t, right, judge, map[string]func(*job){
		"right, unsure of what may be": set(record.CausePieces, record.CannotTell),
		"unsure of the kernel's log":   set(record.CauseFault, record.CannotTell),
		"the true one missed":          set(record.CauseOthers, record.No),
		"unsure of the true one":       set(record.CauseOthers, record.CannotTell),
		"a wrong one":                  set(record.CauseOwn, record.Yes),
		"sure of what no one knows":    set(record.CausePieces, record.Yes),
		"no one asked":                 func(j *job) { j.End.Diagnosis.Reason = "" },
		"no answer":                    func(j *job) { j.End.Diagnosis.Causes = j.End.Diagnosis.Causes[1:] },
		"no diagnosis":                 func(j *job) { j.End.Diagnosis = nil },
		"no record":                    func(j *job) { j.End = nil },
		"not in the job's log":         func(j *job) { j.Output = "" },
		"more in the job's log": func(j *job) {
			j.Output = "| bookend:   Ruled out: " + record.CauseOthers.Title() + "\n| bookend:   For your admin: bookend show 7 (on n)\n"
		},
	})
	each(t, right, func(r *run, j job) { r.because(&j, answers{untold: list(record.CauseOthers)}) },
		map[string]func(*job){"ruled out, and it was it": set(record.CauseOthers, record.No)})
}

func TestWhole(t *testing.T) {
	each(t, func() gpu.Probe {
		return gpu.Probe{Result: gpu.ProbeOK, Method: gpu.Contextless, Free: gpu.Bytes(1000 * mib),
			Largest: gpu.Bytes(998 * mib)}
	}, func(r *run, p gpu.Probe) { r.whole("x", p) }, map[string]func(*gpu.Probe){
		"right, nearly 4 MiB": func(p *gpu.Probe) { p.Largest.Bytes = 996 * mib },
		"a gap":               func(p *gpu.Probe) { p.Largest.Bytes = 994 * mib },
		"more than there":     func(p *gpu.Probe) { p.Largest.Bytes = 1002 * mib },
		"nothing":             func(p *gpu.Probe) { p.Free, p.Largest = gpu.Bytes(0), gpu.Bytes(0) },
		"skipped":             func(p *gpu.Probe) { p.Result, p.Why = gpu.ProbeSkipped, "why" },
		"with a context":      func(p *gpu.Probe) { p.Method = "context" },
		"unknown":             func(p *gpu.Probe) { p.Largest = gpu.Unknown("not read") },
	})
}

// Every cause that Bookend judges has its place in the truth of a scenario.
func TestCauses(t *testing.T) {
	for _, c := range diagnosis.Why(diagnosis.Input{}).Causes {
		if !slices.Contains(causes, c.Name) {
			t.Errorf("cause %q is judged by Bookend and not by the lane", c.Name)
		}
	}
}

// What is said of a silent job's own need depends on when the recorder looked; a figure of another's need is wrong.
func TestOwnNeedTold(t *testing.T) {
	for evidence, want := range map[string]bool{
		"at least 120.0 GiB of 139.8 GiB in one process": true,
		"not measured (the recorder would)":              true,
		"no sample saw any":                              true,
		"":                                               false,
		"asked 160.0 GiB at once, of a GPU with 139.8 GiB":         false,
		"2.0 GiB was free, 4.0 GiB asked":                          false,
		"the message does not say how much it had in all":          false,
		"used 136.7 GiB of 139.8 GiB, then requested 4.0 GiB more": false,
	} {
		if got := ownNeedTold(evidence); got != want {
			t.Errorf("%q: right is %v, want %v", evidence, got, want)
		}
	}
}

// A demonstration shows other names than the accounts', and leaves words alone that only contain them.
func TestRenamed(t *testing.T) {
	got := renamed("games$ train (games, job 4), news: newsletter", []string{"games", "news", "lp"})
	if want := "alice$ train (alice, job 4), bob: newsletter"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
