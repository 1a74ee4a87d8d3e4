package stage

import (
	"encoding/json"
	"strings"
	"testing"

	"bookend/internal/attrib"
	"bookend/internal/gpu"
	"bookend/internal/wire"
)

// What /proc knows of as many processes as a driver may list fits the answer: the last lose what matters least.
func TestAnswerFits(t *testing.T) {
	for name, tt := range map[string]struct{ all, whole int }{"a few": {480, 480}, "all of 16 GPUs": {16 * 950, 1000}} {
		var all []attrib.Process
		for pid := range tt.all {
			all = append(all, attrib.Process{PID: pid + 1, Name: strings.Repeat("\x01", 15), Exe: strings.Repeat("\x01", 200)})
		}
		all = within(all, maxChildReply)
		data, err := json.Marshal(all)
		if err != nil || len(data) >= maxChildReply || len(all) != tt.all || all[tt.whole-1].Exe == "" || all[tt.all-1].PID != tt.all {
			t.Errorf("%s: %d bytes, %v, %+v", name, len(data), err, all[tt.all-1])
		}
	}
}

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
	r = fitting(r)
	if _, err := r.Line(); err != nil || len(r.Watch.Expect) < 2 || len(expect) != 5 {
		t.Errorf("%v: of %d GPUs", err, len(r.Watch.Expect))
	}
	if _, kept := r.Watch.Expect["GPU-few"]; !kept {
		t.Error("the smallest was left out")
	}
}
