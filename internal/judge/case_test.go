package judge

import (
	"testing"

	"bookend/internal/finding"
	"bookend/internal/gpu"
)

// What a GPU carried in another epoch explains nothing now, nor does anything where one half of the epoch is unknown.
func TestBaselinesOf(t *testing.T) {
	learned := gpu.Epoch{Boot: "b", Driver: "580", Module: "m"}
	known := map[gpu.ID]finding.Baseline{"GPU-0": {GPU: "GPU-0", Epoch: learned, Bytes: 48 << 20, Holder: "dcgm.service"}}
	for now, want := range map[gpu.Epoch]int{
		learned: 1, {Boot: "c", Driver: "580", Module: "m"}: 0, {Boot: "b", Driver: "580", Module: "n"}: 0,
		{Boot: "b", Driver: "580"}: 0, {}: 0,
	} {
		if got := BaselinesOf(known, now); len(got) != want {
			t.Errorf("epoch %+v: got %+v, want %d of them", now, got, want)
		}
	}
}
