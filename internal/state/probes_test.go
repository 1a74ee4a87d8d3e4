package state

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"bookend/internal/gpu"
	"bookend/internal/probe"
	"bookend/internal/safefile"
)

func tested(id gpu.ID, at time.Duration) probe.Record {
	return probe.Record{
		Probe: gpu.Probe{Device: id, Result: gpu.ProbeOK, Free: gpu.Bytes(2 << 30), Largest: gpu.Bytes(2<<30 - 2<<20), Attempts: 2, At: at},
		Epoch: epoch, Kernel: gpu.KernelMark{Seq: 7, At: time.Second}, Wall: time.Unix(1800000000, 0).UTC(), Seen: 1,
	}
}

func TestProbes(t *testing.T) {
	s := open(t, folder(t))
	if got, err := s.Probes(); err != nil || len(got) != 0 || got == nil {
		t.Fatalf("none yet: %+v, %v", got, err)
	}
	if err := s.PutProbes(); err != nil {
		t.Fatal(err)
	}
	if err := s.PutProbes(tested("GPU-1", 1), tested("GPU-0", 1)); err != nil {
		t.Fatal(err)
	}
	bad := tested("GPU-1", 2)
	bad.Probe.Result, bad.Probe.Error = gpu.ProbeBroken, &gpu.CallError{Call: "cuInit", Code: 999}
	if err := s.PutProbes(bad); err != nil {
		t.Fatal(err)
	}
	want := map[gpu.ID]probe.Record{"GPU-0": tested("GPU-0", 1), "GPU-1": bad}
	if got, err := s.Probes(); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	if info, err := os.Stat(filepath.Join(s.dir, probesFile.file)); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

// A test holds for one life of the driver: those of another go, and one of which nobody knows when it was is refused.
func TestProbesOfAnotherEpochGo(t *testing.T) {
	s := open(t, folder(t))
	fresh, half := tested("GPU-1", 1), tested("GPU-2", 1)
	fresh.Epoch.Module, half.Epoch.Driver = "m@2", ""
	if err := s.PutProbes(tested("GPU-0", 1)); err != nil {
		t.Fatal(err)
	}
	if err := s.PutProbes(fresh); err != nil {
		t.Fatal(err)
	}
	for name, records := range map[string][]probe.Record{"half an epoch": {half}, "two epochs": {fresh, tested("GPU-0", 1)}} {
		if err := s.PutProbes(records...); !errors.Is(err, ErrEpoch) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := s.PutProbes(tested("", 1)); err == nil {
		t.Error("a card without id was recorded")
	}
	if got, err := s.Probes(); err != nil || !reflect.DeepEqual(got, map[gpu.ID]probe.Record{"GPU-1": fresh}) {
		t.Errorf("%+v, %v", got, err)
	}
}

// However many cards and however long what a backend said of each, the file stays readable: the oldest go.
func TestProbesAreBounded(t *testing.T) {
	s := open(t, folder(t))
	for i := range maxCards + 20 {
		r := tested(gpu.ID(fmt.Sprintf("MIG-%03d", i)), time.Duration(i))
		long := strings.Repeat("\x00", 4096)
		r.Probe.Why, r.Probe.Error = long, &gpu.CallError{Call: "cuInit", Meaning: strings.Repeat("x", 4096), Remedy: strings.Repeat("y", 4096)}
		said := *r.Probe.Error
		if err := s.PutProbes(r); err != nil {
			t.Fatal(err)
		}
		if *r.Probe.Error != said {
			t.Fatal("the caller's error was cut")
		}
	}
	got, err := s.Probes()
	_, oldest := got["MIG-019"]
	newest, kept := got["MIG-147"]
	if err != nil || len(got) != maxCards || oldest || !kept || len(newest.Probe.Error.Meaning) != maxProbeText {
		t.Errorf("%d cards, oldest kept %v, newest %v, %v", len(got), oldest, kept, err)
	}
}

// Whatever cannot be read as it was written stands for no test: it is set aside, said once, and begun anew.
func TestProbesDamaged(t *testing.T) {
	whole := `{"version":1,"cards":[{"probe":{"device":"GPU-0","result":"ok"}}]}`
	for name, text := range map[string]string{
		"empty":           "",
		"cut":             whole[:40],
		"another version": strings.Replace(whole, `"version":1`, `"version":2`, 1),
		"no card":         strings.Replace(whole, "GPU-0", "", 1),
		"a card twice":    strings.Replace(whole, "[{", `[{"probe":{"device":"GPU-0"}},{`, 1),
		"too long":        whole + strings.Repeat(" ", int(probesFile.most)),
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, folder(t))
			put := func() {
				if err := os.WriteFile(filepath.Join(s.dir, probesFile.file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			put()
			if got, err := s.Probes(); len(got) != 0 || !errors.As(err, new(Damage)) {
				t.Errorf("%+v, %v", got, err)
			}
			if got, err := s.Probes(); len(got) != 0 || err != nil {
				t.Errorf("reported again: %+v, %v", got, err)
			}
			put()
			if err := s.PutProbes(tested("GPU-1", 1)); err != nil {
				t.Fatal(err)
			}
			if got, err := s.Probes(); err != nil || len(got) != 1 {
				t.Errorf("after a new one: %+v, %v", got, err)
			}
			if aside, err := os.ReadDir(filepath.Join(s.dir, damagedName)); err != nil || len(aside) != 2 {
				t.Errorf("set aside: %v, %v", aside, err)
			}
		})
	}
}

// A lock that others hold costs a writer its write, and a reader nothing.
func TestProbesLocked(t *testing.T) {
	s := open(t, folder(t))
	if err := s.PutProbes(tested("GPU-0", 1)); err != nil {
		t.Fatal(err)
	}
	release, err := safefile.Lock(filepath.Join(s.dir, lockOther), 0, true)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if err := s.PutProbes(tested("GPU-1", 1)); !errors.Is(err, ErrLocked) {
		t.Errorf("put: %v", err)
	}
	if got, err := s.Probes(); err != nil || len(got) != 1 {
		t.Errorf("%+v, %v", got, err)
	}
}

// Whoever looks for a multi-process service in the folder finds nothing, and nobody but root could put one there.
func TestNoMPS(t *testing.T) {
	s := open(t, folder(t))
	for range 2 {
		path, err := s.NoMPS()
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != 0o700 || filepath.Dir(path) != s.dir || !filepath.IsAbs(path) {
			t.Errorf("%q: %v, %v", path, info, err)
		}
	}
	if runs, damaged := s.Runs(); len(runs)+len(damaged) != 0 {
		t.Errorf("the folder passes for a job's: %v, %v", runs, damaged)
	}
	if err := os.WriteFile(filepath.Join(s.dir, noMPS, "control"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if path, err := s.NoMPS(); err == nil {
		t.Errorf("%q is not empty", path)
	}
	other := open(t, folder(t))
	if err := os.Symlink("/", filepath.Join(other.dir, noMPS)); err != nil {
		t.Fatal(err)
	}
	if path, err := other.NoMPS(); err == nil {
		t.Errorf("%q leads elsewhere", path)
	}
}
