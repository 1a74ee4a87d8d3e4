package session

import (
	"testing"

	"bookend/internal/gpu"
	"bookend/internal/wire"
)

// A start that listed hundreds of processes on each GPU does not keep the end from asking: the request fits.
func TestRequestFits(t *testing.T) {
	expect := map[gpu.ID]gpu.Expected{"GPU-few": {Bytes: 5}}
	for _, id := range []gpu.ID{"GPU-0", "GPU-1", "GPU-2", "GPU-3"} {
		var e gpu.Expected
		for pid := range 480 {
			e.Processes = append(e.Processes, gpu.ExpectedProcess{PID: 4_000_000 + pid, Bytes: 1 << 36, Share: 1 << 28})
		}
		expect[id] = e
	}
	r := wire.Request{Op: wire.Watch, Watch: gpu.WatchRule{Expect: expect}}
	if _, err := r.Line(); err == nil {
		t.Fatal("it fits anyway")
	}
	if r = fitting(r); r.Watch.Expect != nil || len(expect) != 5 {
		t.Errorf("of %d GPUs", len(r.Watch.Expect))
	}
}
