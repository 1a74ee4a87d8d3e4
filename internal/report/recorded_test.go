package report

import (
	"testing"
	"time"

	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/diagnosis"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/ledger"
	"bookend/internal/settle"
	"bookend/internal/slurm"
)

// used is what was recorded of the i-th GPU: GiB and processes of the job, percent busy.
func used(i int, gib uint64, together, busy int) ledger.Recorded {
	return ledger.Recorded{ID: gpu.ID("GPU-" + string(rune('a'+i))), Samples: 10, Own: ledger.Most{Bytes: gib << 30},
		Together: together, Busy: ledger.Busy{Samples: 10, Sum: 10 * busy, Most: busy}}
}

func recording(all ...ledger.Recorded) func(*Scene) {
	return func(s *Scene) {
		s.Now.Snapshot.At = time.Hour
		s.Recording = &ledger.Recording{To: time.Hour, Every: time.Second, Samples: 10, GPUs: all}
	}
}

// What the recorder alone saw is told of the time in which it was there.
func TestRecordedFinding(t *testing.T) {
	s := scene(1, settle.Clean, found(code.Foreign, holder(1002), &finding.Owner{Job: 77, UID: 1002, Level: finding.Recorded}))
	check(t, End(s), `
bookend: WARNING: n1 GPU 0 had 20.0 GiB in use while your job ran
bookend:   Held by a process that is not yours, of another user's job
bookend:   Details: bookend show 42 on n1`)
}

func TestPeakInTheLog(t *testing.T) {
	beside := used(0, 41, 1, 71)
	beside.Processes = []ledger.RecordedProcess{{PID: 5150, Owner: slurm.Owner{ID: 77}, Most: 20 << 30}}
	for name, tt := range map[string]struct {
		cards        int
		change       func(*Scene)
		end, running string
	}{
		"nothing recorded": {1, func(*Scene) {}, "\nbookend: n1 GPU 0 clean: 139.8 of 139.8 GiB free", ""},
		"one process": {1, recording(used(0, 41, 1, 71)),
			"\nbookend: n1 GPU 0 clean: peak 41.0 of 139.8 GiB, one process, busy 71 %",
			"\nbookend: n1 GPU 0: peak 41.0 of 139.8 GiB, one process, busy 71 %"},
		"not all of the time": {1, func(s *Scene) {
			recording(used(0, 41, 3, 71))(s)
			s.Recording.From = time.Minute
		}, "\nbookend: n1 GPU 0 clean: peak at least 41.0 of 139.8 GiB, 3 processes, busy 71 %",
			"\nbookend: n1 GPU 0: peak at least 41.0 of 139.8 GiB, 3 processes, busy 71 %"},
		"one GPU used less, one not at all": {3, recording(used(0, 41, 1, 71), used(1, 0, 0, 0), used(2, 3, 1, 2)),
			"\nbookend: n1 GPUs 0,1,2 clean: peak 3.0 (GPU 2) to 41.0 of 139.8 GiB, busy 2 to 71 %" +
				"\nbookend: n1 GPU 1 was never used by your job",
			"\nbookend: n1 GPUs 0,1,2: peak 3.0 (GPU 2) to 41.0 of 139.8 GiB, busy 2 to 71 %"},
		"ranks piled on one": {4, recording(used(0, 130, 4, 99), used(1, 0, 0, 0), used(2, 0, 0, 0), used(3, 0, 0, 0)),
			"\nbookend: n1 GPUs 0,1,2,3 clean: peak 130.0 of 139.8 GiB, 4 processes, busy 99 %" +
				"\nbookend: n1 GPUs 1,2,3 were never used by your job",
			"\nbookend: n1 GPU 0: 4 processes of your job at once, and none on 3 other GPUs of its own" +
				"\nbookend: n1 GPUs 0,1,2,3: peak 130.0 of 139.8 GiB, 4 processes, busy 99 %"},
		"another job beside it": {1, recording(beside),
			"\nbookend: n1 GPU 0 clean: peak 41.0 of 139.8 GiB, one process, busy 71 %",
			"\nbookend: n1 GPU 0: another process held 20.0 GiB while your job ran" +
				"\nbookend: n1 GPU 0: peak 41.0 of 139.8 GiB, one process, busy 71 %"},
		"its own process, known by its SLUID alone": {1, func(s *Scene) {
			mine := used(0, 41, 1, 71)
			mine.Processes = []ledger.RecordedProcess{{Owner: slurm.Owner{SLUID: "s8KLXYKZ8W4T00"}, Most: 41 << 30}}
			s.Job.SLUID = "s8KLXYKZ8W4T00"
			recording(mine)(s)
		}, "\nbookend: n1 GPU 0 clean: peak 41.0 of 139.8 GiB, one process, busy 71 %",
			"\nbookend: n1 GPU 0: peak 41.0 of 139.8 GiB, one process, busy 71 %"},
		"others of unknown jobs on its other GPU": {2, func(s *Scene) {
			theirs := used(1, 0, 0, 50)
			theirs.Processes = []ledger.RecordedProcess{{PID: 5150, Most: 20 << 30}}
			recording(used(0, 41, 2, 71), theirs)(s)
		}, "\nbookend: n1 GPUs 0,1 clean: peak 41.0 of 139.8 GiB, 2 processes, busy 71 %",
			"\nbookend: n1 GPUs 0,1: peak 41.0 of 139.8 GiB, 2 processes, busy 71 %"},
		"looks far apart": {2, func(s *Scene) {
			recording(used(0, 41, 1, 71), used(1, 0, 0, 0))(s)
			s.Recording.Every = time.Minute
		}, "\nbookend: n1 GPUs 0,1 clean: peak 41.0 of 139.8 GiB, one process, busy 71 %",
			"\nbookend: n1 GPUs 0,1: peak 41.0 of 139.8 GiB, one process, busy 71 %"},
		"another job that may be there": {1, func(s *Scene) { recording(beside)(s); s.Shared = true },
			"\nbookend: n1 GPU 0 clean: peak 41.0 of 139.8 GiB, one process, busy 71 %",
			"\nbookend: n1 GPU 0: peak 41.0 of 139.8 GiB, one process, busy 71 %"},
		"accounting saw more": {1, func(s *Scene) {
			recording(used(0, 41, 1, 71))(s)
			s.Why = &diagnosis.Diagnosis{Peaks: []gpu.Accounted{{Peak: gpu.Bytes(44 << 30)}}}
		}, "\nbookend: n1 GPU 0 clean: peak 44.0 of 139.8 GiB, one process, busy 71 %",
			"\nbookend: n1 GPU 0: peak 44.0 of 139.8 GiB, one process, busy 71 %"},
		"a site that wants problems alone": {1, func(s *Scene) {
			recording(used(0, 41, 1, 71))(s)
			s.Show = config.ShowProblems
		}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := scene(tt.cards, settle.Clean)
			tt.change(&s)
			check(t, End(s), tt.end)
			check(t, Running(s), tt.running)
		})
	}
}
