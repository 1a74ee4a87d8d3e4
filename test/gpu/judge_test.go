package main

import (
	"slices"
	"strings"
	"testing"

	"bookend/internal/diagnosis"
	"bookend/test/gpu/record"
)

// The judge must see each way in which Bookend can be wrong. Here are one run and what is true of it: a process with
// 1000 MiB on the second GPU of two.
func judged(do func(*run)) bool {
	r := &run{
		lane: &lane{node: "n", cards: []card{{uuid: "GPU-b"}, {uuid: "GPU-a"}}}, rec: &record.Run{},
		scene: &scene{holder: &record.Holder{PID: 7, GPU: "GPU-a", Held: 1000 * mib, Allocated: 900 * mib}},
	}
	do(r)
	return r.rec.Judge() == record.Right
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
	each(t, func() record.Finding {
		return record.Finding{Code: "BKD-RESIDUE", PID: 7, Classes: []string{"orphan", "stopped"}, GPU: "GPU-a",
			Bytes: 1000 * mib, Job: 3, Evidence: "exclusive", Searched: true, Candidates: []record.Candidate{
				{PID: 8, Classes: []string{"exported"}}, {PID: 9, Classes: []string{"exported"}}}}
	}, func(r *run, f record.Finding) { r.names(f, want) }, map[string]func(*record.Finding){
		"another process":    func(f *record.Finding) { f.PID = 8 },
		"a class less":       func(f *record.Finding) { f.Classes = f.Classes[:1] },
		"another job":        func(f *record.Finding) { f.Job = 4 },
		"a hint for a proof": func(f *record.Finding) { f.Evidence = "environment" },
		"unknown":            func(f *record.Finding) { f.Unknown = "why" },
		"another GPU":        func(f *record.Finding) { f.GPU = "GPU-b" },
		"65 MiB less":        func(f *record.Finding) { f.Bytes -= 65 * mib },
		"65 MiB more":        func(f *record.Finding) { f.Bytes += 65 * mib },
		"right, 64 MiB off":  func(f *record.Finding) { f.Bytes += 64 * mib },
		"a candidate less":   func(f *record.Finding) { f.Candidates = f.Candidates[:1] },
		"a candidate more": func(f *record.Finding) {
			f.Candidates = append(f.Candidates, record.Candidate{PID: 10, Classes: []string{"exported"}})
		},
		"a candidate's class":    func(f *record.Finding) { f.Candidates[0].Classes = nil },
		"a search cut short":     func(f *record.Finding) { f.Searched = false },
		"no one accused":         func(f *record.Finding) { *f = record.Finding{} },
		"right, in other orders": func(f *record.Finding) { slices.Reverse(f.Candidates) },
	})
}

func TestClean(t *testing.T) {
	each(t, func() record.Job {
		return record.Job{GPUs: []record.GPU{{UUID: "GPU-b"}}, CUDA: []record.GPU{{UUID: "GPU-b"}},
			Start:  &record.End{Curves: []record.Curve{{State: "clean"}}},
			End:    &record.End{Curves: []record.Curve{{State: "clean"}}},
			Output: "| bookend: n GPU 0 clean: x\n"}
	}, func(r *run, j record.Job) { r.clean(&j) }, map[string]func(*record.Job){
		"no record":                     func(j *record.Job) { j.End = nil },
		"not at rest":                   func(j *record.Job) { j.End.Curves[0].State = "flat" },
		"no GPU was read":               func(j *record.Job) { j.Start.Curves = nil },
		"a finding":                     func(j *record.Job) { j.End.Findings = []record.Finding{{Code: "BKD-NORECORD"}} },
		"a search of all of /proc":      func(j *record.Job) { j.End.Scan = &record.Scan{Looked: 100} },
		"a user told otherwise":         func(j *record.Job) { j.Output = strings.Replace(j.Output, " clean: ", " ", 1) },
		"not Bookend's words":           func(j *record.Job) { j.Output = strings.TrimPrefix(j.Output, "| ") },
		"another GPU than the number":   func(j *record.Job) { j.GPUs[0].UUID, j.CUDA[0].UUID = "GPU-a", "GPU-a" },
		"another GPU than CUDA's":       func(j *record.Job) { j.CUDA[0].UUID = "GPU-a" },
		"no GPU at all":                 func(j *record.Job) { j.GPUs = nil },
		"right, CUDA names none":        func(j *record.Job) { j.CUDA = nil },
		"a number that Slurm never had": func(j *record.Job) { j.GPUs[0].Index = 2 },
	})
}

// What a job's own programs say of its cards.
func TestCUDACards(t *testing.T) {
	const log = `slurm gpus=1,3
ready pid=7 gpu=GPU-8f0b1c00-77c1-4d0e-9b3a-5e2f00c0a001 bytes=2097152
ready pid=8 gpu=GPU-8f0b1c00-77c1-4d0e-9b3a-5e2f00c0a003 bytes=2097152 used=9
ready pid=9 gpu=GPU-8f0b1c00-77c1-4d0e-9b3a-5e2f00c0a003 bytes=2097152
`
	want := []record.GPU{{Index: 1, UUID: "GPU-8f0b1c00-77c1-4d0e-9b3a-5e2f00c0a001"},
		{Index: 3, UUID: "GPU-8f0b1c00-77c1-4d0e-9b3a-5e2f00c0a003"}}
	if got := cudaCards(log); !slices.Equal(got, want) {
		t.Errorf("GPUs %v, want %v", got, want)
	}
}

func TestHealthChecks(t *testing.T) {
	idle := func() record.NodeCheck { return record.NodeCheck{Cards: []string{"GPU-a", "GPU-b"}} }
	each(t, idle, func(r *run, c record.NodeCheck) { r.nothingFound(c) }, map[string]func(*record.NodeCheck){
		"right, an old drain":  func(c *record.NodeCheck) { c.Lines = []string{leftAlone + "no longer drained"} },
		"it did something":     func(c *record.NodeCheck) { c.Lines = []string{"drain: resumed: clean 2 of 2 times"} },
		"it failed":            func(c *record.NodeCheck) { c.Exit = 1 },
		"it printed a line":    func(c *record.NodeCheck) { c.Said = "bookend: x" },
		"a GPU was not read":   func(c *record.NodeCheck) { c.Cards = c.Cards[:1] },
		"it left no record":    func(c *record.NodeCheck) { c.Cards = nil },
		"a note":               func(c *record.NodeCheck) { c.Findings = []record.Finding{{Code: "BKD-THROTTLE"}} },
		"a line in the log":    func(c *record.NodeCheck) { c.Lines = []string{"findings: BKD-X"} },
		"two, of which one is": func(c *record.NodeCheck) { c.Lines = []string{leftAlone, "findings: BKD-X"} },
	})
}

func TestHealthChecksFind(t *testing.T) {
	want := leftover{code: "BKD-ORPHAN", pid: 7, classes: "orphan", job: 3, evidence: "exclusive"}
	each(t, func() record.NodeCheck {
		c := record.NodeCheck{Cards: []string{"GPU-a", "GPU-b"}}
		c.Findings = []record.Finding{{Code: "BKD-ORPHAN", PID: 7, Classes: []string{"orphan"}, GPU: "GPU-a",
			Bytes: 1000 * mib, Job: 3, Evidence: "exclusive", Action: "warn"}}
		c.Seen = []record.Occupant{{GPU: "GPU-a", PID: 7}}
		return c
	}, func(r *run, c record.NodeCheck) { r.foundOnCard(c, want, "warn") }, map[string]func(*record.NodeCheck){
		"nothing":             func(c *record.NodeCheck) { c.Findings = nil },
		"ignored":             func(c *record.NodeCheck) { c.Findings[0].Action = "ignore" },
		"a second finding":    func(c *record.NodeCheck) { c.Findings = append(c.Findings, c.Findings[0]) },
		"it saw no one":       func(c *record.NodeCheck) { c.Seen = nil },
		"it saw another":      func(c *record.NodeCheck) { c.Seen[0].PID = 8 },
		"it looked elsewhere": func(c *record.NodeCheck) { c.Seen[0].GPU = "GPU-b" },
	})
	each(t, func() []string { return []string{"x", "BKD-ORPHAN: GPU 0, process 7"} },
		func(r *run, lines []string) { r.logged(record.NodeCheck{Lines: lines}, "BKD-ORPHAN", "process 7") },
		map[string]func(*[]string){
			"two lines say it together": func(l *[]string) { *l = []string{"BKD-ORPHAN: GPU 0", "process 7"} },
			"no line":                   func(l *[]string) { *l = nil },
		})
	each(t, func() string { return "drained: BKD-ORPHAN gpu=1 1000MiB pid=7 job=3 epilog; see: bookend show 3" },
		func(r *run, reason string) {
			r.reasonIs(reason, &record.Job{ID: 3, GPUs: []record.GPU{{Index: 1, UUID: "GPU-a"}}})
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
	set := func(name diagnosis.Name, answer diagnosis.Answer) func(*record.Job) {
		return func(j *record.Job) {
			i := slices.IndexFunc(j.End.Diagnosis.Causes, func(c record.Cause) bool { return c.Name == string(name) })
			j.End.Diagnosis.Causes[i].Answer = string(answer)
		}
	}
	right := func() record.Job { // names one cause, as its log does
		d := &record.Diagnosis{Asked: "it failed"}
		for _, name := range causes {
			d.Causes = append(d.Causes, record.Cause{Name: string(name), Answer: string(diagnosis.No), Evidence: "seen"})
		}
		j := record.Job{State: "FAILED", End: &record.End{Diagnosis: d}, GPUs: []record.GPU{{UUID: "GPU-b"}},
			Output: "| bookend:   Ruled out: the rest\n| bookend:   Details: bookend show 7 on n\n"}
		set(diagnosis.Others, diagnosis.Yes)(&j)
		return j
	}
	judge := func(r *run, j record.Job) {
		r.because(&j, answers{yes: list(diagnosis.Others), either: list(diagnosis.Pieces)})
	}
	each(t, right, judge, map[string]func(*record.Job){
		"right, unsure of what may be": set(diagnosis.Pieces, diagnosis.Unknown),
		"unsure of the kernel's log":   set(diagnosis.Fault, diagnosis.Unknown),
		"the true one missed":          set(diagnosis.Others, diagnosis.No),
		"unsure of the true one":       set(diagnosis.Others, diagnosis.Unknown),
		"a wrong one":                  set(diagnosis.Own, diagnosis.Yes),
		"sure of what no one knows":    set(diagnosis.Pieces, diagnosis.Yes),
		"no one asked":                 func(j *record.Job) { j.End.Diagnosis.Asked = "" },
		"no answer":                    func(j *record.Job) { j.End.Diagnosis.Causes = j.End.Diagnosis.Causes[1:] },
		"no diagnosis":                 func(j *record.Job) { j.End.Diagnosis = nil },
		"no record":                    func(j *record.Job) { j.End = nil },
		"not in the job's log":         func(j *record.Job) { j.Output = "" },
		"more in the job's log": func(j *record.Job) {
			j.Output = "| bookend:   Ruled out: " + diagnosis.Others.Title() + "\n| bookend:   Details: bookend show 7 on n\n"
		},
	})
	each(t, right, func(r *run, j record.Job) { r.because(&j, answers{untold: list(diagnosis.Others)}) },
		map[string]func(*record.Job){"ruled out, and it was it": set(diagnosis.Others, diagnosis.No)})
}

func TestWhole(t *testing.T) {
	each(t, func() record.Probe {
		return record.Probe{Result: "ok", Method: "contextless", Free: 1000 * mib, Largest: 998 * mib}
	}, func(r *run, p record.Probe) { r.whole("x", p) }, map[string]func(*record.Probe){
		"right, nearly 4 MiB": func(p *record.Probe) { p.Largest = 996 * mib },
		"a gap":               func(p *record.Probe) { p.Largest = 994 * mib },
		"more than there":     func(p *record.Probe) { p.Largest = 1002 * mib },
		"nothing":             func(p *record.Probe) { p.Free, p.Largest = 0, 0 },
		"skipped":             func(p *record.Probe) { p.Result, p.Why = "skipped", "why" },
		"with a context":      func(p *record.Probe) { p.Method = "context" },
		"unknown":             func(p *record.Probe) { p.Unknown = "not read" },
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
