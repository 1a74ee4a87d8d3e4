package recorder

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/test/must"
)

// recorded is what comes of a job's samples, one each second from the first on; nil is a sample that was missed.
func recorded(t *testing.T, samples ...[]gpu.Process) *record.Recording {
	t.Helper()
	r := record.Recording{Every: time.Second}
	known := who(inJob(7, 100), inJob(8, 100), record.Process{PID: 9, Start: time.Second, UID: 1002,
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
		Sample{Look: look, Known: known, Limits: record.Limits{Report: 32 << 20}}.AddTo(&r, job100())
	}
	return &r
}

// job100 is a run that has GPU-0 from 0 on.
func job100() record.Run {
	devices := []record.Assigned{{Device: gpu.Device{ID: "GPU-0"}}}
	return record.Run{Job: slurm.Job{ID: 100}, Key: "w1", Devices: devices, Start: &record.End{}}
}

func TestRecording(t *testing.T) {
	none, second := []gpu.Process{}, time.Second
	r := recorded(t, none, []gpu.Process{proc(7, 300)}, []gpu.Process{proc(7, 900), proc(8, 100), proc(9, 700)},
		[]gpu.Process{proc(7, 200)}, nil, nil, nil, nil, none)
	g := r.GPUs[0]
	if g.Peak != (record.Most{Bytes: 1700 << 20, At: 3 * second}) || g.Own != (record.Most{Bytes: 1000 << 20, At: 3 * second}) ||
		g.Together != 2 || g.Samples != 5 || g.Unread != 0 || g.More != 0 {
		t.Errorf("%+v", g)
	}
	if p := g.Processes[0]; p.PID != 7 || p.Most != 900<<20 || p.MostAt != 3*second || p.Bytes != gpu.Bytes(200<<20) {
		t.Errorf("%+v, want the most that it had, and the last", p)
	}
	if got := g.Curve.Used; !slices.Equal(got, []uint32{0, 300, 1700, 200, 0, 0, 0, 0, 0}) {
		t.Errorf("course %v", got)
	}
	if percent := g.Busy.Mean(); percent == nil || *percent != 40 || g.Busy.Most != 100 || g.Busy.Idle != 4750*time.Millisecond {
		t.Errorf("%+v", g.Busy)
	}
	if len(r.Missed) != 1 || r.Missed[0] != (record.Span{From: 4 * second, To: 9 * second}) || r.Whole(second, 9*second) {
		t.Errorf("missed %v", r.Missed)
	}
	if gaps := r.Gaps(0, 20*second); len(gaps) != 2 || gaps[1] != (record.Span{From: 9 * second, To: 20 * second}) {
		t.Errorf("gaps %v", gaps)
	}
	var owners []slurm.JobID
	for _, p := range r.Proofs() {
		owners = append(owners, p.Owner.ID)
	}
	if !slices.Equal(owners, []slurm.JobID{100, 100, 200}) {
		t.Errorf("proofs of %v", owners)
	}
}

// A process that no one looked up is none to tell of, and leaves a sample that is not whole.
func TestProcessNotLookedUp(t *testing.T) {
	g := recorded(t, []gpu.Process{proc(7, 300), proc(12, 300)}).GPUs[0]
	if len(g.Processes) != 1 || g.Processes[0].PID != 7 || g.Unread != 1 {
		t.Errorf("%+v", g)
	}
}

// A figure that a curve has no room for is the largest that it has.
func TestMiB(t *testing.T) {
	for bytes, want := range map[uint64]uint32{1<<20 - 1: 0, 1 << 20: 1, 1<<52 - 1: 1<<32 - 1, 1 << 52: 1<<32 - 1} {
		if got := inMiB(bytes); got != want {
			t.Errorf("%d bytes: got %d MiB, want %d", bytes, got, want)
		}
	}
}

// A run without a recording is all gap; one that was recorded throughout has none.
func TestGaps(t *testing.T) {
	var none *record.Recording
	if gaps := none.Gaps(1, 9); len(gaps) != 1 || gaps[0] != (record.Span{From: 1, To: 9}) || none.Whole(1, 9) {
		t.Errorf("%v", gaps)
	}
	r := recorded(t, []gpu.Process{}, []gpu.Process{})
	if !r.Whole(time.Second, 3*time.Second) {
		t.Errorf("gaps %v", r.Gaps(time.Second, 3*time.Second))
	}
	if r.Every = time.Minute; r.Whole(time.Second, 3*time.Second) {
		t.Error("one sample a minute has seen all of it")
	}
}

// A job's time ends where its epilog begins, which may then watch for seconds what the job left; in a record of an
// earlier version it is where that looked last.
func TestOver(t *testing.T) {
	r := recorded(t, []gpu.Process{proc(7, 900)}, []gpu.Process{proc(7, 900)}, []gpu.Process{proc(7, 900)})
	leaks := record.End{At: 10 * time.Second, Began: 3200 * time.Millisecond}
	if gaps := r.Gaps(time.Second, leaks.Over()); len(gaps) > 0 || !r.Measures(time.Second, leaks.Over()) {
		t.Errorf("gaps %v", gaps)
	}
	if old := (record.End{At: 10 * time.Second}); len(r.Gaps(time.Second, old.Over())) != 1 {
		t.Errorf("over at %v", old.Over())
	}
	r.GPUs[0].Unread = 1
	if r.Measures(time.Second, leaks.Over()) {
		t.Error("measured by samples that could not be read")
	}
}

// What a job's own processes do on another job's GPU is kept with its own recording, proven by their cgroup alone.
func TestElsewhere(t *testing.T) {
	self, r := job100(), record.Recording{Every: time.Second}
	look := onCard(time.Second, proc(7, 20000), proc(8, 3000), proc(9, 300))
	look.Readings[0].Device.ID, look.Readings[0].Memory.Used = "GPU-1", gpu.Bytes(24000<<20)
	gone := inJob(8, 100)
	gone.Gone = true
	s := Sample{Look: look, Known: who(inJob(7, 100), gone, record.Process{PID: 9, UID: 1001, Start: time.Second, EnvJobID: 100})}
	s.AddTo(&r, self)
	s.Look.At = 2 * time.Second
	if news := s.AddTo(&r, self); news || len(r.Elsewhere) != 1 || r.Elsewhere[0].PID != 7 || r.Elsewhere[0].GPU != "GPU-1" {
		t.Errorf("news %v: %+v", news, r.Elsewhere)
	}
	for pid := 10; pid < 10+2*maxProcesses; pid++ {
		s.Look.Readings[0].Processes = append(s.Look.Readings[0].Processes, proc(pid, 10))
		s.Known[pid] = inJob(pid, 100)
	}
	if s.AddTo(&r, self); len(r.Elsewhere) != maxProcesses {
		t.Errorf("%d kept", len(r.Elsewhere))
	}
	if unplaced := (record.Recording{Every: time.Second}); true {
		if s.AddTo(&unplaced, record.Run{Job: self.Job}); len(unplaced.Elsewhere) > 0 {
			t.Error("of a job whose GPUs are not known nothing is elsewhere")
		}
	}
}

// Where Slurm tracks without cgroups, a process that may well be the job's counts as its own; on a GPU on which any
// process was, nobody says that it was not used.
func TestRecordedWithoutCgroups(t *testing.T) {
	own := record.Process{PID: 7, Start: 2 * time.Second, UID: 1001}
	for name, tt := range map[string]struct {
		change func(*record.Process, *Sample)
		want   int // MiB of the job's own
	}{
		"its user's, begun with it":  {func(*record.Process, *Sample) {}, 300},
		"by its environment too":     {func(p *record.Process, _ *Sample) { p.EnvJobID = 100 }, 300},
		"another job's by that":      {func(p *record.Process, _ *Sample) { p.EnvJobID = 101 }, 0},
		"older than the job":         {func(p *record.Process, _ *Sample) { p.Start = time.Millisecond }, 0},
		"another user's":             {func(p *record.Process, _ *Sample) { p.UID = 1002 }, 0},
		"in a container":             {func(p *record.Process, _ *Sample) { p.Container = "docker-1" }, 0},
		"a service":                  {func(p *record.Process, _ *Sample) { p.Service = "dcgm.service" }, 0},
		"another job's cgroup":       {func(p *record.Process, _ *Sample) { p.Cgroup.ID = 200 }, 0},
		"cgroups that disagree":      {func(p *record.Process, _ *Sample) { p.Cgroup.Conflict = "job 1, job 2" }, 0},
		"another job has the GPU":    {func(_ *record.Process, s *Sample) { s.Shared = true }, 0},
		"in its cgroup all the same": {func(p *record.Process, s *Sample) { p.Cgroup.ID, s.Shared = 100, true }, 300},
	} {
		t.Run(name, func(t *testing.T) {
			p, r, run := own, record.Recording{Every: time.Second}, job100()
			run.Job.UID, run.Start = 1001, &record.End{At: time.Second}
			sample := Sample{Look: onCard(3*time.Second, proc(7, 300))}
			tt.change(&p, &sample)
			sample.Known = who(p)
			sample.AddTo(&r, run)
			if g := r.GPUs[0]; int(g.Own.Bytes>>20) != tt.want || g.Unused() {
				t.Errorf("%+v", g)
			}
		})
	}
	beside, run := record.Recording{Every: time.Second}, job100()
	run.Job.UID, run.Start = 1001, &record.End{At: time.Second}
	sample := Sample{Look: onCard(3*time.Second, proc(7, 300), proc(8, 100)), Known: who(own, inJob(8, 100))}
	sample.Known[8] = record.Process{PID: 8, Start: 2 * time.Second, UID: 1001, Cgroup: slurm.Owner{ID: 100}}
	for range 2 {
		sample.AddTo(&beside, run)
		sample.Look = onCard(4*time.Second, proc(7, 300)) // the job's own has ended
	}
	if g := beside.GPUs[0]; g.Own.Bytes != 100<<20 || g.Together != 1 {
		t.Errorf("where the job's processes have its cgroup, another of its user is not the job's: %+v", g)
	}
	unread := record.GPURecording{Samples: 9, Unread: 1}
	if unread.Unused() {
		t.Error("unused, though a sample could not be read")
	}
	nameless := record.Recording{Every: time.Second}
	for at := range 3 { // /proc told nothing of it: its entry hangs
		look := onCard(time.Duration(at+1)*time.Second, proc(5, 900))
		look.Readings[0].Busy = &gpu.Busy{}
		Sample{Look: look, Known: who(record.Process{PID: 5, Why: "hangs"})}.AddTo(&nameless, job100())
	}
	if g := nameless.GPUs[0]; g.Unused() || nameless.Whole(time.Second, 3*time.Second) {
		t.Errorf("a process that nobody could read: %+v", g)
	}
	idle := record.Recording{Every: time.Second}
	Sample{Look: onCard(time.Second)}.AddTo(&idle, job100())
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
			r := record.Recording{Every: time.Second}
			for i, extra := range tt.extra {
				look := onCard(time.Duration(i+1) * time.Second)
				look.Readings[0].Memory.Used = gpu.Bytes(extra << 20)
				Sample{Look: look, Limits: record.Limits{Report: 32 << 20}}.AddTo(&r, job100())
			}
			if got := r.GPUs[0].Unlisted.Bytes >> 20; got != tt.want {
				t.Errorf("got %d MiB, want %d", got, tt.want)
			}
		})
	}
}

// It goes on where it was after it was kept and read back, as a recorder that follows another finds it.
func TestUnlistedByTwoRecorders(t *testing.T) {
	r := record.Recording{Every: time.Second}
	for i, extra := range []uint64{0, 700, 700, 700, 700} {
		look := onCard(time.Duration(i+1) * time.Second)
		look.Readings[0].Memory.Used = gpu.Bytes(extra << 20)
		text := must.Have(json.Marshal(r))(t)
		r = record.Recording{}
		must.Do(t, json.Unmarshal(text, &r))
		Sample{Look: look, Limits: record.Limits{Report: 32 << 20}}.AddTo(&r, job100())
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
			r, pid := record.Recording{Every: time.Second}, 1
			for i := range tt.samples {
				at, known := time.Duration(i+1)*time.Second*4, map[int]record.Process{}
				look := onCard(at)
				look.Readings[0].Memory.Used = gpu.Bytes(uint64(i) << 20)
				for range tt.each {
					pid++
					known[pid] = record.Process{PID: pid, Start: at - time.Second, Cgroup: slurm.Owner{ID: 100}}
					look.Readings[0].Processes = append(look.Readings[0].Processes, proc(pid, uint64(pid)))
				}
				r.Every = 4 * time.Second
				Sample{Look: look, Known: known, Limits: record.Limits{Report: 32 << 20}}.AddTo(&r, job100())
			}
			g := r.GPUs[0]
			if len(g.Processes) != maxProcesses || g.More != tt.samples*tt.each-maxProcesses || len(g.Curve.Used) > maxPoints ||
				g.Processes[0].PID < pid-maxProcesses || r.Whole(r.From, r.To) {
				t.Errorf("%d processes, the first %d of %d, %d more, %d points", len(g.Processes), g.Processes[0].PID, pid,
					g.More, len(g.Curve.Used))
			}
			if text := must.Have(json.Marshal(r))(t); len(text) > 24<<10 {
				t.Errorf("%d bytes", len(text))
			}
			if text := must.Have(json.Marshal(record.Recordings{"": r}.Bare()))(t); len(text) > 2<<10 {
				t.Errorf("%d bytes", len(text))
			}
		})
	}
}

// What the driver holds for a process is the least that two samples in a row show: memory without a process makes it
// more, and a figure that changes between two calls less, for one sample.
func TestClient(t *testing.T) {
	const mib = uint64(1) << 20
	for name, tt := range map[string]struct {
		beyond   []uint64 // MiB beyond the listed figures, a sample each
		n        int      // processes
		client   uint64
		unlisted uint64
	}{
		"another driver's share":          {[]uint64{160, 160, 160, 160, 160}, 8, 20, 0},
		"other memory came later":         {[]uint64{20, 20, 620, 620, 620, 620}, 1, 20, 600},
		"other memory from the first on":  {[]uint64{700, 700, 700, 700, 700}, 1, 0, 691},
		"memory and list do not fit once": {[]uint64{20, 20, 12, 20, 20}, 1, 20, 0},
		"no process":                      {[]uint64{20, 20, 20, 20, 20}, 0, 0, 0},
		"as measured":                     {[]uint64{72, 72, 72, 72, 72}, 8, 9, 0},
	} {
		r := record.Recording{Every: time.Second}
		for i, beyond := range append([]uint64{0}, tt.beyond...) {
			look := onCard(time.Duration(i+1) * time.Second)
			if i > 0 {
				for pid := range tt.n {
					look.Readings[0].Processes = append(look.Readings[0].Processes, proc(100+pid, 64))
				}
			}
			look.Readings[0].Memory.Used = gpu.Bytes(uint64(len(look.Readings[0].Processes))*64*mib + beyond*mib)
			Sample{Look: look, Limits: record.Limits{Report: 32 * mib, PerClient: 9 * mib}}.AddTo(&r, job100())
		}
		if g := r.GPUs[0]; g.Client != tt.client*mib || g.Unlisted.Bytes != tt.unlisted*mib {
			t.Errorf("%s: got %d MiB for a process and %d MiB without one, want %d and %d", name, g.Client/mib,
				g.Unlisted.Bytes/mib, tt.client, tt.unlisted)
		}
	}
}

// onCard returns a sample of one GPU with these processes.
func onCard(at time.Duration, listed ...gpu.Process) gpu.Snapshot {
	return gpu.Snapshot{At: at, Readings: []gpu.Reading{{Device: gpu.Device{ID: "GPU-0"}, Processes: listed}}}
}

func proc(pid int, mib uint64) gpu.Process {
	return gpu.Process{PID: pid, Memory: gpu.Bytes(mib << 20)}
}

func who(list ...record.Process) map[int]record.Process {
	all := map[int]record.Process{}
	for _, p := range list {
		all[p.PID] = p
	}
	return all
}

func inJob(pid int, job slurm.JobID) record.Process {
	return record.Process{PID: pid, Start: time.Second, UID: 1001, Cgroup: slurm.Owner{ID: job, Step: "0"}}
}
