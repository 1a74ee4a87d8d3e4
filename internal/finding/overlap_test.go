package finding

import (
	"testing"

	"bookend/internal/attrib"
	"bookend/internal/code"
	"bookend/internal/gpu"
	"bookend/internal/settle"
	"bookend/internal/slurm"
)

// A process on a card that is not this job's is reported when a cgroup proves a job that was not given that card.
func TestTrespasses(t *testing.T) {
	there := gpu.Reading{Device: gpu.Device{ID: "GPU-1"}, Processes: []gpu.Process{listed(70, gib)}}
	live := attrib.Record{Job: 11, UID: 1002, GPUs: []gpu.ID{"GPU-2"}, Start: at(90)}
	proven := attrib.Process{PID: 70, UID: 1002, Start: at(150), Cgroup: slurm.Owner{ID: 11}}
	for _, tt := range []struct {
		name    string
		who     attrib.Process
		edit    func(*Scene)
		want    bool
		unknown bool
	}{
		{"a live job that has another GPU", proven, nil, true, false},
		{"a live job that has this GPU", proven, func(s *Scene) { s.Others[0].GPUs = []gpu.ID{"GPU-1"} }, false, false},
		{"an ended job", proven, func(s *Scene) { s.Others[0].End = at(180) }, false, false},
		{"a job without a record: it may have no GPUs", attrib.Process{PID: 70, Cgroup: slurm.Owner{ID: 77}}, nil, true, true},
		{"by environment alone", attrib.Process{PID: 70, UID: 1002, Start: at(150), EnvJobID: 11}, nil, false, false},
		{"gone meanwhile", attrib.Process{PID: 70, Gone: true}, nil, false, false},
		{"this job, while it runs", attrib.Process{PID: 70, UID: alice, Start: at(150), Cgroup: slurm.Owner{ID: 10}}, func(s *Scene) { s.Job.Context = slurm.Prolog }, true, false},
		{"a sibling instance of one's own GPU", proven, func(s *Scene) {
			s.Cards[0].Device.Parent = "GPU-9"
			s.Now.Neighbours.Readings[0].Device.Parent = "GPU-9"
		}, false, false},
		{"under RunInJob nothing is said of others", proven, func(s *Scene) { s.Doubt = "inside the job" }, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := ending(side(at(200), settle.Clean, reading(0), tt.who))
			r := there
			s.Now.Neighbours = &gpu.Snapshot{At: at(200), Readings: []gpu.Reading{r}}
			s.Others = []attrib.Record{live}
			if tt.edit != nil {
				tt.edit(&s)
			}
			found := Trespasses(s)
			if (len(found) == 1) != tt.want || len(found) > 1 {
				t.Fatalf("%+v, want %v", found, tt.want)
			}
			if tt.want && (found[0].Code != code.Trespass || found[0].GPU != "GPU-1" || (found[0].Unknown != "") != tt.unknown || found[0].Owner == nil) {
				t.Errorf("%+v", found[0])
			}
		})
	}
}
