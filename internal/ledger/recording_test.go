package ledger

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/slurm"
	"bookend/test/must"
)

// recorded is what comes of a job's samples, one each second from the first on; nil is a sample that was missed.
func recorded(t *testing.T, samples ...[]gpu.Process) *Recording {
	t.Helper()
	r := Recording{Every: time.Second}
	known := who(inJob(7, 100), inJob(8, 100), finding.Process{PID: 9, Start: time.Second, UID: 1002,
		Cgroup: slurm.Owner{ID: 200}})
	for i, listed := range samples {
		if listed == nil {
			continue
		}
		look := onCard(time.Duration(i+1)*time.Second, listed...)
		var used uint64
		for _, p := range listed {
			used += p.Memory.Bytes
		}
		look.Readings[0].Memory.Used = gpu.Bytes(used)
		look.Readings[0].Busy = &gpu.Busy{GPU: min(100, 50*len(listed))}
		r.Add(job100(), Sample{Look: look, Known: known, Limits: finding.Limits{Report: 32 << 20}})
	}
	return &r
}

func job100() Run { return runOn(100, "GPU-0", 0, 0) }

func TestRecording(t *testing.T) {
	none, second := []gpu.Process{}, time.Second
	r := recorded(t, none, []gpu.Process{proc(7, 300)}, []gpu.Process{proc(7, 900), proc(8, 100), proc(9, 700)},
		[]gpu.Process{proc(7, 200)}, nil, nil, nil, nil, none)
	g := r.GPUs[0]
	if g.Peak != (Most{1700 << 20, 3 * second}) || g.Own != (Most{1000 << 20, 3 * second}) ||
		g.Together != 2 || g.TogetherAt != 3*second || g.Samples != 5 || g.Unread != 0 || g.More != 0 {
		t.Errorf("%+v", g)
	}
	if got := g.Curve.Used; !slices.Equal(got, []uint32{0, 300, 1700, 200, 0, 0, 0, 0, 0}) {
		t.Errorf("course %v", got)
	}
	if percent, known := g.Busy.Mean(); percent != 40 || !known || g.Busy.Most != 100 || g.Busy.Idle != 4750*time.Millisecond {
		t.Errorf("%+v", g.Busy)
	}
	if len(r.Missed) != 1 || r.Missed[0] != (Span{4 * second, 9 * second}) || r.Whole(second, 9*second) {
		t.Errorf("missed %v", r.Missed)
	}
	if gaps := r.Gaps(0, 20*second); len(gaps) != 2 || gaps[1] != (Span{9 * second, 20 * second}) {
		t.Errorf("gaps %v", gaps)
	}
	var owners []slurm.JobID
	for _, p := range r.Proofs() {
		owners = append(owners, p.Owner.ID)
	}
	if !slices.Equal(owners, []slurm.JobID{100, 100, 200}) {
		t.Errorf("proofs of %v", owners)
	}
	others := 0
	for _, s := range r.Sightings(job100()) {
		if !s.Own && s.Bytes.Bytes == 700<<20 {
			others++
		}
	}
	if others == 0 {
		t.Errorf("%+v", r.Sightings(job100()))
	}
}

// Nothing of a run is whole that nobody recorded, and a run that was has no gaps.
func TestGaps(t *testing.T) {
	var none *Recording
	if gaps := none.Gaps(1, 9); len(gaps) != 1 || gaps[0] != (Span{1, 9}) || none.Whole(1, 9) {
		t.Errorf("%v", gaps)
	}
	if r := recorded(t, []gpu.Process{}, []gpu.Process{}); !r.Whole(time.Second, 3*time.Second) {
		t.Errorf("gaps %v", r.Gaps(time.Second, 3*time.Second))
	}
}

// Where Slurm tracks without cgroups, a process that may well be the job's counts as its own; on a GPU on which any
// process was, nobody says that it was not used.
func TestRecordedWithoutCgroups(t *testing.T) {
	own := finding.Process{PID: 7, Start: 2 * time.Second, UID: 1001}
	for name, tt := range map[string]struct {
		change func(*finding.Process, *Sample)
		want   int // MiB of the job's own
	}{
		"its user's, begun with it":  {func(*finding.Process, *Sample) {}, 300},
		"by its environment too":     {func(p *finding.Process, _ *Sample) { p.EnvJobID = 100 }, 300},
		"another job's by that":      {func(p *finding.Process, _ *Sample) { p.EnvJobID = 101 }, 0},
		"older than the job":         {func(p *finding.Process, _ *Sample) { p.Start = time.Millisecond }, 0},
		"another user's":             {func(p *finding.Process, _ *Sample) { p.UID = 1002 }, 0},
		"in a container":             {func(p *finding.Process, _ *Sample) { p.Container = "docker-1" }, 0},
		"a service":                  {func(p *finding.Process, _ *Sample) { p.Service = "dcgm.service" }, 0},
		"another job's cgroup":       {func(p *finding.Process, _ *Sample) { p.Cgroup.ID = 200 }, 0},
		"cgroups that disagree":      {func(p *finding.Process, _ *Sample) { p.Cgroup.Conflict = "job 1, job 2" }, 0},
		"another job has the GPU":    {func(_ *finding.Process, s *Sample) { s.Shared = true }, 0},
		"in its cgroup all the same": {func(p *finding.Process, s *Sample) { p.Cgroup.ID, s.Shared = 100, true }, 300},
	} {
		t.Run(name, func(t *testing.T) {
			p, r, run := own, Recording{Every: time.Second}, job100()
			run.Job.UID, run.Start = 1001, &End{At: time.Second}
			sample := Sample{Look: onCard(3*time.Second, proc(7, 300))}
			tt.change(&p, &sample)
			sample.Known = who(p)
			r.Add(run, sample)
			if g := r.GPUs[0]; int(g.Own.Bytes>>20) != tt.want || g.Unused() {
				t.Errorf("%+v", g)
			}
		})
	}
	unread := Recorded{Samples: 9, Unread: 1}
	if unread.Unused() {
		t.Error("unused, though a sample could not be read")
	}
	idle := Recording{Every: time.Second}
	idle.Add(job100(), Sample{Look: onCard(time.Second)})
	if !idle.GPUs[0].Unused() {
		t.Errorf("%+v", idle)
	}
}

// Memory without a process counts where it lasts, and only what came while the job ran.
func TestUnlisted(t *testing.T) {
	for name, tt := range map[string]struct {
		extra []uint64 // MiB that no process accounts for, a sample each
		want  uint64
	}{
		"from the first sample on": {[]uint64{700, 700, 700, 700, 700}, 0},
		"came and stays":           {[]uint64{0, 700, 800, 700, 700}, 700},
		"for a moment":             {[]uint64{0, 700, 700, 0, 700, 700}, 0},
		"less than is told":        {[]uint64{0, 20, 20, 20, 20}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := Recording{Every: time.Second}
			for i, extra := range tt.extra {
				look := onCard(time.Duration(i+1) * time.Second)
				look.Readings[0].Memory.Used = gpu.Bytes(extra << 20)
				r.Add(job100(), Sample{Look: look, Limits: finding.Limits{Report: 32 << 20}})
			}
			if got := r.GPUs[0].Unlisted.Bytes >> 20; got != tt.want {
				t.Errorf("got %d MiB, want %d", got, tt.want)
			}
		})
	}
}

// It goes on where it was after it was kept and read back, as a recorder that follows another finds it.
func TestUnlistedByTwoRecorders(t *testing.T) {
	r := Recording{Every: time.Second}
	for i, extra := range []uint64{0, 700, 700, 700, 700} {
		look := onCard(time.Duration(i+1) * time.Second)
		look.Readings[0].Memory.Used = gpu.Bytes(extra << 20)
		text := must.Have(json.Marshal(r))(t)
		r = Recording{}
		must.Do(t, json.Unmarshal(text, &r))
		r.Add(job100(), Sample{Look: look, Limits: finding.Limits{Report: 32 << 20}})
	}
	if got := r.GPUs[0].Unlisted.Bytes >> 20; got != 700 {
		t.Errorf("got %d MiB, want 700", got)
	}
}

// A job of 20 000 processes, one after the other or at once, and of a week: the recording stays small, the largest are
// in it, and how many were left out is told.
func TestRecordingIsBounded(t *testing.T) {
	for name, tt := range map[string]struct{ samples, each int }{
		"in turn": {20000, 1}, "at once": {20, 1000}, "for a week": {7 * 24 * 3600 / 4, 1},
	} {
		t.Run(name, func(t *testing.T) {
			r, pid := Recording{Every: time.Second}, 1
			for i := range tt.samples {
				at, known := time.Duration(i+1)*time.Second*4, map[int]finding.Process{}
				look := onCard(at)
				look.Readings[0].Memory.Used = gpu.Bytes(uint64(i) << 20)
				for range tt.each {
					pid++
					known[pid] = finding.Process{PID: pid, Start: at - time.Second, Cgroup: slurm.Owner{ID: 100}}
					look.Readings[0].Processes = append(look.Readings[0].Processes, proc(pid, uint64(pid)))
				}
				r.Every = 4 * time.Second
				r.Add(job100(), Sample{Look: look, Known: known, Limits: finding.Limits{Report: 32 << 20}})
			}
			g := r.GPUs[0]
			if len(g.Processes) != MaxRecorded || g.More != tt.samples*tt.each-MaxRecorded || len(g.Curve.Used) > MaxPoints ||
				g.Processes[0].PID < pid-MaxRecorded || r.Whole(r.From, r.To) {
				t.Errorf("%d processes, the first %d of %d, %d more, %d points", len(g.Processes), g.Processes[0].PID, pid,
					g.More, len(g.Curve.Used))
			}
			if text := must.Have(json.Marshal(r))(t); len(text) > 24<<10 {
				t.Errorf("%d bytes", len(text))
			}
			if text := must.Have(json.Marshal(r.Bounded(2)))(t); len(text) > 2<<10 {
				t.Errorf("%d bytes", len(text))
			}
		})
	}
}
