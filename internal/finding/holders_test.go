package finding

import (
	"slices"
	"strings"
	"testing"
	"time"

	"bookend/internal/attrib"
	"bookend/internal/code"
	"bookend/internal/gpu"
	"bookend/internal/settle"
	"bookend/internal/slurm"
)

func minor(n int) *int { return &n }

// searched is the end of job 10 with what a search of /proc found.
func searched(now Side, found ...attrib.Holding) Scene {
	now.Scan = &attrib.Scan{Looked: 300, Holdings: found}
	s := ending(now)
	s.Cards[0].Device.Minor = minor(3)
	return s
}

func onCard(p attrib.Process, minors ...int) attrib.Holding {
	return attrib.Holding{Process: p, Minors: minors, Control: true, UVM: true}
}

func onDriver(p attrib.Process) attrib.Holding { return attrib.Holding{Process: p, Control: true} }

// Who may hold a dead process's memory: whoever has this very card open, and why that may not drain.
func TestPhantomHolder(t *testing.T) {
	child := attrib.Process{PID: 71, UID: alice, Start: at(151), Name: "python"}
	edited := func(change func(*attrib.Process)) attrib.Process { p := child; change(&p); return p }
	now := side(at(200), settle.Flat, reading(20*gib+9*mib, listed(70, 20*gib)), attrib.Process{PID: 70, Gone: true})
	for _, tt := range []struct {
		name  string
		found []attrib.Holding
		edit  func(*Scene)
		pids  []int
		level attrib.Level
		doubt string // none: may drain
	}{
		{"the forked child", []attrib.Holding{onCard(child, 3)}, nil, []int{71}, attrib.ByExclusive, ""},
		{"the forked child, in the job's cgroup still", []attrib.Holding{onCard(edited(func(p *attrib.Process) { p.Cgroup.ID = 10 }), 3)}, nil, []int{71}, attrib.ByCgroup, ""},
		{"nobody is found", nil, nil, nil, attrib.ByExclusive, ""},
		{"on another card", []attrib.Holding{onCard(child, 1)}, nil, nil, attrib.ByExclusive, ""},
		{"on the driver alone", []attrib.Holding{onDriver(child)}, nil, nil, attrib.ByExclusive, ""},
		{"four workers", []attrib.Holding{onCard(child, 3), onCard(edited(func(p *attrib.Process) { p.PID = 72 }), 3)}, nil, []int{71, 72}, attrib.ByExclusive, ""},
		{"the weakest evidence counts", []attrib.Holding{onCard(edited(func(p *attrib.Process) { p.Cgroup.ID = 10 }), 3), onCard(edited(func(p *attrib.Process) { p.PID = 72 }), 3)},
			nil, []int{71, 72}, attrib.ByExclusive, ""},
		{"the weakest evidence counts, whichever comes first", []attrib.Holding{onCard(child, 3), onCard(edited(func(p *attrib.Process) { p.PID, p.Cgroup.ID = 72, 10 }), 3)},
			nil, []int{71, 72}, attrib.ByExclusive, ""},
		{"root's, in the job's cgroup", []attrib.Holding{onCard(edited(func(p *attrib.Process) { p.UID, p.Cgroup.ID = 0, 10 }), 3)}, nil, []int{71}, attrib.ByCgroup, ""},
		{"a service of the node", []attrib.Holding{onCard(edited(func(p *attrib.Process) { p.Service, p.Start = "dcgm.service", at(20) }), 3)}, nil, nil, attrib.ByExclusive, ""},
		{"a service that started during the job", []attrib.Holding{onCard(edited(func(p *attrib.Process) { p.UID, p.Service = 0, "infer.service" }), 3)}, nil, []int{71}, "", "service"},
		{"the MPS daemon", []attrib.Holding{onCard(edited(func(p *attrib.Process) { p.Exe = "/usr/bin/nvidia-cuda-mps-control" }), 3)}, nil, nil, attrib.ByExclusive, ""},
		{"a live job's process", []attrib.Holding{onCard(edited(func(p *attrib.Process) { p.UID, p.Cgroup.ID = 1002, 11 }), 3)},
			func(s *Scene) {
				s.Others = []attrib.Record{{Job: 11, UID: 1002, GPUs: []gpu.ID{"GPU-1"}, Start: at(90)}}
			}, []int{71}, "", "live job"},
		{"a job that ended during the watch", []attrib.Holding{onCard(edited(func(p *attrib.Process) { p.UID, p.Cgroup.ID = 1002, 11 }), 3)},
			func(s *Scene) {
				s.Others = []attrib.Record{{Job: 11, UID: 1002, GPUs: []gpu.ID{"GPU-1"}, Start: at(90), End: at(199)}}
				s.Now.Curves[card] = settle.Curve{State: settle.Flat, Span: 5 * time.Second}
			}, []int{71}, attrib.ByCgroup, "ended while"},
		{"a job without a record", []attrib.Holding{onCard(edited(func(p *attrib.Process) { p.Cgroup.ID = 99 }), 3)}, nil, []int{71}, "", "could not be told"},
		{"a process that is ending", []attrib.Holding{onCard(edited(func(p *attrib.Process) { p.State = "D" }), 3)}, nil, []int{71}, attrib.ByExclusive, "may be ending"},
		{"the search was cut short", nil, func(s *Scene) { s.Now.Scan.Partial = "out of time" }, nil, "", "out of time"},
		{"nobody searched", nil, func(s *Scene) { s.Now.Scan = nil }, nil, "", "nobody searched"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := searched(now, tt.found...)
			if tt.edit != nil {
				tt.edit(&s)
			}
			expectOne(t, s, code.Phantom, tt.pids, tt.level, tt.doubt)
		})
	}
}

// A start does not wait for the memory of who has just ended: that it is who has the card open that holds it is a
// guess.
func TestPhantomAtTheStart(t *testing.T) {
	child := attrib.Process{PID: 71, UID: alice, Start: at(60), Cgroup: slurm.Owner{ID: 9}}
	now := side(at(100), settle.Flat, reading(2*gib+9*mib, listed(70, 2*gib)), attrib.Process{PID: 70, Gone: true})
	s := searched(now, onCard(child, 3))
	s.Before, s.Job.Context = nil, slurm.Prolog
	s.Others = []attrib.Record{{Job: 9, UID: alice, GPUs: []gpu.ID{card}, Start: at(50), End: at(90)}}
	found := Compare(s)
	if len(found) != 1 || found[0].Owner == nil || found[0].Owner.Job != 9 || found[0].Owner.Level != attrib.ByExclusive {
		t.Errorf("found %+v", found)
	}
	if len(found) == 1 && (len(found[0].Candidates) != 1 || found[0].Candidates[0].Owner.Level != attrib.ByCgroup) {
		t.Errorf("whose the candidate is remains proven: %+v", found[0].Candidates)
	}
}

// A dead PID that the start listed too is inherited. By its number alone no owner is surer than by exclusive use.
func TestPhantomInherited(t *testing.T) {
	gone := attrib.Process{PID: 70, Gone: true}
	s := ending(side(at(200), settle.Flat, reading(2*gib+9*mib, listed(70, 2*gib)), gone))
	before := side(at(100), settle.Flat, reading(2*gib+9*mib, listed(70, 2*gib)), gone)
	s.Before = &before
	s.Left = []Finding{{Code: code.Orphan, GPU: card, Bytes: gpu.Bytes(2 * gib), Holder: &Holder{Process: orphan}, Owner: &Owner{Job: 9, Level: attrib.ByCgroup}}}
	found := Compare(s)
	if len(found) != 1 || found[0].Code != code.Dirty || found[0].Owner == nil || *found[0].Owner != (Owner{Job: 9, Level: attrib.ByExclusive}) {
		t.Errorf("found %+v", found)
	}
}

// Who may hold memory that no process is listed for: whoever has the driver open and nothing that explains why.
func TestExportedCandidates(t *testing.T) {
	keeper := attrib.Process{PID: 71, UID: alice, Start: at(151), Name: "keeper"}
	other := attrib.Process{PID: 72, UID: 1002, Start: at(20), Name: "monitor"}
	now := side(at(200), settle.Flat, reading(20*gib))
	for _, tt := range []struct {
		name  string
		found []attrib.Holding
		edit  func(*Scene)
		pids  []int
		level attrib.Level
		doubt string
	}{
		{"one has the driver open", []attrib.Holding{onDriver(keeper)}, nil, []int{71}, attrib.ByExclusive, ""},
		{"an innocent second one", []attrib.Holding{onDriver(keeper), onDriver(other)}, nil, []int{71, 72}, attrib.ByExclusive, "which one does cannot be told"},
		{"another user's that came with the job", []attrib.Holding{onDriver(keeper), onDriver(attrib.Process{PID: 72, UID: 1002, Start: at(160)})}, nil, []int{71, 72}, "", "which one does cannot be told"},
		{"root's", []attrib.Holding{onDriver(attrib.Process{PID: 72, Start: at(20)})}, nil, []int{72}, "", "root's"},
		{"one on this card that is not listed", []attrib.Holding{onCard(keeper, 3)}, nil, []int{71}, attrib.ByExclusive, ""},
		{"one with another card for a reason", []attrib.Holding{onCard(keeper, 1)}, nil, nil, attrib.ByExclusive, ""},
		{"one that is listed on a neighbour", []attrib.Holding{onDriver(keeper)}, func(s *Scene) {
			s.Now.Neighbours = &gpu.Snapshot{Readings: []gpu.Reading{{Device: gpu.Device{ID: "GPU-1"}, Processes: []gpu.Process{listed(71, gib)}}}}
		}, nil, attrib.ByExclusive, ""},
		{"another user's with another GPU", []attrib.Holding{onCard(other, 1)}, nil, nil, "", "for another reason"},
		{"another run's of the job", []attrib.Holding{onDriver(attrib.Process{PID: 71, Start: at(60), UID: alice, Cgroup: slurm.Owner{SLUID: "sA"}})}, func(s *Scene) {
			s.Job.SLUID, s.Self.SLUID = "sB", "sB"
			s.Others = []attrib.Record{{Job: 10, SLUID: "sA", UID: alice, GPUs: []gpu.ID{"GPU-1"}, Start: at(50), End: at(90)}}
		}, []int{71}, "", ""},
		{"the job's, of a record without a SLUID", []attrib.Holding{onDriver(attrib.Process{PID: 71, Start: at(60), UID: alice, Cgroup: slurm.Owner{ID: 10}})}, func(s *Scene) {
			s.Job.SLUID, s.Self.SLUID = "sB", "sB"
			s.Others = []attrib.Record{{Job: 10, UID: alice, GPUs: []gpu.ID{"GPU-1"}, Start: at(50), End: at(90)}}
		}, []int{71}, attrib.ByExclusive, ""},
		{"another user's process, and nobody else", []attrib.Holding{onDriver(other)}, nil, []int{72}, "", ""},
		{"a live job's process", []attrib.Holding{onDriver(keeper)}, func(s *Scene) {
			s.Others = []attrib.Record{{Job: 11, UID: alice, GPUs: []gpu.ID{"GPU-1"}, Start: at(90)}}
			s.Now.Scan.Holdings[0].Cgroup = slurm.Owner{ID: 11}
		}, []int{71}, "", "live job"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := searched(now, tt.found...)
			if tt.edit != nil {
				tt.edit(&s)
			}
			expectOne(t, s, code.Residue, tt.pids, tt.level, tt.doubt)
		})
	}
}

func expectOne(t *testing.T, s Scene, want code.Code, pids []int, level attrib.Level, doubt string) {
	t.Helper()
	found := Compare(s)
	if len(found) != 1 || found[0].Code != want {
		t.Fatalf("Compare = %+v, want one %s", found, want)
	}
	f := found[0]
	var got []int
	for _, c := range f.Candidates {
		got = append(got, c.PID)
		if len(c.Open) == 0 || c.Memory.Known() {
			t.Errorf("candidate %+v: want what it has open, and no bytes", c)
		}
		if slices.Contains(c.Classes, "") || slices.Contains(c.Classes, attrib.Exported) != (want == code.Residue) {
			t.Errorf("candidate of %s: classes %q", want, c.Classes)
		}
	}
	if !slices.Equal(got, pids) {
		t.Errorf("candidates %v, want %v", got, pids)
	}
	if got := levelOf(f.Owner); got != level {
		t.Errorf("owner %+v, want by %q", f.Owner, level)
	}
	all := strings.Join(f.Doubts, "; ")
	if (all == "") != (doubt == "") || !strings.Contains(all, doubt) {
		t.Errorf("doubts %q, want %q", all, doubt)
	}
	if f.Searched != (s.Now.Scan != nil && s.Now.Scan.Partial == "") {
		t.Errorf("searched %v", f.Searched)
	}
}

// levelOf is empty for nobody.
func levelOf(o *Owner) attrib.Level {
	if o == nil {
		return ""
	}
	return o.Level
}

// A second end of a run looks at a GPU that others may have had since the first: it adds no blame to what that one
// found.
func TestSecondEndBlamesByTheFirst(t *testing.T) {
	left := func(f Finding) Finding {
		f.GPU, f.Owner = card, &Owner{Job: 10, UID: alice, Level: attrib.ByExclusive}
		return f
	}
	residue := left(Finding{Code: code.Residue, Bytes: gpu.Bytes(20 * gib)})
	phantom := left(Finding{Code: code.Phantom, Bytes: gpu.Bytes(20 * gib), Holder: &Holder{Process: attrib.Process{PID: 70, Gone: true}}})
	under70 := reading(20*gib+9*mib, listed(70, 20*gib))
	for name, tt := range map[string]struct {
		now  gpu.Reading
		left []Finding
		end  float64
		want slurm.JobID
	}{
		"memory, the first end":                     {reading(20 * gib), nil, 0, 10},
		"memory that the first end did not find":    {reading(20 * gib), nil, 200, 0},
		"memory that the first end found":           {reading(20 * gib), []Finding{residue}, 200, 0},
		"a dead PID, the first end":                 {under70, nil, 0, 10},
		"a dead PID that the first end did not see": {under70, nil, 200, 0},
		"a dead PID that the first end saw":         {under70, []Finding{phantom}, 200, 10},
	} {
		s := searched(side(at(300), settle.Flat, tt.now, attrib.Process{PID: 70, Gone: true}))
		s.Self.End, s.Left = at(tt.end), tt.left
		found := Compare(s)
		if len(found) != 1 || ownerOf(found[0]) != tt.want {
			t.Errorf("%s: %+v, want job %d", name, found, tt.want)
		}
	}
}

// A process that two jobs could have started is blamed on neither: its environment names another job than the one that
// had the GPU alone, or another job of its user, which has ended too, ran when it started.
func TestAmbiguousEvidenceBlamesNeither(t *testing.T) {
	now := map[string]Side{
		"listed":    side(at(200), settle.Flat, reading(20*gib+9*mib, listed(70, 20*gib))),
		"a phantom": side(at(200), settle.Flat, reading(20*gib+9*mib, listed(69, 20*gib)), attrib.Process{PID: 69, Gone: true}),
		"memory":    side(at(200), settle.Flat, reading(20*gib)),
	}
	ended := []attrib.Record{{Job: 11, UID: alice, GPUs: []gpu.ID{"GPU-1"}, Start: at(140), End: at(160)}}
	for name, tt := range map[string]struct {
		env    slurm.JobID
		others []attrib.Record
		want   slurm.JobID
		doubts bool
	}{
		"no mark":                     {0, nil, 10, false},
		"this job's":                  {10, nil, 10, false},
		"another job's":               {77, nil, 0, true},
		"no mark, and another ended":  {0, ended, 0, false},
		"its mark, and another ended": {10, ended, 10, false},
	} {
		for what, now := range now {
			p := orphan
			p.EnvJobID = tt.env
			s := searched(now, onCard(p, 3))
			s.Now.Processes[70], s.Others = p, tt.others
			found := Compare(s)
			if len(found) != 1 || ownerOf(found[0]) != tt.want || (len(found[0].Doubts) > 0) != tt.doubts {
				t.Errorf("%s, %s: %+v, want job %d", what, name, found, tt.want)
			}
		}
	}
}

func TestClassesOfHolders(t *testing.T) {
	holders := map[string]attrib.Process{
		"orphan stopped":   {PID: 70, UID: alice, Start: at(150), State: "T"},
		"orphan dying":     {PID: 70, UID: alice, Start: at(150), State: "Z"},
		"orphan container": {PID: 70, UID: alice, Start: at(150), Container: "docker"},
		"orphan mps":       {PID: 70, UID: alice, Start: at(150), Name: "nvidia-cuda-mps", Exe: "/usr/bin/nvidia-cuda-mps-server"},
		"container":        {PID: 70, UID: 1002, Start: at(150), OtherPIDs: true},
	}
	for want, p := range holders {
		found := Compare(ending(side(at(200), settle.Flat, reading(20*gib+9*mib, listed(70, 20*gib)), p)))
		if len(found) != 1 {
			t.Fatalf("%s: %+v", want, found)
		}
		var words []string
		for _, c := range found[0].Holder.Classes {
			words = append(words, string(c))
		}
		if got := strings.Join(words, " "); got != want {
			t.Errorf("classes %q, want %q", got, want)
		}
	}
}

// Only what a cgroup proves to be the ended job's may ever be ended.
func TestProven(t *testing.T) {
	by := func(l attrib.Level, id slurm.JobID) *Owner { return &Owner{Job: id, UID: alice, Level: l} }
	live := Holder{Process: attrib.Process{PID: 70, UID: alice, Start: at(150)}}
	of := func(o *Owner) Holder { h := live; h.Owner = o; return h }
	dead := Holder{Process: attrib.Process{PID: 70, Gone: true}}
	unread := Holder{Process: attrib.Process{PID: 70, Why: "permission denied"}}
	for name, tt := range map[string]struct {
		f    Finding
		want int
	}{
		"orphan by cgroup":        {Finding{Code: code.Orphan, Holder: &live, Owner: by(attrib.ByCgroup, 10)}, 1},
		"orphan by sighting":      {Finding{Code: code.Orphan, Holder: &live, Owner: by(attrib.BySighting, 10)}, 1},
		"orphan by exclusive use": {Finding{Code: code.Orphan, Holder: &live, Owner: by(attrib.ByExclusive, 10)}, 0},
		"orphan by environment":   {Finding{Code: code.Orphan, Holder: &live, Owner: by(attrib.ByEnvironment, 10)}, 0},
		"another job's":           {Finding{Code: code.Orphan, Holder: &live, Owner: by(attrib.ByCgroup, 11)}, 0},
		"nobody's":                {Finding{Code: code.Stray, Holder: &live}, 0},
		"gone":                    {Finding{Code: code.Orphan, Holder: &dead, Owner: by(attrib.ByCgroup, 10)}, 0},
		"not to be read":          {Finding{Code: code.Orphan, Holder: &unread, Owner: by(attrib.ByCgroup, 10)}, 0},
		"unknown":                 {Finding{Code: code.Orphan, Holder: &live, Owner: by(attrib.ByCgroup, 10), Unknown: "x"}, 0},
		"a phantom's holder":      {Finding{Code: code.Phantom, Holder: &dead, Candidates: []Holder{of(by(attrib.ByCgroup, 10)), of(by(attrib.ByExclusive, 10)), of(nil)}}, 1},
		"an exported handle's":    {Finding{Code: code.Residue, Candidates: []Holder{of(by(attrib.ByCgroup, 10))}}, 0},
		"found before the job":    {Finding{Code: code.Dirty, Holder: &live, Owner: by(attrib.ByCgroup, 10)}, 0},
	} {
		got := Proven([]Finding{tt.f}, slurm.Job{ID: 10, UID: alice})
		if len(got) != tt.want {
			t.Errorf("%s: %+v", name, got)
		}
		sure := Finding{Code: code.Orphan, Holder: &live, Owner: by(attrib.ByCgroup, 10)}
		if got := Proven([]Finding{tt.f, sure}, slurm.Job{ID: 10, UID: alice}); len(got) != tt.want+1 {
			t.Errorf("%s, before one that is proven: %+v", name, got)
		}
	}
}

// A name excuses no live job's process, a service is no job's, and a card without a number may be held by anybody.
func TestWhoIsNotExcused(t *testing.T) {
	live := attrib.Record{Job: 11, UID: 1002, GPUs: []gpu.ID{"GPU-1"}, Start: at(90)}
	hidden := onCard(attrib.Process{PID: 71, UID: 1002, Start: at(151), Exe: "/home/bob/nvidia-cuda-mps-x", Cgroup: slurm.Owner{ID: 11}}, 3)
	service := attrib.Process{PID: 70, UID: alice, Start: at(150), Service: "infer.service"}
	phantom := side(at(200), settle.Flat, reading(20*gib+9*mib, listed(70, 20*gib)), attrib.Process{PID: 70, Gone: true})
	for name, s := range map[string]Scene{
		"memory, a live job's process under MPS's name":    searched(side(at(200), settle.Flat, reading(20*gib)), hidden),
		"a phantom, a live job's process under MPS's name": searched(phantom, hidden),
		"a service run as the job's user":                  searched(side(at(200), settle.Flat, reading(20*gib+9*mib, listed(70, 20*gib)), service)),
		"a phantom on a card without a number":             with(searched(phantom, onCard(attrib.Process{PID: 71, UID: 1002, Cgroup: slurm.Owner{ID: 11}, Start: at(151)}, 1)), func(s *Scene) { s.Cards[0].Device.Minor = nil }),
	} {
		s.Others = []attrib.Record{live}
		found := Compare(s)
		if len(found) != 1 || len(found[0].Doubts) == 0 || found[0].Owner != nil {
			t.Errorf("%s: %+v", name, found)
		}
	}
}

// What still moved at the start tells nothing of what was there before: as much of a leak would be hidden.
func TestMovingStartExpectsNothing(t *testing.T) {
	before := side(at(100), settle.Moving, reading(100*gib))
	expect, _ := Expectations(&before, nil, Limits{PerClient: 9 * mib})
	if len(expect) != 0 {
		t.Errorf("%+v", expect)
	}
	s := ending(side(at(200), settle.Flat, reading(90*gib)))
	s.Before = &before
	if found := Compare(s); len(found) != 1 || found[0].Bytes.Bytes != 90*gib || len(found[0].Doubts) == 0 {
		t.Errorf("%+v", found)
	}
}
