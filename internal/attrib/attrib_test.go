package attrib

import (
	"fmt"
	"slices"
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

// scene: job 10 of alice from 100 s, alone on the GPU; earlier job 9 of alice 50–90 s on the same GPU;
// live job 11 of bob since 100 s on another GPU.
func scene(edits ...func(*Scene)) Scene {
	s := Scene{
		Self: Record{Job: 10, UID: alice, GPUs: []gpu.ID{card}, Start: at(100), Alone: true},
		Others: []Record{
			{Job: 9, UID: alice, GPUs: []gpu.ID{card}, Start: at(50), End: at(90), Alone: true},
			{Job: 11, UID: bob, GPUs: []gpu.ID{"GPU-1"}, Start: at(100), Alone: true},
		},
		GPU: card, Now: at(200), Started: true,
	}
	for _, edit := range edits {
		edit(&s)
	}
	return s
}

// by is a process of a user that started at this second.
func by(uid uint32, start float64, edits ...func(*Process)) Process {
	p := Process{PID: 70, UID: uid, Start: at(start)}
	for _, edit := range edits {
		edit(&p)
	}
	return p
}

func in(o slurm.Owner) func(*Process)    { return func(p *Process) { p.Cgroup = o } }
func env(job slurm.JobID) func(*Process) { return func(p *Process) { p.EnvJobID = job } }
func boxed(p *Process)                   { p.Container = "docker:9f" }
func apart(p *Process)                   { p.OtherPIDs = true }

// Edits of the scene.
func shared(s *Scene)    { s.Self.Alone = false }
func unstarted(s *Scene) { s.Started = false }
func another(s *Scene)   { s.Self.Job = 12 }
func alone(s *Scene)     { s.Others = nil }
func component(s *Scene) { s.Self.Het, s.Others = 9, s.Others[1:] }
func bySLUID(s *Scene)   { s.Self.SLUID, s.Others[0].SLUID, s.Others[0].Job = "sB", "sA", 10 } // 9 is a run of 10
func unseen(s *Scene)    { s.Others[1].End, s.Others[1].Unseen = at(120), true }
func alices(s *Scene)    { s.Others[1].UID = alice }
func with(all ...Record) func(*Scene) {
	return func(s *Scene) { s.Others = append(slices.Clone(s.Others), all...) }
}
func only(r Record) func(*Scene) { return func(s *Scene) { s.Others = []Record{r} } }
func seen(start float64) func(*Scene) {
	return func(s *Scene) { s.Self.Seen = []Sighting{{PID: 70, Start: at(start), Owner: slurm.Owner{ID: 10}}} }
}

// Whose a process is: the answer, the job, the evidence, and what speaks against it.
func TestDecide(t *testing.T) {
	ten, nine := slurm.Owner{ID: 10}, slurm.Owner{ID: 9}
	earlier := Record{Job: 10, UID: alice, GPUs: []gpu.ID{card}, Start: at(50), End: at(90)}
	later, undated := Record{Job: 10, UID: alice, Start: at(120)}, Record{Job: 10, UID: alice}
	ended := with(Record{Job: 12, UID: bob, GPUs: []gpu.ID{"GPU-1"}, Start: at(110), End: at(190)},
		Record{Job: 13, UID: alice, GPUs: []gpu.ID{"GPU-1"}, Start: at(110), End: at(180)})
	leader := Record{Job: 9, Het: 9, UID: alice, GPUs: []gpu.ID{"GPU-1"}, Start: at(100)}
	leaderEnded := leader
	leaderEnded.End = at(190)
	undatedRuns := func(s *Scene) { bySLUID(s); s.Self.Start, s.Others[0].Start = 0, 0 }
	for name, tt := range map[string]struct {
		p     Process
		scene Scene
		want  string
	}{
		"own cgroup":                        {by(alice, 150, in(ten)), scene(), "this job 10 cgroup"},
		"cgroup beats everything weaker":    {by(alice, 150, env(10), in(slurm.Owner{ID: 11})), scene(), "another live job 11 cgroup"},
		"cgroup of an ended job":            {by(alice, 60, in(nine)), scene(), "an ended job 9 cgroup"},
		"cgroup of a job without record":    {by(bob, 150, in(slurm.Owner{ID: 77})), scene(), "unknown 77 cgroup"},
		"SLUID of this run":                 {by(alice, 150, in(slurm.Owner{SLUID: "sB"})), scene(bySLUID), "this job 10 cgroup"},
		"SLUID of the run before":           {by(alice, 150, in(slurm.Owner{SLUID: "sA"})), scene(bySLUID), "an ended job 10 cgroup"},
		"SLUID of a run without a start":    {by(alice, 150, in(slurm.Owner{SLUID: "sA"})), scene(undatedRuns), "an ended job 10 cgroup"},
		"SLUID, of a record without one":    {by(alice, 150, in(slurm.Owner{ID: 10, SLUID: "sB"})), scene(), "this job 10 cgroup"},
		"no rival where a cgroup decides":   {by(alice, 150, in(ten)), scene(alices), "this job 10 cgroup"},
		"cgroups of two jobs prove neither": {by(alice, 150, in(slurm.Owner{Conflict: "two jobs"})), scene(), "unknown 0 none"},
		"not read":                          {Process{PID: 70, Why: "permission denied"}, scene(), "unknown 0 none"},

		// Of several runs of one job id a cgroup that names the id alone is of the run that had begun at its start.
		"this run":                       {by(alice, 150, in(ten)), scene(only(earlier)), "this job 10 cgroup"},
		"the run before":                 {by(alice, 60, in(ten)), scene(only(earlier)), "an ended job 10 cgroup"},
		"a run before, without a record": {by(alice, 60, in(ten)), scene(alone), "an ended job 10 cgroup"},
		"a later run, without a record":  {by(alice, 150, in(ten)), scene(only(earlier), another), "unknown 10 cgroup"},
		"a later run that is live":       {by(alice, 150, in(ten)), scene(only(earlier), with(later), another), "another live job 10 cgroup"},
		"a live run without a start":     {by(alice, 150, in(ten)), scene(only(earlier), with(undated), another), "another live job 10 cgroup"},
		"a start that no one recorded":   {by(alice, 20, in(ten)), scene(alone, func(s *Scene) { s.Self.Start = 0 }), "this job 10 cgroup"},

		"seen in the job's cgroup earlier": {by(alice, 150), scene(seen(150)), "this job 10 sighting"},
		"a sighting of a reused PID":       {by(alice, 150), scene(seen(120), shared), "no job 0 none"},

		"started while the job had it alone":   {by(alice, 150), scene(), "this job 10 exclusive"},
		"while an earlier one had it alone":    {by(alice, 60), scene(), "an ended job 9 exclusive"},
		"a tick before the prolog's look":      {by(alice, 99.995), scene(), "this job 10 exclusive"},
		"more than a tick before it":           {by(alice, 99.985), scene(), "no job 0 none"},
		"another user's":                       {by(bob, 50), scene(), "no job 0 none"},
		"the same user alone is no evidence":   {by(alice, 20), scene(), "no job 0 none"},
		"not exclusive without a start":        {by(alice, 150), scene(unstarted), "no job 0 none"},
		"not exclusive on a shared GPU":        {by(alice, 150), scene(shared), "no job 0 none"},
		"a live job of the user's is a rival":  {by(alice, 150), scene(alices), "this job 10 exclusive rival 11"},
		"a run not seen to end may live on":    {by(alice, 150), scene(alices, unseen), "this job 10 exclusive rival 11"},
		"an environment naming another job":    {by(alice, 150, env(777)), scene(), "this job 10 exclusive rival 777 contradicted"},
		"a third job's, and another has ended": {by(alice, 150, env(777)), scene(ended), "this job 10 exclusive rival 777 contradicted or until 3m0s"},

		"the environment is a hint":           {by(alice, 150, env(10)), scene(shared), "this job 10 environment"},
		"another user's environment":          {by(bob, 150, env(10)), scene(), "unknown 0 none"},
		"the environment of an unknown job":   {by(bob, 150, env(777)), scene(), "unknown 0 none"},
		"of the newest run of the job id":     {by(alice, 150, env(10)), scene(shared, func(s *Scene) { s.Others[0].Job = 10 }), "this job 10 environment"},
		"the environment of an ended job":     {by(alice, 60, env(9)), scene(func(s *Scene) { s.Others[0].Alone = false }), "an ended job 9 environment"},
		"of a job that had ended by then":     {by(alice, 95, env(9)), scene(), "unknown 0 none"},
		"a live job's by its environment":     {by(bob, 150, env(11)), scene(ended), "another live job 11 environment"},
		"an ended job's by its environment":   {by(bob, 150, env(12)), scene(ended), "an ended job 12 environment rival 11"},
		"no one's, of an ended job's user":    {by(bob, 150), scene(ended), "no job 0 none rival 11 or until 3m10s"},
		"no one's, of another user":           {by(1003, 150), scene(ended), "no job 0 none"},
		"no one's, in a container":            {by(1003, 150, boxed), scene(ended), "no job 0 none rival 11 or until 3m10s"},
		"no one's, older than that job":       {by(bob, 50), scene(ended), "no job 0 none"},
		"a container's user is not its own":   {by(1500, 150, boxed), scene(), "no job 0 none rival 11"},
		"nor a PID namespace's":               {by(1500, 150, apart), scene(), "no job 0 none rival 11"},
		"nor as the job's own user":           {by(alice, 150, apart), scene(), "this job 10 exclusive rival 11"},
		"nor as root":                         {by(0, 150, apart), scene(), "no job 0 none rival 11"},
		"a container older than all live":     {by(1500, 95, boxed), scene(), "no job 0 none"},
		"a container, and a run not seen end": {by(1500, 150, boxed), scene(unseen), "no job 0 none rival 11"},

		// Tasks of a heterogeneous job show the leader's id, here 9, and each component's hooks have its own, here 10.
		"the leader on another node":    {by(alice, 150, env(9)), scene(component), "this job 10 exclusive"},
		"by its environment alone":      {by(alice, 150, env(9)), scene(component, shared), "this job 10 environment"},
		"the leader lives on this node": {by(alice, 150, env(9)), scene(component, with(leader)), "this job 10 exclusive rival 9"},
		"the leader has ended here":     {by(alice, 150, env(9)), scene(component, with(leaderEnded)), "this job 10 exclusive or until 3m10s"},
		"of none of its components": {by(alice, 150, env(9)), scene(func(s *Scene) { s.Others = s.Others[1:] }),
			"this job 10 exclusive rival 9 contradicted"},
	} {
		o := Decide(tt.p, tt.scene)
		got := fmt.Sprintf("%s %d %s", o.Whose, o.Job, o.Level)
		if o.Rival != 0 {
			got += fmt.Sprintf(" rival %d", o.Rival)
		}
		if o.Contradicted {
			got += " contradicted"
		}
		if o.OtherEnd > 0 {
			got += fmt.Sprintf(" or until %v", o.OtherEnd)
		}
		if got != tt.want || (o.Whose == Unknown) != (o.Why != "") {
			t.Errorf("%s: got %q, want %q: %+v", name, got, tt.want, o)
		}
	}
}

// A job that has no record here is named as its cgroup names it.
func TestUnknownJobIsNamed(t *testing.T) {
	for want, o := range map[string]slurm.Owner{
		"in the cgroup of job 77, of which this node has no record": {ID: 77, SLUID: "sC"},
		"in the cgroup of job sC, of which this node has no record": {SLUID: "sC"},
	} {
		if got := Decide(by(bob, 150, in(o)), scene()); got.Why != want {
			t.Errorf("got %q, want %q", got.Why, want)
		}
	}
}

// What kind of holder a process is.
func TestClasses(t *testing.T) {
	for name, tt := range map[string]struct {
		p    Process
		kind gpu.Kind
		want []Class
	}{
		"a job's":                {Process{State: "S", Cgroup: slurm.Owner{ID: 1}}, gpu.Compute, nil},
		"gone, whatever else":    {Process{Gone: true, State: "T", Container: "docker"}, gpu.MPS, []Class{Phantom}},
		"stopped":                {Process{State: "T"}, gpu.Compute, []Class{Stopped}},
		"stopped by its tracer":  {Process{State: "t"}, gpu.Compute, []Class{Stopped}},
		"a zombie's threads":     {Process{State: "Z"}, gpu.Compute, []Class{Dying}},
		"in the kernel":          {Process{State: "D"}, gpu.Compute, []Class{Dying}},
		"almost gone":            {Process{State: "X"}, gpu.Compute, []Class{Dying}},
		"a client of MPS":        {Process{Name: "python"}, gpu.MPS, []Class{MPS}},
		"MPS by its program":     {Process{Exe: "/usr/bin/nvidia-cuda-mps-server"}, gpu.Compute, []Class{MPS}},
		"MPS by its name":        {Process{Name: "nvidia-cuda-mps"}, gpu.Compute, []Class{MPS}},
		"a container's":          {Process{Container: "docker"}, gpu.Compute, []Class{Container}},
		"in another namespace":   {Process{OtherPIDs: true}, gpu.Compute, []Class{Container}},
		"a service":              {Process{Service: "dcgm.service"}, gpu.Compute, []Class{System}},
		"a job's, below slurmd":  {Process{Service: "slurmd.service", Cgroup: slurm.Owner{ID: 1}}, gpu.Compute, nil},
		"several kinds together": {Process{State: "T", OtherPIDs: true}, gpu.MPS, []Class{Stopped, MPS, Container}},
	} {
		if got := Classes(tt.p, tt.kind); !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
	}
	all := Holding{Minors: []int{0, 12}, Control: true, UVM: true, Caps: true}
	want := []string{"nvidia0", "nvidia12", "nvidiactl", "nvidia-uvm", "nvidia-caps"}
	if got, none := all.Open(), (Holding{}).Open(); !slices.Equal(got, want) || none != nil {
		t.Errorf("got %q and %q, want %q and none", got, none, want)
	}
}
