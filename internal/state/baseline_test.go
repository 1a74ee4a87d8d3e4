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

	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/safefile"
)

var epoch = gpu.Epoch{Boot: "b", Driver: "580", Module: "m@1"}

func carries(id gpu.ID, bytes uint64) finding.Baseline {
	return finding.Baseline{
		GPU: id, Epoch: epoch, Bytes: bytes, Holder: "dcgm.service", At: time.Minute,
		Residents: []finding.Resident{{PID: 7, Start: time.Second, Bytes: 5 << 20, Service: "dcgm.service"}},
	}
}

func TestBaselines(t *testing.T) {
	s := open(t, folder(t))
	if got, err := s.Baselines(); err != nil || len(got) != 0 || got == nil {
		t.Fatalf("none yet: %+v, %v", got, err)
	}
	if err := s.DropBaselines("GPU-1"); err != nil {
		t.Errorf("nothing to forget: %v", err)
	}
	accepted := carries("GPU-2", 60<<20)
	accepted.Accepted = true
	for _, b := range []finding.Baseline{carries("GPU-1", 1<<20), accepted, carries("GPU-0", 0), carries("GPU-1", 3<<20)} {
		if err := s.PutBaseline(b); err != nil {
			t.Fatal(err)
		}
	}
	want := map[gpu.ID]finding.Baseline{"GPU-0": carries("GPU-0", 0), "GPU-1": carries("GPU-1", 3<<20), "GPU-2": accepted}
	if got, err := s.Baselines(); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	if err := s.DropBaselines("GPU-0", "GPU-2", "GPU-9"); err != nil {
		t.Fatal(err)
	}
	delete(want, "GPU-0")
	delete(want, "GPU-2")
	if got, err := s.Baselines(); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	if info, err := os.Stat(filepath.Join(s.dir, baselineFile.file)); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

// What was learned, or accepted, in another epoch explains nothing in this one.
func TestBaselinesOfAnotherEpochGo(t *testing.T) {
	s := open(t, folder(t))
	old := carries("GPU-0", 1<<20)
	old.Accepted = true
	fresh := carries("GPU-1", 2<<20)
	fresh.Epoch.Module = "m@2"
	for _, b := range []finding.Baseline{old, fresh} {
		if err := s.PutBaseline(b); err != nil {
			t.Fatal(err)
		}
	}
	want := map[gpu.ID]finding.Baseline{"GPU-1": fresh}
	if got, err := s.Baselines(); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestPutBaselineRefuses(t *testing.T) {
	s := open(t, folder(t))
	many := carries("GPU-0", 0)
	many.Residents = make([]finding.Resident, maxResidents+1)
	unknown := carries("GPU-0", 0)
	unknown.Epoch.Driver = ""
	for name, tt := range map[string]struct {
		b    finding.Baseline
		want error
	}{
		"a leak":        {carries("GPU-0", finding.MaxBaseline+1), safefile.ErrTooLarge},
		"a crowd":       {many, safefile.ErrTooLarge},
		"no card":       {carries("", 0), safefile.ErrTooLarge},
		"half an epoch": {unknown, ErrEpoch},
	} {
		if err := s.PutBaseline(tt.b); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
	}
	if got, err := s.Baselines(); err != nil || len(got) != 0 {
		t.Errorf("kept %+v, %v", got, err)
	}
}

// MIG instances get new ids each time they are made: the oldest go, the file stays readable.
func TestBaselinesAreBounded(t *testing.T) {
	s := open(t, folder(t))
	for i := range maxCards + 20 {
		b := carries(gpu.ID(fmt.Sprintf("MIG-%03d", i)), 1<<20)
		b.At = time.Duration(i) * time.Second
		for len(b.Residents) < maxResidents/8 {
			b.Residents = append(b.Residents, b.Residents[0])
		}
		if err := s.PutBaseline(b); err != nil {
			t.Fatal(err)
		}
	}
	got, err := s.Baselines()
	_, oldest := got["MIG-019"]
	_, newest := got["MIG-147"]
	if err != nil || len(got) != maxCards || oldest || !newest {
		t.Errorf("%d cards, oldest kept %v, newest %v, %v", len(got), oldest, newest, err)
	}
}

// Whatever cannot be read as it was written explains no memory: it is set aside, said once, and begun anew.
func TestBaselinesDamaged(t *testing.T) {
	whole := `{"version":1,"cards":[{"gpu":"GPU-0","epoch":{},"bytes":1,"at_ns":1}]}`
	for name, text := range map[string]string{
		"empty":           "",
		"cut":             whole[:40],
		"another version": strings.Replace(whole, `"version":1`, `"version":2`, 1),
		"no version":      `{"cards":[]}`,
		"above the cap":   strings.Replace(whole, `"bytes":1`, fmt.Sprintf(`"bytes":%d`, finding.MaxBaseline+1), 1),
		"no card":         strings.Replace(whole, "GPU-0", "", 1),
		"a card twice":    strings.Replace(whole, "[{", `[{"gpu":"GPU-0"},{`, 1),
		"too long":        whole + strings.Repeat(" ", int(baselineFile.most)),
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, folder(t))
			put := func() {
				if err := os.WriteFile(filepath.Join(s.dir, baselineFile.file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			put()
			if got, err := s.Baselines(); len(got) != 0 || !errors.As(err, new(Damage)) {
				t.Errorf("%+v, %v", got, err)
			}
			if got, err := s.Baselines(); len(got) != 0 || err != nil {
				t.Errorf("reported again: %+v, %v", got, err)
			}
			put()
			if err := s.PutBaseline(carries("GPU-1", 2)); err != nil {
				t.Fatal(err)
			}
			if got, err := s.Baselines(); err != nil || len(got) != 1 {
				t.Errorf("after a new one: %+v, %v", got, err)
			}
			if aside, err := os.ReadDir(filepath.Join(s.dir, damagedName)); err != nil || len(aside) != 2 {
				t.Errorf("set aside: %v, %v", aside, err)
			}
		})
	}
	s := open(t, folder(t))
	if err := os.WriteFile(filepath.Join(s.dir, baselineFile.file), []byte(whole), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Baselines(); err != nil || got["GPU-0"].Bytes != 1 {
		t.Errorf("a whole one: %+v, %v", got, err)
	}
}

// A lock that others hold costs a writer its write, and a reader nothing.
func TestBaselinesLocked(t *testing.T) {
	s := open(t, folder(t))
	if err := s.PutBaseline(carries("GPU-0", 1)); err != nil {
		t.Fatal(err)
	}
	release, err := safefile.Lock(filepath.Join(s.dir, lockOther), 0, true)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if err := s.PutBaseline(carries("GPU-1", 1)); !errors.Is(err, ErrLocked) {
		t.Errorf("put: %v", err)
	}
	if err := s.DropBaselines("GPU-0"); !errors.Is(err, ErrLocked) {
		t.Errorf("drop: %v", err)
	}
	if got, err := s.Baselines(); err != nil || len(got) != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	if err := os.WriteFile(filepath.Join(s.dir, baselineFile.file), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Baselines(); len(got) != 0 || !errors.Is(err, ErrLocked) {
		t.Errorf("damaged: %+v, %v", got, err)
	}
}
