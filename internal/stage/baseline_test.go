package stage

import (
	"testing"

	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/state"
)

// What a GPU carried in another epoch explains nothing now, nor does anything where one half of the epoch is unknown.
func TestBaselinesOfAnotherEpoch(t *testing.T) {
	learned := gpu.Epoch{Boot: "b", Driver: "580", Module: "m"}
	store, err := state.Open(t.TempDir(), "n1")
	if err != nil {
		t.Fatal(err)
	}
	known := finding.Baseline{GPU: "GPU-0", Epoch: learned, Bytes: 48 << 20, Holder: "dcgm.service"}
	if err := store.PutBaseline(known); err != nil {
		t.Fatal(err)
	}
	for now, want := range map[gpu.Epoch]int{
		learned: 1, {Boot: "c", Driver: "580", Module: "m"}: 0, {Boot: "b", Driver: "580", Module: "n"}: 0,
		{Boot: "b", Driver: "580"}: 0, {}: 0,
	} {
		h := hook{store: store, epoch: now}
		if h.recallBaselines(); len(h.baselines) != want || len(h.found) != 0 {
			t.Errorf("%+v: %+v, %+v; want %d of them", now, h.baselines, h.found, want)
		}
	}
}
