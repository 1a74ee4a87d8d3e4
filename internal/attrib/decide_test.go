package attrib

import (
	"testing"
	"time"

	"bookend/internal/gpu"
	"bookend/internal/slurm"
)

const (
	alice = 1001
	bob   = 1002
	card  = gpu.ID("GPU-0")
)

func at(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

// scene: job 10 of alice from 100 s, alone on the card; earlier job 9 of alice 50–90 s on the same card;
// live job 11 of bob since 100 s on another card.
func scene() Scene {
	return Scene{
		Self: Record{Job: 10, UID: alice, GPUs: []gpu.ID{card}, Start: at(100), Alone: true},
		Others: []Record{
			{Job: 9, UID: alice, GPUs: []gpu.ID{card}, Start: at(50), End: at(90), Alone: true},
			{Job: 11, UID: bob, GPUs: []gpu.ID{"GPU-1"}, Start: at(100), Alone: true},
		},
		GPU: card, Now: at(200), Started: true,
	}
}

// runsBySLUID makes job 9 an earlier run of job 10.
func runsBySLUID(s *Scene) {
	s.Self.SLUID, s.Others[0].SLUID, s.Others[0].Job = "sB", "sA", 10
}

func TestDecide(t *testing.T) {
	orphan := Process{PID: 70, UID: alice, Start: at(150)}
	tests := []struct {
		name  string
		p     Process
		edit  func(*Scene)
		whose Whose
		job   slurm.JobID
		level Level
		rival slurm.JobID
	}{
		{"own cgroup", Process{PID: 70, UID: alice, Start: at(150), Cgroup: slurm.Owner{ID: 10}}, nil, ThisJob, 10,
			ByCgroup, 0},
		{"cgroup beats everything weaker", Process{PID: 70, UID: alice, Start: at(150), EnvJobID: 10,
			Cgroup: slurm.Owner{ID: 11}}, nil, LiveJob, 11, ByCgroup, 0},
		{"cgroup of an ended job", Process{PID: 70, UID: alice, Start: at(60), Cgroup: slurm.Owner{ID: 9}}, nil,
			EndedJob, 9, ByCgroup, 0},
		{"cgroup of a job without record is never foreign",
			Process{PID: 70, UID: bob, Start: at(150), Cgroup: slurm.Owner{ID: 77}}, nil, Unknown, 77, ByCgroup, 0},
		{"same job id, cgroup by SLUID of another run",
			Process{PID: 70, UID: alice, Start: at(60), Cgroup: slurm.Owner{SLUID: "sAAAAAAAAAAAAA"}},
			func(s *Scene) {
				s.Self.SLUID = "sBBBBBBBBBBBBB"
				s.Others[0].Job, s.Others[0].SLUID = 10, "sAAAAAAAAAAAAA"
			}, EndedJob, 10, ByCgroup, 0},
		{"cgroup by SLUID of this run of the job id", Process{PID: 70, UID: alice, Start: at(150),
			Cgroup: slurm.Owner{SLUID: "sB"}}, runsBySLUID, ThisJob, 10, ByCgroup, 0},
		{"cgroup by SLUID of the run before, whenever it started", Process{PID: 70, UID: alice, Start: at(150),
			Cgroup: slurm.Owner{SLUID: "sA"}}, runsBySLUID, EndedJob, 10, ByCgroup, 0},
		{"cgroup by SLUID, of a run whose start is not on record",
			Process{PID: 70, UID: alice, Start: at(150), Cgroup: slurm.Owner{SLUID: "sA"}},
			func(s *Scene) { runsBySLUID(s); s.Self.Start, s.Others[0].Start = 0, 0 }, EndedJob, 10, ByCgroup, 0},
		{"cgroup by SLUID and id, of a record without a SLUID", Process{PID: 70, UID: alice, Start: at(150),
			Cgroup: slurm.Owner{ID: 10, SLUID: "sB"}}, nil, ThisJob, 10, ByCgroup, 0},
		{"seen in the job's cgroup earlier", orphan, func(s *Scene) {
			s.Self.Seen = []Sighting{{PID: 70, Start: at(150), Owner: slurm.Owner{ID: 10}}}
		}, ThisJob, 10, BySighting, 0},
		{"sighting of a reused pid does not count", orphan, func(s *Scene) {
			s.Self.Alone = false
			s.Self.Seen = []Sighting{{PID: 70, Start: at(120), Owner: slurm.Owner{ID: 10}}}
		}, NoJob, 0, None, 0},
		{"started while the job had the GPU alone", orphan, nil, ThisJob, 10, ByExclusive, 0},
		{"started while an earlier job had the GPU alone", Process{PID: 70, UID: alice, Start: at(60)}, nil, EndedJob,
			9, ByExclusive, 0},
		{"start cut down to a tick just before the prolog's look", Process{PID: 70, UID: alice, Start: at(99.995)}, nil,
			ThisJob, 10, ByExclusive, 0},
		{"a start more than a tick before the prolog's look", Process{PID: 70, UID: alice, Start: at(99.985)}, nil,
			NoJob, 0, None, 0},
		{"another user's process is not the job's", Process{PID: 70, UID: bob, Start: at(50)}, nil, NoJob, 0, None, 0},
		{"same user alone is no evidence", Process{PID: 70, UID: alice, Start: at(20)}, nil, NoJob, 0, None, 0},
		{"no exclusive evidence without a start on record", orphan, func(s *Scene) { s.Started = false }, NoJob, 0,
			None, 0},
		{"no exclusive evidence on a shared GPU", orphan, func(s *Scene) { s.Self.Alone = false }, NoJob, 0, None, 0},
		{"the environment is a hint", Process{PID: 70, UID: alice, Start: at(150), EnvJobID: 10},
			func(s *Scene) { s.Self.Alone = false }, ThisJob, 10, ByEnvironment, 0},
		{"the environment of another user proves nothing", Process{PID: 70, UID: bob, Start: at(150), EnvJobID: 10},
			nil, Unknown, 0, None, 0},
		{"the environment of a job without a record is unknown, not no one's",
			Process{PID: 70, UID: bob, Start: at(150), EnvJobID: 777}, nil, Unknown, 0, None, 0},
		{"the environment of the newest run of the job id", Process{PID: 70, UID: alice, Start: at(150), EnvJobID: 10},
			func(s *Scene) {
				s.Self.Alone, s.Others[0].Job = false, 10
			}, ThisJob, 10, ByEnvironment, 0},
		{"the environment of an ended job", Process{PID: 70, UID: alice, Start: at(60), EnvJobID: 9},
			func(s *Scene) { s.Others[0].Alone = false }, EndedJob, 9, ByEnvironment, 0},
		{"its environment names an ended job, but it started later: a run without a record may be live",
			Process{PID: 70, UID: alice, Start: at(95), EnvJobID: 9}, nil, Unknown, 0, None, 0},
		{"an environment that names another job is a rival",
			Process{PID: 70, UID: alice, Start: at(150), EnvJobID: 777}, nil, ThisJob, 10, ByExclusive, 777},
		{"a live job of the same user is a rival", orphan, func(s *Scene) { s.Others[1].UID = alice }, ThisJob, 10,
			ByExclusive, 11},
		{"no rival where a cgroup decides", Process{PID: 70, UID: alice, Start: at(150), Cgroup: slurm.Owner{ID: 10}},
			func(s *Scene) { s.Others[1].UID = alice }, ThisJob, 10, ByCgroup, 0},
		{"in a container its user need not be who started it",
			Process{PID: 70, UID: 1500, Start: at(150), Container: "docker:9f"}, nil, NoJob, 0, None, 11},
		{"nor in a PID namespace", Process{PID: 70, UID: 1500, Start: at(150), OtherPIDs: true}, nil, NoJob, 0, None,
			11},
		{"nor as the job's own user", Process{PID: 70, UID: alice, Start: at(150), OtherPIDs: true}, nil, ThisJob, 10,
			ByExclusive, 11},
		{"nor as root", Process{PID: 70, Start: at(150), OtherPIDs: true}, nil, NoJob, 0, None, 11},
		{"a container older than every live job", Process{PID: 70, UID: 1500, Start: at(95), Container: "docker:9f"},
			nil, NoJob, 0, None, 0},
		{"a container, and a run that was not seen to end",
			Process{PID: 70, UID: 1500, Start: at(150), Container: "docker:9f"},
			func(s *Scene) { s.Others[1].End, s.Others[1].Unseen = at(120), true }, NoJob, 0, None, 11},
		{"a run of its user that was not seen to end may live on", orphan,
			func(s *Scene) { s.Others[1].UID, s.Others[1].End, s.Others[1].Unseen = alice, at(120), true }, ThisJob, 10,
			ByExclusive, 11},
		{"another user's process outside of containers", Process{PID: 70, UID: 1500, Start: at(150)}, nil, NoJob, 0,
			None, 0},
		{"cgroups of two jobs prove neither", Process{PID: 70, UID: alice, Start: at(150),
			Cgroup: slurm.Owner{Conflict: "cgroups name two jobs, 1 and 2"}}, nil, Unknown, 0, None, 0},
		{"an unread process is unknown", Process{PID: 70, Why: "permission denied"}, nil, Unknown, 0, None, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := scene()
			if tt.edit != nil {
				tt.edit(&s)
			}
			got := Decide(tt.p, s)
			if got.Whose != tt.whose || got.Job != tt.job || got.Level != tt.level || got.Rival != tt.rival {
				t.Errorf("Decide = %+v, want %s job %d by %s, rival %d", got, tt.whose, tt.job, tt.level, tt.rival)
			}
			if (got.Whose == Unknown) != (got.Why != "") {
				t.Errorf("unknown and its reason must come together: %+v", got)
			}
		})
	}
}

// Of several runs of one job id a cgroup that names the id alone is of the run that had begun when the process started.
func TestRunsOfOneJob(t *testing.T) {
	in := func(start time.Duration) Process {
		return Process{PID: 70, UID: alice, Start: start, Cgroup: slurm.Owner{ID: 10}}
	}
	earlier := Record{Job: 10, UID: alice, GPUs: []gpu.ID{card}, Start: at(50), End: at(90)}
	for name, tt := range map[string]struct {
		p      Process
		others []Record
		edit   func(*Scene)
		want   Whose
	}{
		"this run":                       {in(at(150)), []Record{earlier}, nil, ThisJob},
		"the run before":                 {in(at(60)), []Record{earlier}, nil, EndedJob},
		"a run before, without a record": {in(at(60)), nil, nil, EndedJob},
		"a later run, without a record": {in(at(150)), []Record{earlier}, func(s *Scene) { s.Self.Job = 12 },
			Unknown},
		"a later run that is live": {in(at(150)), []Record{earlier, {Job: 10, UID: alice, Start: at(120)}},
			func(s *Scene) { s.Self.Job = 12 }, LiveJob},
		"a live run without a known start": {in(at(150)), []Record{earlier, {Job: 10, UID: alice}},
			func(s *Scene) { s.Self.Job = 12 }, LiveJob},
		"a start that no one has recorded": {in(at(20)), nil, func(s *Scene) { s.Self.Start = 0 }, ThisJob},
	} {
		s := scene()
		s.Others = tt.others
		if tt.edit != nil {
			tt.edit(&s)
		}
		if got := Decide(tt.p, s); got.Whose != tt.want {
			t.Errorf("%s: %+v, want %s", name, got, tt.want)
		}
	}
}

// Whose process may be another ended job's, and when that ended: it may be on its way out.
func TestOtherEnd(t *testing.T) {
	ended := Record{Job: 12, UID: bob, GPUs: []gpu.ID{"GPU-1"}, Start: at(110), End: at(190)}
	for name, tt := range map[string]struct {
		p     Process
		whose Whose
		want  time.Duration
	}{
		"no one's, of that job's user": {Process{PID: 70, UID: bob, Start: at(150)}, NoJob, at(190)},
		"no one's, of another user":    {Process{PID: 70, UID: 1003, Start: at(150)}, NoJob, 0},
		"no one's, in a container": {Process{PID: 70, UID: 1003, Start: at(150),
			Container: "docker:9f"}, NoJob, at(190)},
		"no one's, older than that job": {Process{PID: 70, UID: bob, Start: at(50)}, NoJob, 0},
		"another job's by its environment alone": {Process{PID: 70, UID: bob, Start: at(150), EnvJobID: 11}, LiveJob,
			0},
		"exclusive use, a third job's environment": {Process{PID: 70, UID: alice, Start: at(150), EnvJobID: 777},
			ThisJob, at(180)},
		"that very job's, by its own environment": {Process{PID: 70, UID: bob, Start: at(150), EnvJobID: 12}, EndedJob,
			0},
	} {
		s := scene()
		s.Others = append(s.Others, ended,
			Record{Job: 13, UID: alice, GPUs: []gpu.ID{"GPU-1"}, Start: at(110), End: at(180)})
		if got := Decide(tt.p, s); got.Whose != tt.whose || got.OtherEnd != tt.want {
			t.Errorf("%s: %+v, want %s, %v", name, got, tt.whose, tt.want)
		}
	}
}

// Tasks of a heterogeneous job show the leader's id in their environment, and each component's hooks have its own: they
// belong together, here job 9 and its component 10.
func TestComponents(t *testing.T) {
	task := Process{PID: 70, UID: alice, Start: at(150), EnvJobID: 9}
	component := func(s *Scene) { s.Self.Het = 9 }
	leader := Record{Job: 9, Het: 9, UID: alice, GPUs: []gpu.ID{"GPU-1"}, Start: at(100)}
	for name, tt := range map[string]struct {
		edit         func(*Scene)
		whose        Whose
		job          slurm.JobID
		rival        slurm.JobID
		otherwiseEnd time.Duration
	}{
		"the leader on another node": {component, ThisJob, 10, 0, 0},
		"by its environment alone":   {func(s *Scene) { component(s); s.Self.Alone = false }, ThisJob, 10, 0, 0},
		"the leader lives on this node": {func(s *Scene) { component(s); s.Others = append(s.Others, leader) }, ThisJob,
			10, 9, 0},
		"the leader has ended on this node": {func(s *Scene) {
			component(s)
			ended := leader
			ended.End = at(190)
			s.Others = append(s.Others, ended)
		}, ThisJob, 10, 0, at(190)},
		"of a job that is none of its components": {nil, ThisJob, 10, 9, 0},
	} {
		s := scene()
		s.Others = s.Others[1:]
		if tt.edit != nil {
			tt.edit(&s)
		}
		got := Decide(task, s)
		if got.Whose != tt.whose || got.Job != tt.job || got.Rival != tt.rival || got.OtherEnd != tt.otherwiseEnd {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// A job that has no record here is named as its cgroup names it.
func TestUnknownJobIsNamed(t *testing.T) {
	for want, o := range map[string]slurm.Owner{
		"in the cgroup of job 77, of which this node has no record": {ID: 77, SLUID: "sC"},
		"in the cgroup of job sC, of which this node has no record": {SLUID: "sC"},
	} {
		if got := Decide(Process{PID: 70, UID: bob, Start: at(150), Cgroup: o}, scene()); got.Why != want {
			t.Errorf("%q, want %q", got.Why, want)
		}
	}
}

func TestWeaker(t *testing.T) {
	levels := []Level{None, ByEnvironment, ByExclusive, BySighting, ByCgroup}
	for i, l := range levels {
		for k, than := range levels {
			if got := l.Weaker(than); got != (i < k) {
				t.Errorf("%s weaker than %s: %v", l, than, got)
			}
		}
	}
}
