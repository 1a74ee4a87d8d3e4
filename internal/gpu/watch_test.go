package gpu

import "testing"

// Memory of a process that was there before and has gone since is not expected any more: it would hide as much of a
// leak.
func TestExpectedUse(t *testing.T) {
	e := Expected{Bytes: 5, Processes: []ExpectedProcess{{PID: 7, Bytes: 90, Share: 10}, {PID: 8, Bytes: 1000}}}
	for _, tt := range []struct {
		listed []Process
		want   uint64
	}{
		{nil, 5},
		{[]Process{{PID: 7, Memory: Bytes(90)}}, 105},
		{[]Process{{PID: 8, Memory: Bytes(1000)}, {PID: 7, Memory: Bytes(90)}}, 1105},
		{[]Process{{PID: 7, Memory: Bytes(40)}}, 55},
		{[]Process{{PID: 7, Memory: Bytes(400)}}, 105},
		{[]Process{{PID: 7, Memory: Unknown("not available")}}, 105},
		{[]Process{{PID: 9, Memory: Bytes(7)}}, 5},
	} {
		if got := e.Used(tt.listed); got != tt.want {
			t.Errorf("Used(%v) = %d, want %d", tt.listed, got, tt.want)
		}
	}
}
