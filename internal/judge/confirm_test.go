package judge

import (
	"testing"

	"bookend/internal/attrib"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/settle"
)

// A dead process on one card is watched anew for the whole flat time; what the other cards showed before still counts,
// also where that time was not to be had.
func TestGoneOnAnotherCard(t *testing.T) {
	const other = gpu.ID("GPU-1")
	both := func(from, n int) []gpu.Snapshot {
		all := looks(from, n, gib+9*mib, gpu.Process{PID: 70, Memory: gpu.Bytes(gib)})
		for i := range all {
			dead := all[i].Readings[0]
			dead.Device, dead.Processes = gpu.Device{ID: other}, []gpu.Process{{PID: 80, Memory: gpu.Bytes(gib)}}
			all[i].Readings = append(all[i].Readings, dead)
		}
		return all
	}
	who := map[int]attrib.Process{70: {PID: 70, Start: 5}, 80: {PID: 80, Gone: true}}
	for n, want := range map[int]settle.State{1: settle.Moving, 6: settle.Flat} {
		o := order()
		o.Cards = append(o.Cards, finding.Card{Device: gpu.Device{ID: other}})
		side, _ := Look(&eyes{who: who, watches: [][]gpu.Snapshot{both(10, 6), both(16, n)}}, o)
		if side.Curves[card].State != settle.Flat || side.Curves[other].State != want {
			t.Errorf("%d more looks: %s and %s, want flat and %s", n, side.Curves[card].State, side.Curves[other].State, want)
		}
	}
}
