package state

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/health"
	"bookend/internal/safefile"
	"bookend/test/must"
)

var epoch = gpu.Epoch{Boot: "b", Driver: "580", Module: "m@1"}

func carries(id gpu.ID, bytes uint64) finding.Baseline {
	return finding.Baseline{
		GPU: id, Epoch: epoch, Bytes: bytes, Holder: "dcgm.service", At: time.Minute,
		Residents: []finding.Resident{{PID: 7, Start: time.Second, Bytes: 5 << 20, Service: "dcgm.service"}},
	}
}

func tested(id gpu.ID, at time.Duration) health.TestRecord {
	return health.TestRecord{
		Probe: gpu.Probe{
			Device: id, Result: gpu.ProbeOK, Free: gpu.Bytes(2 << 30), Largest: gpu.Bytes(2<<30 - 2<<20), Attempts: 2,
			At: at,
		},
		Epoch: epoch, Kernel: gpu.KernelMark{Seq: 7, At: time.Second}, Wall: time.Unix(1800000000, 0).UTC(), Seen: 1,
	}
}

// Entries are replaced card by card, and forgotten.
func TestPerCard(t *testing.T) {
	s := open(t, folder(t))
	must.Do(t, errors.Join(s.DropBaselines("GPU-1"), s.PutProbes()))
	accepted := carries("GPU-2", 60<<20)
	accepted.Accepted = true
	for _, b := range []finding.Baseline{carries("GPU-1", 1<<20), accepted, carries("GPU-0", 0),
		carries("GPU-1", 3<<20)} {
		must.Do(t, s.PutBaseline(b))
	}
	want := map[gpu.ID]finding.Baseline{"GPU-0": carries("GPU-0", 0), "GPU-1": carries("GPU-1", 3<<20),
		"GPU-2": accepted}
	must.Be(t, "baselines", must.Have(s.Baselines())(t), want)
	must.Do(t, s.DropBaselines("GPU-0", "GPU-2", "GPU-9"))
	delete(want, "GPU-0")
	delete(want, "GPU-2")
	must.Be(t, "baselines left", must.Have(s.Baselines())(t), want)
	bad := tested("GPU-1", 2)
	bad.Probe.Result, bad.Probe.Error = gpu.ProbeBroken, &gpu.CallError{Call: "cuInit", Code: 999}
	must.Do(t, errors.Join(s.PutProbes(tested("GPU-1", 1), tested("GPU-0", 1)), s.PutProbes(bad)))
	tests := map[gpu.ID]health.TestRecord{"GPU-0": tested("GPU-0", 1), "GPU-1": bad}
	must.Be(t, "tests", must.Have(s.Probes())(t), tests)
}

// What was learned, accepted or tested in another epoch holds for nothing in this one.
func TestOtherEpochsGo(t *testing.T) {
	s := open(t, folder(t))
	old, fresh, test := carries("GPU-0", 1<<20), carries("GPU-1", 2<<20), tested("GPU-1", 1)
	old.Accepted, fresh.Epoch.Module, test.Epoch.Module = true, "m@2", "m@2"
	must.Do(t, errors.Join(s.PutBaseline(old), s.PutBaseline(fresh)))
	must.Do(t, errors.Join(s.PutProbes(tested("GPU-0", 1)), s.PutProbes(test)))
	must.Be(t, "baselines", must.Have(s.Baselines())(t), map[gpu.ID]finding.Baseline{"GPU-1": fresh})
	must.Be(t, "tests", must.Have(s.Probes())(t), map[gpu.ID]health.TestRecord{"GPU-1": test})
}

func TestPerCardRefuses(t *testing.T) {
	s := open(t, folder(t))
	many, unknown, half, other := carries("GPU-0", 0), carries("GPU-0", 0), tested("GPU-2", 1), tested("GPU-1", 1)
	many.Residents = make([]finding.Resident, maxResidents+1)
	unknown.Epoch.Driver, half.Epoch.Driver, other.Epoch.Module = "", "", "m@2"
	for name, tt := range map[string]struct{ err, want error }{
		"a leak":              {s.PutBaseline(carries("GPU-0", finding.MaxBaseline+1)), safefile.ErrTooLarge},
		"a crowd":             {s.PutBaseline(many), safefile.ErrTooLarge},
		"no GPU":              {s.PutBaseline(carries("", 0)), safefile.ErrTooLarge},
		"half an epoch":       {s.PutBaseline(unknown), ErrEpoch},
		"a test in such one":  {s.PutProbes(half), ErrEpoch},
		"tests of two epochs": {s.PutProbes(other, tested("GPU-0", 1)), ErrEpoch},
		"a test of no GPU":    {s.PutProbes(tested("", 1)), ErrEpoch},
	} {
		must.Fail(t, name, tt.err, tt.want)
	}
	baselines, err := s.Baselines()
	tests, err2 := s.Probes()
	if errors.Join(err, err2) != nil || baselines == nil || len(baselines)+len(tests) > 0 {
		t.Errorf("kept %+v, %+v, %v", baselines, tests, errors.Join(err, err2))
	}
}

// MIG instances get new ids each time they are made, and a backend may say much of each: the oldest go, the file stays
// readable.
func TestPerCardIsBounded(t *testing.T) {
	s := open(t, folder(t))
	for i := range maxCards + 20 {
		id := gpu.ID(fmt.Sprintf("MIG-%03d", i))
		b, r := carries(id, 1<<20), tested(id, time.Duration(i))
		b.At = time.Duration(i) * time.Second
		b.Residents = slices.Repeat(b.Residents, maxResidents/8)
		long := strings.Repeat("x", 4096)
		r.Probe.Why, r.Probe.Error = strings.Repeat("\x00", 4096), &gpu.CallError{Call: "cuInit", Meaning: long,
			Remedy: long}
		said := *r.Probe.Error
		must.Do(t, errors.Join(s.PutBaseline(b), s.PutProbes(r)))
		if *r.Probe.Error != said {
			t.Fatal("the caller's error was cut")
		}
	}
	baselines, err := s.Baselines()
	tests, err2 := s.Probes()
	if errors.Join(err, err2) != nil || len(baselines) != maxCards || len(tests) != maxCards {
		t.Fatalf("got %d baselines, %v, %d tests, %v, want %d", len(baselines), err, len(tests), err2, maxCards)
	}
	_, oldest := baselines["MIG-019"]
	_, newest := baselines["MIG-147"]
	_, oldTest := tests["MIG-019"]
	if e := tests["MIG-147"].Probe.Error; oldest || !newest || oldTest || e == nil || len(e.Meaning) != maxProbeText {
		t.Errorf("oldest kept %v, %v, newest %v, %+v", oldest, oldTest, newest, e)
	}
}

// Whoever looks for a multi-process service in the folder finds nothing, and nobody but root could put one there.
func TestNoMPS(t *testing.T) {
	s := open(t, folder(t))
	for range 2 {
		path := must.Have(s.NoMPS())(t)
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != 0o700 || filepath.Dir(path) != s.dir || !filepath.IsAbs(path) {
			t.Errorf("%q: %v, %v", path, info, err)
		}
	}
	other := open(t, folder(t))
	must.Do(t, os.Symlink("/", filepath.Join(other.dir, noMPS)))
	if path, err := other.NoMPS(); err == nil {
		t.Errorf("%q leads elsewhere", path)
	}
}
