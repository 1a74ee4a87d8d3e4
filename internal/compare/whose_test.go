package compare

import (
	"fmt"
	"slices"
	"testing"

	"bookend/internal/attribution"
	"bookend/internal/catalog"
	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/slurm"
)

const bob = 1002

// around is a scene: job 10 of alice from 100 s, alone on the GPU; earlier job 9 of alice 50–90 s on the same GPU;
// live job 11 of bob since 100 s on another GPU.
func around(edits ...func(*Input)) Input {
	s := Input{
		Book: attribution.Book{
			Self: attribution.Allocation{Job: 10, UID: alice, GPUs: []gpu.ID{card}, Start: at(100), Alone: true},
			Others: []attribution.Allocation{
				{Job: 9, UID: alice, GPUs: []gpu.ID{card}, Start: at(50), End: at(90), Alone: true},
				{Job: 11, UID: bob, GPUs: []gpu.ID{"GPU-1"}, Start: at(100), Alone: true},
			},
		},
		Now: record.Side{Snapshot: gpu.Snapshot{At: at(200)}}, Before: &record.Side{},
	}
	for _, edit := range edits {
		edit(&s)
	}
	return s
}

// started is a process of a user that started at this second.
func started(uid uint32, start float64, edits ...func(*record.Process)) record.Process {
	p := record.Process{PID: 70, UID: uid, Start: at(start)}
	for _, edit := range edits {
		edit(&p)
	}
	return p
}

func ofCgroup(o slurm.Owner) func(*record.Process) { return func(p *record.Process) { p.Cgroup = o } }
func env(job slurm.JobID) func(*record.Process)    { return func(p *record.Process) { p.EnvJobID = job } }
func here(p *record.Process)                       { p.EnvJobHere = "a slurmstepd of it runs on this node" }
func boxed(p *record.Process)                      { p.Container = "docker:9f" }
func apart(p *record.Process)                      { p.OtherPIDs = true }

// Edits of the scene.
func sharedRun(s *Input) { s.Book.Self.Alone = false }
func unstarted(s *Input) { s.Before = nil }
func another(s *Input)   { s.Book.Self.Job = 12 }
func alone(s *Input)     { s.Book.Others = nil }
func component(s *Input) { s.Book.Self.Het, s.Book.Others = 9, s.Book.Others[1:] }
func bySLUID(s *Input) {
	s.Book.Self.SLUID, s.Book.Others[0].SLUID, s.Book.Others[0].Job = "sB", "sA", 10
}                     // 9 is a run of 10
func unseen(s *Input) { s.Book.Others[1].End, s.Book.Others[1].Unseen = at(120), true }
func alices(s *Input) { s.Book.Others[1].UID = alice }
func among(all ...attribution.Allocation) func(*Input) {
	return func(s *Input) { s.Book.Others = append(slices.Clone(s.Book.Others), all...) }
}
func only(r attribution.Allocation) func(*Input) {
	return func(s *Input) { s.Book.Others = []attribution.Allocation{r} }
}
func seen(start float64) func(*Input) {
	return func(s *Input) {
		s.Book.Self.Seen = []record.Sighting{{PID: 70, Start: at(start), Owner: slurm.Owner{ID: 10}}}
	}
}

// Whose a process is: the answer, the job, the evidence, and what speaks against it.
func TestWhose(t *testing.T) {
	ten, nine := slurm.Owner{ID: 10}, slurm.Owner{ID: 9}
	earlier := attribution.Allocation{Job: 10, UID: alice, GPUs: []gpu.ID{card}, Start: at(50), End: at(90)}
	later, undated := attribution.Allocation{Job: 10, UID: alice, Start: at(120)}, attribution.Allocation{Job: 10, UID: alice}
	ended := among(attribution.Allocation{Job: 12, UID: bob, GPUs: []gpu.ID{"GPU-1"}, Start: at(110), End: at(190)},
		attribution.Allocation{Job: 13, UID: alice, GPUs: []gpu.ID{"GPU-1"}, Start: at(110), End: at(180)})
	unplaced := attribution.Allocation{Job: 9, Het: 9, UID: alice, Unplaced: true, Start: at(101)}
	leader := attribution.Allocation{Job: 9, Het: 9, UID: alice, GPUs: []gpu.ID{"GPU-1"}, Start: at(100)}
	leaderEnded := leader
	leaderEnded.End = at(190)
	undatedRuns := func(s *Input) { bySLUID(s); s.Book.Self.Start, s.Book.Others[0].Start = 0, 0 }
	for name, tt := range map[string]struct {
		p     record.Process
		scene Input
		want  string
	}{
		"own cgroup":                        {started(alice, 150, ofCgroup(ten)), around(), "this job 10 cgroup"},
		"cgroup beats everything weaker":    {started(alice, 150, env(10), ofCgroup(slurm.Owner{ID: 11})), around(), "another live job 11 cgroup"},
		"cgroup of an ended job":            {started(alice, 60, ofCgroup(nine)), around(), "an ended job 9 cgroup"},
		"cgroup of a job without record":    {started(bob, 150, ofCgroup(slurm.Owner{ID: 77})), around(), "unknown 77 cgroup"},
		"SLUID of this run":                 {started(alice, 150, ofCgroup(slurm.Owner{SLUID: "sB"})), around(bySLUID), "this job 10 cgroup"},
		"SLUID of the run before":           {started(alice, 150, ofCgroup(slurm.Owner{SLUID: "sA"})), around(bySLUID), "an ended job 10 cgroup"},
		"SLUID of a run without a start":    {started(alice, 150, ofCgroup(slurm.Owner{SLUID: "sA"})), around(undatedRuns), "an ended job 10 cgroup"},
		"SLUID, of a record without one":    {started(alice, 150, ofCgroup(slurm.Owner{ID: 10, SLUID: "sB"})), around(), "this job 10 cgroup"},
		"no rival where a cgroup decides":   {started(alice, 150, ofCgroup(ten)), around(alices), "this job 10 cgroup"},
		"cgroups of two jobs prove neither": {started(alice, 150, ofCgroup(slurm.Owner{Conflict: "two jobs"})), around(), "unknown 0 none"},
		"not read":                          {record.Process{PID: 70, Why: "permission denied"}, around(), "unknown 0 none"},

		// Of several runs of one job id a cgroup that names the id alone is of the run that had begun at its start.
		"this run":                       {started(alice, 150, ofCgroup(ten)), around(only(earlier)), "this job 10 cgroup"},
		"the run before":                 {started(alice, 60, ofCgroup(ten)), around(only(earlier)), "an ended job 10 cgroup"},
		"a run before, without a record": {started(alice, 60, ofCgroup(ten)), around(alone), "an ended job 10 cgroup"},
		"a later run, without a record":  {started(alice, 150, ofCgroup(ten)), around(only(earlier), another), "unknown 10 cgroup"},
		"a later run that is live":       {started(alice, 150, ofCgroup(ten)), around(only(earlier), among(later), another), "another live job 10 cgroup"},
		"a live run without a start":     {started(alice, 150, ofCgroup(ten)), around(only(earlier), among(undated), another), "another live job 10 cgroup"},
		"a start that no one recorded":   {started(alice, 20, ofCgroup(ten)), around(alone, func(s *Input) { s.Book.Self.Start = 0 }), "this job 10 cgroup"},

		"seen in the job's cgroup earlier": {started(alice, 150), around(seen(150)), "this job 10 sighting"},
		"a sighting of a reused PID":       {started(alice, 150), around(seen(120), sharedRun), "no job 0 none"},

		"started while the job had it alone":   {started(alice, 150), around(), "this job 10 exclusive"},
		"while an earlier one had it alone":    {started(alice, 60), around(), "an ended job 9 exclusive"},
		"a tick before the prolog's look":      {started(alice, 99.995), around(), "this job 10 exclusive"},
		"more than a tick before it":           {started(alice, 99.985), around(), "no job 0 none"},
		"another user's":                       {started(bob, 50), around(), "no job 0 none"},
		"the same user alone is no evidence":   {started(alice, 20), around(), "no job 0 none"},
		"not exclusive without a start":        {started(alice, 150), around(unstarted), "no job 0 none"},
		"not exclusive on a sharedRun GPU":     {started(alice, 150), around(sharedRun), "no job 0 none"},
		"a live job of the user's is a rival":  {started(alice, 150), around(alices), "this job 10 exclusive rival 11"},
		"a run not seen to end may live on":    {started(alice, 150), around(alices, unseen), "this job 10 exclusive rival 11"},
		"older than the run it names":          {started(alice, 20, env(9)), around(), "no job 0 none"},
		"an environment naming no job of here": {started(alice, 150, env(777)), around(), "this job 10 exclusive contradicted"},
		"an environment naming another job": {started(alice, 150, env(777), here), around(),
			"this job 10 exclusive rival 777 contradicted"},
		"its environment names another user's live job": {started(alice, 150, env(11)), around(),
			"this job 10 exclusive contradicted"},
		"its environment names its user's live job": {started(alice, 150, env(11)), around(alices),
			"this job 10 exclusive rival 11 contradicted"},
		"a third job's, and another has ended": {started(alice, 150, env(777), here), around(ended),
			"this job 10 exclusive rival 777 contradicted or until 3m0s"},

		"the environment is a hint":           {started(alice, 150, env(10)), around(sharedRun), "this job 10 environment"},
		"another user's environment":          {started(bob, 150, env(10)), around(), "no job 0 none rival 11"},
		"of no job of this node":              {started(1003, 150, env(777)), around(), "no job 0 none"},
		"the environment of an unknown job":   {started(bob, 150, env(777), here), around(), "unknown 0 none"},
		"of the newest run of the job id":     {started(alice, 150, env(10)), around(sharedRun, func(s *Input) { s.Book.Others[0].Job = 10 }), "this job 10 environment"},
		"the environment of an ended job":     {started(alice, 60, env(9)), around(func(s *Input) { s.Book.Others[0].Alone = false }), "an ended job 9 environment"},
		"of a job that had ended by then":     {started(alice, 95, env(9)), around(), "no job 0 none"},
		"of a later run of that job":          {started(alice, 95, env(9), here), around(), "unknown 0 none"},
		"a live job's by its environment":     {started(bob, 150, env(11)), around(ended), "another live job 11 environment"},
		"an ended job's by its environment":   {started(bob, 150, env(12)), around(ended), "an ended job 12 environment rival 11"},
		"no one's, of an ended job's user":    {started(bob, 150), around(ended), "no job 0 none rival 11 or until 3m10s"},
		"no one's, of another user":           {started(1003, 150), around(ended), "no job 0 none"},
		"no one's, in a container":            {started(1003, 150, boxed), around(ended), "no job 0 none rival 11 or until 3m10s"},
		"no one's, older than that job":       {started(bob, 50), around(ended), "no job 0 none"},
		"a container's user is not its own":   {started(1500, 150, boxed), around(), "no job 0 none rival 11"},
		"nor a PID namespace's":               {started(1500, 150, apart), around(), "no job 0 none rival 11"},
		"nor as the job's own user":           {started(alice, 150, apart), around(), "this job 10 exclusive rival 11"},
		"nor as root":                         {started(0, 150, apart), around(), "no job 0 none rival 11"},
		"a container older than all live":     {started(1500, 95, boxed), around(), "no job 0 none"},
		"a container, and a run not seen end": {started(1500, 150, boxed), around(unseen), "no job 0 none rival 11"},

		// Tasks of a heterogeneous job show the leader's id, here 9, and each component's hooks have its own, here 10.
		"the leader on another node":      {started(alice, 150, env(9)), around(component), "this job 10 exclusive"},
		"by its environment alone":        {started(alice, 150, env(9)), around(component, sharedRun), "this job 10 environment"},
		"the leader's GPUs are not known": {started(alice, 150, env(9)), around(component, sharedRun, among(unplaced)), "this job 10 environment rival 9"},
		"the leader lives on this node":   {started(alice, 150, env(9)), around(component, among(leader)), "this job 10 exclusive rival 9"},
		"the leader has ended here":       {started(alice, 150, env(9)), around(component, among(leaderEnded)), "this job 10 exclusive or until 3m10s"},
		"of none of its components": {started(alice, 150, env(9)), around(func(s *Input) { s.Book.Others = s.Book.Others[1:] }),
			"this job 10 exclusive contradicted"},
	} {
		o := tt.scene.Decide(tt.p, card)
		got := fmt.Sprintf("%s %d %s", o.Kind, o.Job, o.Level)
		if o.Rival != 0 {
			got += fmt.Sprintf(" rival %d", o.Rival)
		}
		if o.Contradicted {
			got += " contradicted"
		}
		if o.OtherEnd > 0 {
			got += fmt.Sprintf(" or until %v", o.OtherEnd)
		}
		if got != tt.want || (o.Kind == attribution.CannotTell) != (o.Why != "") {
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
		if got := around().Decide(started(bob, 150, ofCgroup(o)), card); got.Why != want {
			t.Errorf("got %q, want %q", got.Why, want)
		}
	}
}

// What kind of holder a process is.
func TestClasses(t *testing.T) {
	for name, tt := range map[string]struct {
		p    record.Process
		kind gpu.Kind
		want []record.Class
	}{
		"a job's":                {record.Process{State: "S", Cgroup: slurm.Owner{ID: 1}}, gpu.Compute, nil},
		"gone, whatever else":    {record.Process{Gone: true, State: "T", Container: "docker"}, gpu.MPS, []record.Class{record.Phantom}},
		"stopped":                {record.Process{State: "T"}, gpu.Compute, []record.Class{record.Stopped}},
		"stopped by its tracer":  {record.Process{State: "t"}, gpu.Compute, []record.Class{record.Stopped}},
		"a zombie's threads":     {record.Process{State: "Z"}, gpu.Compute, []record.Class{record.Dying}},
		"in the kernel":          {record.Process{State: "D"}, gpu.Compute, []record.Class{record.Dying}},
		"almost gone":            {record.Process{State: "X"}, gpu.Compute, []record.Class{record.Dying}},
		"a client of MPS":        {record.Process{Name: "python"}, gpu.MPS, []record.Class{record.MPS}},
		"MPS by its program":     {record.Process{Exe: "/usr/bin/nvidia-cuda-mps-server"}, gpu.Compute, []record.Class{record.MPS}},
		"MPS by its name":        {record.Process{Name: "nvidia-cuda-mps"}, gpu.Compute, []record.Class{record.MPS}},
		"a container's":          {record.Process{Container: "docker"}, gpu.Compute, []record.Class{record.Container}},
		"in another namespace":   {record.Process{OtherPIDs: true}, gpu.Compute, []record.Class{record.Container}},
		"a service":              {record.Process{Service: "dcgm.service"}, gpu.Compute, []record.Class{record.System}},
		"a job's, below slurmd":  {record.Process{Service: "slurmd.service", Cgroup: slurm.Owner{ID: 1}}, gpu.Compute, nil},
		"several kinds together": {record.Process{State: "T", OtherPIDs: true}, gpu.MPS, []record.Class{record.Stopped, record.MPS, record.Container}},
	} {
		if got := classes(tt.p, tt.kind); !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
	}
	all := record.Holding{Minors: []int{0, 12}, Control: true, UVM: true, Caps: true}
	want := []string{"nvidia0", "nvidia12", "nvidiactl", "nvidia-uvm", "nvidia-caps"}
	if got, none := all.Open(), (record.Holding{}).Open(); !slices.Equal(got, want) || none != nil {
		t.Errorf("got %q and %q, want %q and none", got, none, want)
	}
}

func minor(n int) *int { return &n }

// searched is the end of job 10 with what a search of /proc found.
func searched(now record.Side, found ...record.Holding) Input {
	now.Scan = &record.Scan{Looked: 300, Holdings: found}
	s := ending(now)
	s.Cards[0].Device.Minor = minor(3)
	return s
}

func onCard(p record.Process, minors ...int) record.Holding {
	return record.Holding{Process: p, Minors: minors, Control: true, UVM: true}
}

func onDriver(p record.Process) record.Holding { return record.Holding{Process: p, Control: true} }

// A candidate is reported with its job, unless it may be of another job as well.
func TestCandidatesOwner(t *testing.T) {
	child := record.Process{PID: 71, UID: alice, Start: at(151)}
	for name, tt := range map[string]struct {
		child record.Process
		want  slurm.JobID
	}{
		"in the job's cgroup": {in(10, child), 10}, "begun while the job had the GPU": {child, 10},
		"its environment names another": {named(424242, child), 0}, "of no job": {by(1002, child), 0},
	} {
		f := Compare(searched(on(200, record.Process{PID: 70, Gone: true}), onCard(tt.child, 3)))[0]
		if o := f.Candidates[0].Owner; (o != nil && o.Job != 0) != (tt.want != 0) || o != nil && o.Job != tt.want {
			t.Errorf("%s: %+v, want job %d", name, o, tt.want)
		}
	}
}

// Only what a cgroup proves to be the ended job's may ever be ended.
func TestProven(t *testing.T) {
	by := func(l record.Level, id slurm.JobID) *record.Owner {
		return &record.Owner{Job: id, UID: alice, Level: l}
	}
	live := record.Holder{Process: record.Process{PID: 70, UID: alice, Start: at(150)}}
	of := func(o *record.Owner) record.Holder { h := live; h.Owner = o; return h }
	dead := record.Holder{Process: record.Process{PID: 70, Gone: true}}
	unread := record.Holder{Process: record.Process{PID: 70, Why: "permission denied"}}
	for name, tt := range map[string]struct {
		f    record.Finding
		want int
	}{
		"orphan by cgroup":        {record.Finding{Code: catalog.Orphan, Holder: &live, Owner: by(record.ByCgroup, 10)}, 1},
		"orphan by sighting":      {record.Finding{Code: catalog.Orphan, Holder: &live, Owner: by(record.BySighting, 10)}, 1},
		"orphan by exclusive use": {record.Finding{Code: catalog.Orphan, Holder: &live, Owner: by(record.ByExclusive, 10)}, 0},
		"another job's":           {record.Finding{Code: catalog.Orphan, Holder: &live, Owner: by(record.ByCgroup, 11)}, 0},
		"gone":                    {record.Finding{Code: catalog.Orphan, Holder: &dead, Owner: by(record.ByCgroup, 10)}, 0},
		"not to be read":          {record.Finding{Code: catalog.Orphan, Holder: &unread, Owner: by(record.ByCgroup, 10)}, 0},
		"an exported handle's":    {record.Finding{Code: catalog.Residue, Candidates: []record.Holder{of(by(record.ByCgroup, 10))}}, 0},
		"unknown":                 {record.Finding{Code: catalog.Orphan, Holder: &live, Owner: by(record.ByCgroup, 10), Unknown: "x"}, 0},
		"a phantom's holder":      {record.Finding{Code: catalog.Phantom, Holder: &dead, Candidates: []record.Holder{of(by(record.ByCgroup, 10)), of(by(record.ByExclusive, 10)), of(nil)}}, 1},
		"found before the job":    {record.Finding{Code: catalog.Dirty, Holder: &live, Owner: by(record.ByCgroup, 10)}, 0},
	} {
		got := Proven([]record.Finding{tt.f}, slurm.Job{ID: 10, UID: alice})
		if len(got) != tt.want {
			t.Errorf("%s: %+v", name, got)
		}
		sure := record.Finding{Code: catalog.Orphan, Holder: &live, Owner: by(record.ByCgroup, 10)}
		if got := Proven([]record.Finding{tt.f, sure}, slurm.Job{ID: 10, UID: alice}); len(got) != tt.want+1 {
			t.Errorf("%s, before one that is proven: %+v", name, got)
		}
	}
}

// A process on a card that is not this job's is reported when a cgroup proves a job that was not given that card.
func TestTrespasses(t *testing.T) {
	live := attribution.Allocation{Job: 11, UID: 1002, GPUs: []gpu.ID{"GPU-2"}, Start: at(90)}
	here, over := live, live
	here.GPUs, over.End = []gpu.ID{card}, at(180)
	proven := record.Process{PID: 70, UID: 1002, Start: at(150), Cgroup: slurm.Owner{ID: 11}}
	for name, tt := range map[string]struct {
		who  record.Process
		job  attribution.Allocation
		want string // whether it is certain; empty for no finding
	}{
		"a live job that has another GPU":             {proven, live, "certain"},
		"a live job that has this GPU":                {proven, here, ""},
		"an ended job":                                {proven, over, ""},
		"a job without a record: it may have no GPUs": {record.Process{PID: 70, Cgroup: slurm.Owner{ID: 77}}, live, "unknown"},
		"by environment alone":                        {record.Process{PID: 70, UID: 1002, Start: at(150), EnvJobID: 11}, live, ""},
		"gone meanwhile":                              {record.Process{PID: 70, Gone: true}, live, ""},
		"a job of another node on this host":          {record.Process{PID: 70, UID: 1002, Start: at(150), Cgroup: slurm.Owner{ID: 11, Node: "n2"}}, live, ""},
	} {
		s := between(on(200, tt.who))
		s.Book.Others = []attribution.Allocation{tt.job}
		found, got := s.Trespasses(), ""
		for _, f := range found {
			got += map[bool]string{true: "certain", false: "unknown"}[f.Unknown == ""]
			if f.Code != catalog.Trespass || f.GPU != card || f.Owner == nil || f.Index == nil || *f.Index != 0 {
				t.Errorf("%s: %+v", name, f)
			}
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q: %+v", name, got, tt.want, found)
		}
	}
}
