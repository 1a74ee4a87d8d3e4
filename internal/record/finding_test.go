package record

import (
	"strings"
	"testing"

	"bookend/internal/catalog"
	"bookend/internal/gpu"
)

// A number that leads to no GPU may be a mistake of the configuration, unless it led to one that is gone.
func TestUnresolved(t *testing.T) {
	gone := []Assigned{{Index: 2}, {Index: 3, Device: gpu.Device{ID: "GPU-3", BusID: "0000:3b:00.0"}}}
	for _, before := range [][]Assigned{nil, gone} {
		found := Unresolved("", []int{3}, before, 3)
		is := len(found) == 1 && found[0].Code == catalog.Missing && *found[0].Index == 3
		proven := is && found[0].GPU == "GPU-3" && len(found[0].Doubts) == 0 &&
			strings.Contains(found[0].Observed, "GPU-3 at 0000:3b:00.0")
		if !is || proven != (before != nil) || !proven && len(found[0].Doubts) != 1 {
			t.Errorf("%v: %+v", before, found)
		}
	}
	if found := Unresolved("no list", nil, nil, 3); len(found) != 1 || found[0].Unknown != "no list" {
		t.Errorf("%+v", found)
	}
}

// An error of no known kind is the GPU's if it is about one, and the driver's otherwise. What surrounds the hook may
// cause others.
func TestFromFault(t *testing.T) {
	for name, tt := range map[string]struct {
		fault gpu.Fault
		want  catalog.Code
		sure  bool
	}{
		"of a GPU":             {gpu.Fault{Code: gpu.FaultDriver, Device: "GPU-0", BusID: "0000:3b:00.0"}, catalog.NoAnswer, true},
		"of one without an id": {gpu.Fault{Code: gpu.FaultDriver, BusID: "0000:3b:00.0"}, catalog.NoAnswer, true},
		"of the driver":        {gpu.Fault{Code: gpu.FaultDriver}, catalog.DriverKO, true},
		"of a later release":   {gpu.Fault{Code: "tomorrow", Device: "GPU-0"}, catalog.NoAnswer, true},
		"permissions":          {gpu.Fault{Code: gpu.FaultForbidden, Device: "GPU-0"}, catalog.NoAnswer, false},
		"no library":           {gpu.Fault{Code: gpu.FaultNoLibrary}, catalog.NoDriver, false},
		"lost":                 {gpu.Fault{Code: gpu.FaultLost, Device: "GPU-0"}, catalog.Lost, true},
	} {
		f := FromFault(tt.fault)
		names := tt.fault.BusID == "" || strings.HasPrefix(f.Observed, "GPU at 0000:3b:00.0: ")
		if f.Code != tt.want || (len(f.Doubts) == 0) != tt.sure || !names {
			t.Errorf("%s: %+v", name, f)
		}
	}
}
