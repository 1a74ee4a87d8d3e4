package report

import (
	"maps"
	"testing"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/slurm"
)

// use is what was recorded of the i-th GPU: GiB and processes of the job, percent busy.
func use(i int, gib uint64, together, busy int) record.GPURecording {
	return record.GPURecording{ID: gpu.ID("GPU-" + string(rune('a'+i))), Samples: 10, Own: record.Most{Bytes: gib << 30},
		Together: together, Busy: record.Busy{Samples: 10, Sum: 10 * busy, Most: busy}}
}

func recording(all ...record.GPURecording) func(*Scene) {
	return func(s *Scene) {
		s.Ended = time.Hour
		s.Recording = &record.Recording{To: time.Hour, Every: time.Second, Samples: 10, GPUs: all}
	}
}

func TestPeakInTheLog(t *testing.T) {
	beside := use(0, 41, 1, 71)
	beside.Processes = []record.RecordedProcess{{PID: 5150, Owner: slurm.Owner{ID: 77}, Most: 20 << 30}}
	mine := use(0, 41, 1, 71)
	mine.Processes = []record.RecordedProcess{{Owner: slurm.Owner{SLUID: "s8KLXYKZ8W4T00"}, Most: 41 << 30}}
	theirs := use(1, 0, 0, 50)
	theirs.Processes = []record.RecordedProcess{{PID: 5150, Most: 20 << 30}}
	scenes := map[string]Scene{}
	for name, tt := range map[string]struct {
		cards  int
		change func(*Scene)
	}{
		"nothing recorded":                          {1, func(*Scene) {}},
		"one process":                               {1, recording(use(0, 41, 1, 71))},
		"one GPU used less, one not at all":         {3, recording(use(0, 41, 1, 71), use(1, 0, 0, 0), use(2, 3, 1, 2))},
		"ranks piled on one":                        {4, recording(use(0, 130, 4, 99), use(1, 0, 0, 0), use(2, 0, 0, 0), use(3, 0, 0, 0))},
		"another job beside it":                     {1, recording(beside)},
		"others of unknown jobs on its other GPU":   {2, recording(use(0, 41, 2, 71), theirs)},
		"another job that may be there":             {1, func(s *Scene) { recording(beside)(s); s.Shared = true }},
		"its own process, known by its SLUID alone": {1, func(s *Scene) { recording(mine)(s); s.Run.Job.SLUID = "s8KLXYKZ8W4T00" }},
		"not all of the time":                       {1, func(s *Scene) { recording(use(0, 41, 3, 71))(s); s.Recording.From = time.Minute }},
		"nearly no sample could be read": {1, func(s *Scene) {
			failed := use(0, 41, 1, 71)
			failed.Samples, failed.Unread = 3600, 3599
			recording(failed)(s)
		}},
		"memory that no listed process had": {2, func(s *Scene) {
			seen := use(1, 0, 0, 0)
			seen.Peak.Bytes = 20 << 30
			recording(use(0, 41, 1, 71), seen)(s)
		}},
		"on a GPU that was not clean": {1, func(s *Scene) {
			recording(use(0, 41, 1, 71))(s)
			s.Run.Start = &record.End{Findings: []record.Finding{found(catalog.Dirty, holder(1002), nil)}}
		}},
		"an error and memory without a process": {1, func(s *Scene) {
			seen := use(0, 41, 1, 71)
			seen.Unlisted.Bytes, seen.Faults = 20<<30, []record.RecordedFault{{Code: 79}}
			recording(seen)(s)
		}},
		"samples far apart":                {2, func(s *Scene) { recording(use(0, 41, 1, 71), use(1, 0, 0, 0))(s); s.Recording.Every = time.Minute }},
		"a site that wants problems alone": {1, func(s *Scene) { recording(use(0, 41, 1, 71))(s); s.Show = config.ShowProblems }},
	} {
		s := scene(tt.cards, record.Clean)
		tt.change(&s)
		scenes[name] = s
	}
	written(t, "testdata/peak.txt", End, maps.Clone(scenes))
	written(t, "testdata/running.txt", Running, scenes)
}
