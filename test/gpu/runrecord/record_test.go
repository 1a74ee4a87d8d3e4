package runrecord

import (
	"bytes"
	"compress/gzip"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bookend/test/must"
)

func good() File {
	return File{
		Version: Version, Date: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC), Machine: Machine{GPU: "Example", GPUs: 1},
		Runs: []Run{{Scenario: "s", Number: 1, Outcome: Right, Checks: []Check{{What: "w", Right: true}}}},
	}
}

func TestLoadKeepsWhatWasWritten(t *testing.T) {
	folder := t.TempDir()
	later, earlier := good(), good()
	later.Date = later.Date.AddDate(0, 0, 1)
	for name, f := range map[string]File{"a" + Suffix: later, "b" + Suffix: earlier} {
		must.Do(t, f.Write(filepath.Join(folder, name)))
	}
	all := must.Have(Load(folder))(t)
	if len(all) != 2 || !all[0].Date.Equal(earlier.Date) || all[0].Runs[0].Checks[0] != earlier.Runs[0].Checks[0] {
		t.Errorf("loaded %+v", all)
	}
}

func TestLoadRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*File)
		want   string
	}{
		"a rehearsal":           {func(f *File) { f.Fake = true }, "rehearsal"},
		"another version":       {func(f *File) { f.Version++ }, "version"},
		"no machine":            {func(f *File) { f.Machine.GPU = "" }, "no machine"},
		"nothing measured":      {func(f *File) { f.Runs = nil }, "want runs or timings"},
		"both kinds":            {func(f *File) { f.Timings = &Timings{} }, "want runs or timings"},
		"a wrong run as right":  {func(f *File) { f.Runs[0].Checks[0].Right = false }, "its checks say"},
		"a broken run as right": {func(f *File) { f.Runs[0].Problem = "no job" }, "its checks say"},
		"an unjudged run":       {func(f *File) { f.Runs[0].Checks = nil }, "its checks say"},
	} {
		t.Run(name, func(t *testing.T) {
			f, folder := good(), t.TempDir()
			tc.change(&f)
			must.Do(t, f.Write(filepath.Join(folder, "x"+Suffix)))
			if _, err := Load(folder); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one with %q", err, tc.want)
			}
		})
	}
}

func TestLoadRefusesUnknownFields(t *testing.T) {
	folder := t.TempDir()
	var b bytes.Buffer
	packed := gzip.NewWriter(&b)
	_, err := packed.Write([]byte(`{"version":1,"verdict":"fine"}`))
	must.Do(t, errors.Join(err, packed.Close(), os.WriteFile(filepath.Join(folder, "x"+Suffix), b.Bytes(), 0o644)))
	if _, err := Load(folder); err == nil || !strings.Contains(err.Error(), "verdict") {
		t.Errorf("error %v, want one that names the field", err)
	}
}

// A control that the judge finds right shows a judge that would not notice.
func TestAsItShould(t *testing.T) {
	for _, tc := range []struct {
		control string
		outcome Outcome
		want    bool
	}{
		{"", Right, true}, {"", Wrong, false}, {"", Broken, false},
		{"look: {}", Right, false}, {"look: {}", Wrong, true}, {"look: {}", Broken, false},
	} {
		got := (Run{Control: tc.control, Outcome: tc.outcome}).AsItShould()
		must.Not(t, got != tc.want, "control %q, outcome %s: %v", tc.control, tc.outcome, got)
	}
}

func TestPair(t *testing.T) {
	for name, tc := range map[string]struct {
		ours, bare []float64
		ratio      float64
		held       bool
	}{
		"held":                  {[]float64{110, 300, 100}, []float64{100, 100, 100}, 1.1, true},
		"not held":              {[]float64{120, 120, 100}, []float64{100, 100, 100}, 1.2, false},
		"by rounds, not totals": {[]float64{100, 220, 300}, []float64{50, 200, 300}, 1.1, true},
		"nothing measured":      {nil, nil, 0, false},
		"a round of no time":    {[]float64{1, 3}, []float64{0, 3}, 1, true},
	} {
		p := Pair{Limit: 1.15, Ours: Timing{Millis: tc.ours}, Bare: Timing{Millis: tc.bare}}
		must.Not(t, p.Ratio() != tc.ratio || p.Held() != tc.held,
			"%s: ratio %v, held %v; want %v, %v", name, p.Ratio(), p.Held(), tc.ratio, tc.held)
	}
}
