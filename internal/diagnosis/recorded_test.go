package diagnosis

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/slurm"
)

// What samples saw on a job's GPU, with whose it was as far as a cgroup or a user proves it.
func TestSightings(t *testing.T) {
	self, r := record.Run{Job: slurm.Job{ID: 42, UID: 1001}}, record.Recording{GPUs: []record.GPURecording{{ID: "A"}}}
	var want []Sighting
	for i, p := range []record.RecordedProcess{{Owner: slurm.Owner{ID: 42}}, {Owner: slurm.Owner{ID: 43}}, {}, {UID: 1002},
		{UID: 1002, Apart: true}, {UID: 1001}, {UID: 1001, EnvJob: 43}} {
		p.PID, p.First, p.Last, p.Bytes = i, 5, 5, gpu.Bytes(uint64(i))
		r.GPUs[0].Processes = append(r.GPUs[0].Processes, p)
		want = append(want, Sighting{At: 5, Device: "A", PID: i, Bytes: p.Bytes, Own: i == 0,
			Foreign: i == 1 || i == 3, Likely: i == 5})
	}
	again := record.Recording{GPUs: []record.GPURecording{{ID: "A", Processes: []record.RecordedProcess{{Owner: slurm.Owner{ID: 42}, Start: 3, Last: 9}}}}}
	late := self
	late.Start = &record.End{At: time.Minute}
	if got := sightingsOf(&again, late); got[0].Own || got[0].Foreign {
		t.Errorf("an earlier run's of the job id is not this run's: %+v", got)
	}
	tracked := r
	if got := sightingsOf(&tracked, self); slices.ContainsFunc(got, func(s Sighting) bool { return s.Likely }) {
		t.Errorf("the job's processes have its cgroup, and another of its user may be the job's: %+v", got)
	}
	r.GPUs[0].Processes, want = slices.Clone(r.GPUs[0].Processes)[1:], want[1:]
	if got := sightingsOf(&r, self); !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
}
