package finding

import (
	"maps"
	"reflect"
	"testing"
	"time"

	"bookend/internal/attrib"
	"bookend/internal/gpu"
	"bookend/internal/settle"
)

// An end expects what the start left on the GPU or what its baseline explains, whichever is more, each process once.
func TestExpectations(t *testing.T) {
	dcgm := attrib.Process{PID: 60, Start: at(5), Service: "dcgm.service"}
	base := Baseline{GPU: card, Bytes: 48 * mib, Residents: []Resident{{PID: 60, Start: at(5), Bytes: 40 * mib}}}
	expected60 := gpu.ExpectedProcess{PID: 60, Bytes: 40 * mib, Share: 9 * mib}
	known60 := map[int]time.Duration{60: at(5)}
	for _, tt := range []struct {
		name   string
		before Side
		want   gpu.Expected
		known  map[int]time.Duration
	}{
		{"less than the baseline", side(at(100), settle.Clean, reading(0)), gpu.Expected{Bytes: 48 * mib, Processes: []gpu.ExpectedProcess{expected60}}, known60},
		{"more than the baseline", side(at(100), settle.Flat, reading(149*mib, listed(60, 40*mib)), dcgm),
			gpu.Expected{Bytes: 100 * mib, Processes: []gpu.ExpectedProcess{expected60}}, known60},
		{"shared memory counted twice", side(at(100), settle.Flat, reading(70*mib, listed(70, 70*mib), listed(71, 70*mib)), orphan),
			gpu.Expected{Bytes: 48 * mib, Processes: []gpu.ExpectedProcess{{PID: 70, Bytes: 70 * mib}, expected60}}, map[int]time.Duration{60: at(5), 70: at(150)}},
		{"memory unknown", side(at(100), settle.Flat, gpu.Reading{Device: gpu.Device{ID: card}, Memory: gpu.Memory{Used: gpu.Unknown("lost")}}),
			gpu.Expected{Bytes: 48 * mib, Processes: []gpu.ExpectedProcess{expected60}}, known60},
	} {
		expect, known := Expectations(&tt.before, map[gpu.ID]Baseline{card: base}, Limits{PerClient: 9 * mib})
		if got := expect[card]; !reflect.DeepEqual(got, tt.want) || !maps.Equal(known, tt.known) {
			t.Errorf("%s: %+v, %v; want %+v, %v", tt.name, got, known, tt.want, tt.known)
		}
	}
}

// A GPU that still moved at the start takes nothing from what is known of the next one.
func TestExpectationsOfTheNextGPU(t *testing.T) {
	before := side(at(100), settle.Moving, reading(100*mib))
	next := reading(40 * mib)
	next.Device.ID = "GPU-1"
	before.Snapshot.Readings = append(before.Snapshot.Readings, next)
	before.Curves["GPU-1"] = settle.Curve{State: settle.Flat}
	expect, _ := Expectations(&before, nil, Limits{})
	if len(expect) != 1 || expect["GPU-1"].Bytes != 40*mib {
		t.Errorf("%+v", expect)
	}
}
