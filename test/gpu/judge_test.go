package main

import (
	"slices"
	"testing"

	"bookend/test/gpu/record"
)

func TestVerdict(t *testing.T) {
	clean, flat := record.Curve{State: "clean"}, record.Curve{State: "flat"}
	orphan := record.Finding{Code: "BKD-ORPHAN"}
	for name, tc := range map[string]struct {
		end  *record.End
		want string
	}{
		"none":              {nil, "no record"},
		"clean":             {&record.End{Curves: []record.Curve{clean, clean}}, "clean"},
		"nothing was read":  {&record.End{}, "no card was read"},
		"at rest, not idle": {&record.End{Curves: []record.Curve{clean, flat}}, "flat"},
		"a finding":         {&record.End{Curves: []record.Curve{flat}, Findings: []record.Finding{orphan}}, "BKD-ORPHAN"},
		"a note on clean":   {&record.End{Curves: []record.Curve{clean}, Findings: []record.Finding{{Code: "BKD-NORECORD"}}}, "BKD-NORECORD"},
		"two":               {&record.End{Curves: []record.Curve{flat}, Findings: []record.Finding{orphan, orphan}}, "BKD-ORPHAN BKD-ORPHAN"},
	} {
		if got := verdict(tc.end); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

const log = `slurm gpus=1,3
| bookend: GPU 1 of lane clean: 143155 MiB free, nobody on it
ready pid=7 gpu=GPU-8f0b1c00-77c1-4d0e-9b3a-5e2f00c0a001 bytes=2097152
ready pid=8 gpu=GPU-8f0b1c00-77c1-4d0e-9b3a-5e2f00c0a003 bytes=2097152 used=9
ready pid=9 gpu=GPU-8f0b1c00-77c1-4d0e-9b3a-5e2f00c0a003 bytes=2097152
daemon: ready pid=10 gpu=GPU-8f0b1c00-77c1-4d0e-9b3a-5e2f00c0a009 bytes=2097152
| bookend: GPU 1 of lane was not clean after your job
| bookend:   Found: 20998 MiB held by process 10
| bookend:          (x) since 08:00:00
`

func TestReadingAJobsLog(t *testing.T) {
	want := []record.GPU{
		{Index: 1, UUID: "GPU-8f0b1c00-77c1-4d0e-9b3a-5e2f00c0a001"}, {Index: 3, UUID: "GPU-8f0b1c00-77c1-4d0e-9b3a-5e2f00c0a003"},
	}
	if got := cudaCards(log); !slices.Equal(got, want) {
		t.Errorf("cards %v, want %v", got, want)
	}
	r := run{rec: &record.Run{}}
	job := &record.Job{Output: log}
	for _, phrase := range []string{"held by process 10 (x) since", "of lane clean:", "held by process 1 ", "ready pid=7"} {
		r.said(job, phrase)
	}
	for i, want := range []bool{true, true, false, false} {
		if got := r.rec.Checks[i]; got.Right != want {
			t.Errorf("%q: %v, want %v", got.Want, got.Right, want)
		}
	}
}

func TestBytes(t *testing.T) {
	for name, tc := range map[string]struct {
		held, allocated, gone, got uint64
		want                       bool
	}{
		"the very number":                {1000, 500, 1009, 1000, true},
		"64 MiB off":                     {1000, 500, 1009, 1064, true},
		"more":                           {1000, 500, 1100, 1065, false},
		"less":                           {1000, 500, 1100, 935, false},
		"no word of the holder":          {1000, 0, 0, 1000, true},
		"nvidia-smi says nothing":        {0, 0, 0, 0, false},
		"below what it asked for":        {1000, 1001, 1100, 1000, false},
		"more than is missing from card": {1000, 500, 900, 1000, false},
	} {
		r := run{rec: &record.Run{}}
		r.bytes(record.Holder{Held: tc.held * mib, Allocated: tc.allocated * mib, Gone: tc.gone * mib}, tc.got*mib)
		if got := r.rec.Judge() == record.Right; got != tc.want {
			t.Errorf("%s: right is %v, want %v: %+v", name, got, tc.want, r.rec.Checks)
		}
	}
}

// The judge must see each way in which a finding can be wrong.
func TestNames(t *testing.T) {
	want := leftover{
		code: "BKD-RESIDUE", pid: 7, classes: "orphan stopped", candidates: []int{9, 8}, candidate: "exported", job: 3, evidence: "exclusive",
	}
	good := record.Finding{
		Code: "BKD-RESIDUE", PID: 7, Classes: []string{"orphan", "stopped"}, GPU: "GPU-a", Bytes: 1000 * mib, Job: 3, Evidence: "exclusive", Searched: true,
		Candidates: []record.Candidate{{PID: 8, Classes: []string{"exported"}}, {PID: 9, Classes: []string{"exported", "orphan"}}},
	}
	for name, change := range map[string]func(*record.Finding){
		"":                   func(*record.Finding) {},
		"another process":    func(f *record.Finding) { f.PID = 8 },
		"a class less":       func(f *record.Finding) { f.Classes = f.Classes[:1] },
		"another job":        func(f *record.Finding) { f.Job = 4 },
		"a hint for a proof": func(f *record.Finding) { f.Evidence = "environment" },
		"unknown":            func(f *record.Finding) { f.Unknown = "why" },
		"another card":       func(f *record.Finding) { f.GPU = "GPU-b" },
		"half of it":         func(f *record.Finding) { f.Bytes /= 2 },
		"a candidate less":   func(f *record.Finding) { f.Candidates = f.Candidates[:1] },
		"a candidate more": func(f *record.Finding) {
			f.Candidates = append(f.Candidates, record.Candidate{PID: 10, Classes: []string{"exported"}})
		},
		"a candidate's class":     func(f *record.Finding) { f.Candidates[0].Classes = nil },
		"a search cut short":      func(f *record.Finding) { f.Searched = false },
		"nobody accused":          func(f *record.Finding) { *f = record.Finding{} },
		"the same in other order": func(f *record.Finding) { slices.Reverse(f.Candidates) },
	} {
		f := good
		f.Candidates = slices.Clone(good.Candidates)
		change(&f)
		r := run{rec: &record.Run{}, scene: &scene{holder: &record.Holder{GPU: "GPU-a", Held: 1000 * mib, Allocated: 900 * mib}}}
		r.names(f, want)
		if got, want := r.rec.Judge() == record.Right, name == "" || name == "the same in other order"; got != want {
			t.Errorf("%q: right is %v: %+v", name, got, r.rec.Checks)
		}
	}
}

// A clean end for which all of /proc was searched is no clean end.
func TestCleanWithoutSearch(t *testing.T) {
	for _, scan := range []*record.Scan{nil, {Looked: 100}} {
		end := &record.End{Curves: []record.Curve{{State: "clean"}}}
		job := &record.Job{
			Start: end, End: &record.End{Curves: end.Curves, Scan: scan}, GPUs: []record.GPU{{UUID: "GPU-a"}},
			Output: "| bookend: GPU 0 of n clean: x\n| bookend: GPU 0 of n left clean by your job\n",
		}
		r := run{lane: &lane{node: "n", cards: []card{{uuid: "GPU-a"}}}, rec: &record.Run{}}
		r.clean(job)
		if got := r.rec.Judge() == record.Right; got != (scan == nil) {
			t.Errorf("scan %v: right is %v: %+v", scan, got, r.rec.Checks)
		}
	}
}

func TestRightCards(t *testing.T) {
	cards := []card{{uuid: "GPU-a"}, {uuid: "GPU-b"}}
	for name, tc := range map[string]struct {
		bookend, cuda []record.GPU
		want          bool
	}{
		"right":                 {[]record.GPU{{Index: 1, UUID: "GPU-b"}}, []record.GPU{{Index: 1, UUID: "GPU-b"}}, true},
		"CUDA said nothing":     {[]record.GPU{{Index: 1, UUID: "GPU-b"}}, nil, true},
		"numbered otherwise":    {[]record.GPU{{Index: 0, UUID: "GPU-b"}}, []record.GPU{{Index: 0, UUID: "GPU-b"}}, false},
		"another card for CUDA": {[]record.GPU{{Index: 1, UUID: "GPU-b"}}, []record.GPU{{Index: 1, UUID: "GPU-a"}}, false},
		"no such number":        {[]record.GPU{{Index: 2, UUID: "GPU-b"}}, nil, false},
		"Bookend has none":      {nil, []record.GPU{{Index: 1, UUID: "GPU-b"}}, false},
		"neither has any":       {nil, nil, false},
		"CUDA's own order": {
			[]record.GPU{{Index: 0, UUID: "GPU-a"}, {Index: 1, UUID: "GPU-b"}},
			[]record.GPU{{Index: 0, UUID: "GPU-b"}, {Index: 1, UUID: "GPU-a"}}, true,
		},
	} {
		r := run{lane: &lane{cards: cards}, rec: &record.Run{}}
		r.rightCards(&record.Job{GPUs: tc.bookend, CUDA: tc.cuda})
		if got := r.rec.Judge() == record.Right; got != tc.want {
			t.Errorf("%s: right is %v, want %v: %+v", name, got, tc.want, r.rec.Checks)
		}
	}
}
