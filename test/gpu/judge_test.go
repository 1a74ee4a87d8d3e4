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
		r := run{rec: &record.Run{}, scene: &scene{holder: &record.Holder{Held: tc.held * mib, Allocated: tc.allocated * mib, Gone: tc.gone * mib}}}
		r.bytes(tc.got * mib)
		if got := r.rec.Judge() == record.Right; got != tc.want {
			t.Errorf("%s: right is %v, want %v: %+v", name, got, tc.want, r.rec.Checks)
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
