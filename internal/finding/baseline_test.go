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

var epoch = gpu.Epoch{Boot: "b", Driver: "580", Module: "m"}

// A baseline grows by services that have a name, and by nothing else: memory whose holder nobody knows would be a leak
// learned away.
func TestLearn(t *testing.T) {
	dcgm := attrib.Process{PID: 60, Start: at(5), Service: "dcgm.service"}
	resident60 := []Resident{{PID: 60, Start: at(5), Bytes: 40 * mib, Service: "dcgm.service"}}
	opener := onCard(dcgm, 3)
	unlisted := reading(48 * mib)
	listing := reading(49*mib, listed(60, 40*mib))
	known := Baseline{GPU: card, Bytes: 48 * mib, Holder: "dcgm.service"}
	for _, tt := range []struct {
		name  string
		now   Side
		found []attrib.Holding
		old   Baseline
		edit  func(*Scene)
		bytes uint64
		who   []Resident
		news  bool
	}{
		{"a service that is listed", side(at(100), settle.Flat, listing, dcgm), nil, Baseline{}, nil, 0, resident60, true},
		{"a service that is not listed but has the GPU open", side(at(100), settle.Flat, unlisted), []attrib.Holding{opener}, Baseline{}, nil, 48 * mib, nil, true},
		{"memory without a holder", side(at(100), settle.Flat, unlisted), nil, Baseline{}, nil, 0, nil, false},
		{"shared memory counted twice", side(at(100), settle.Flat, reading(10*mib, listed(60, 40*mib)), dcgm), nil, known, nil, 48 * mib, nil, false},
		{"a user's process has the driver open too", side(at(100), settle.Flat, unlisted), []attrib.Holding{opener, onDriver(attrib.Process{PID: 9, UID: alice})}, Baseline{}, nil, 0, nil, false},
		{"a user's process is listed", side(at(100), settle.Flat, listing, attrib.Process{PID: 60, UID: alice}), nil, known, nil, 48 * mib, nil, false},
		{"known, and gone since", side(at(100), settle.Clean, reading(0)), nil, known, nil, 0, nil, true},
		{"more than known without a search", side(at(100), settle.Clean, reading(52*mib+1)), nil, known, nil, 0, nil, true},
		{"accepted by an admin", side(at(100), settle.Clean, reading(0)), nil, Baseline{GPU: card, Bytes: 50 * mib, Accepted: true}, nil, 50 * mib, nil, false},
		{"a job had the GPU before: it may have left it", side(at(100), settle.Flat, unlisted), []attrib.Holding{opener}, Baseline{}, func(s *Scene) {
			s.Others = []attrib.Record{{Job: 9, GPUs: []gpu.ID{card}, Start: at(50), End: at(60)}}
		}, 0, nil, false},
		{"another live job has the GPU", side(at(100), settle.Flat, unlisted), []attrib.Holding{opener}, Baseline{}, func(s *Scene) {
			s.Others = []attrib.Record{{Job: 11, GPUs: []gpu.ID{card}, Start: at(90)}}
		}, 0, nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := searched(tt.now, tt.found...)
			s.Before, s.Job.Context = nil, "prolog_slurmd"
			s.Baselines = map[gpu.ID]Baseline{card: tt.old}
			if tt.edit != nil {
				tt.edit(&s)
			}
			got, news := s.Learn(s.Cards[0], epoch)
			if got.Bytes != tt.bytes || !reflect.DeepEqual(got.Residents, tt.who) || news != tt.news {
				t.Errorf("Learn = %+v, %v; want %d bytes, %v, %v", got, news, tt.bytes, tt.who, tt.news)
			}
		})
	}
}

// Services with little memory are part of the node: no finding, and no obstacle to a clean start.
func TestResidents(t *testing.T) {
	dcgm := attrib.Process{PID: 60, Start: at(5), Service: "dcgm.service"}
	quiet := side(at(200), settle.Flat, reading(49*mib, listed(60, 40*mib)), dcgm)
	if found := Compare(ending(quiet)); len(found) != 0 {
		t.Errorf("a service: %+v", found)
	}
	large := side(at(200), settle.Flat, reading(2*gib+9*mib, listed(60, 2*gib)), dcgm)
	if found := Compare(ending(large)); len(found) != 1 || len(found[0].Doubts) == 0 {
		t.Errorf("a service with much memory: %+v", found)
	}
	both := side(at(200), settle.Flat, reading(20*gib+58*mib, listed(60, 40*mib), listed(70, 20*gib)), dcgm, orphan)
	before := side(at(100), settle.Flat, reading(49*mib, listed(60, 40*mib)), dcgm)
	s := ending(both)
	s.Before = &before
	found := Compare(s)
	if len(found) != 1 || found[0].Holder.PID != 70 || len(found[0].Doubts) != 0 {
		t.Errorf("an orphan beside a service that was there before: %+v", found)
	}
}

// What a start called dirty is not clean by hindsight: a baseline counts if the start had it.
func TestBaselineLearnedTooLate(t *testing.T) {
	before := side(at(100), settle.Flat, reading(48*mib))
	for name, tt := range map[string]struct {
		learned time.Duration
		clean   bool
	}{
		"long before the start": {at(50), true},
		"accepted by an admin":  {0, true},
		"at the start":          {at(100), false},
		"while it looked":       {at(97), false},
		"since":                 {at(150), false},
	} {
		s := ending(side(at(200), settle.Flat, reading(20*gib+57*mib, listed(70, 20*gib)), orphan))
		s.Before = &before
		s.Baselines = map[gpu.ID]Baseline{card: {GPU: card, Bytes: 48 * mib, Holder: "dcgm.service", At: tt.learned}}
		found := Compare(s)
		if len(found) != 1 || found[0].Holder.PID != 70 || (len(found[0].Doubts) == 0) != tt.clean {
			t.Errorf("%s: %+v", name, found)
		}
	}
}

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
