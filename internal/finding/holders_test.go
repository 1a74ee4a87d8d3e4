package finding

import (
	"slices"
	"strings"
	"testing"

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
		{"the weakest evidence counts", []attrib.Holding{onCard(edited(func(p *attrib.Process) { p.Cgroup.ID = 10 }), 3), onCard(edited(func(p *attrib.Process) { p.PID = 72 }), 3)},
			nil, []int{71, 72}, attrib.ByExclusive, ""},
		{"a service of the node", []attrib.Holding{onCard(edited(func(p *attrib.Process) { p.Service, p.Start = "dcgm.service", at(20) }), 3)}, nil, nil, attrib.ByExclusive, ""},
		{"a service that started during the job", []attrib.Holding{onCard(edited(func(p *attrib.Process) { p.UID, p.Service = 0, "infer.service" }), 3)}, nil, []int{71}, "", "service"},
		{"a live job's process", []attrib.Holding{onCard(edited(func(p *attrib.Process) { p.UID, p.Cgroup.ID = 1002, 11 }), 3)},
			func(s *Scene) {
				s.Others = []attrib.Record{{Job: 11, UID: 1002, GPUs: []gpu.ID{"GPU-1"}, Start: at(90)}}
			}, []int{71}, "", "live job"},
		{"a job without a record", []attrib.Holding{onCard(edited(func(p *attrib.Process) { p.Cgroup.ID = 99 }), 3)}, nil, []int{71}, "", "could not be told"},
		{"the search was cut short", nil, func(s *Scene) { s.Now.Scan.Partial = "out of time" }, nil, "", "out of time"},
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
		{"one with another GPU for a reason", []attrib.Holding{onCard(keeper, 1)}, nil, nil, attrib.ByExclusive, ""},
		{"another user's with another GPU", []attrib.Holding{onCard(other, 1)}, nil, nil, "", "for another reason"},
		{"another run's of the job", []attrib.Holding{onDriver(attrib.Process{PID: 71, Start: at(60), UID: alice, Cgroup: slurm.Owner{SLUID: "sA"}})}, func(s *Scene) {
			s.Job.SLUID, s.Self.SLUID = "sB", "sB"
			s.Others = []attrib.Record{{Job: 10, SLUID: "sA", UID: alice, GPUs: []gpu.ID{"GPU-1"}, Start: at(50), End: at(90)}}
		}, []int{71}, "", ""},
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

// Of several jobs that left memory without a process, the one whose figure fits is named, or nobody.
func TestInheritedMemory(t *testing.T) {
	left := func(id slurm.JobID, bytes uint64) Finding {
		return Finding{Code: code.Residue, GPU: card, Bytes: gpu.Bytes(bytes), Owner: &Owner{Job: id, Level: attrib.ByExclusive}}
	}
	for name, tt := range map[string]struct {
		left []Finding
		want slurm.JobID
	}{
		"one job":               {[]Finding{left(8, 20*gib-4*mib)}, 8},
		"less by the margin":    {[]Finding{left(8, 20*gib-AsMuch)}, 8},
		"less by a byte more":   {[]Finding{left(8, 20*gib-AsMuch-1)}, 0},
		"the figure fits one":   {[]Finding{left(9, gib), left(8, 20*gib)}, 8},
		"it fits two":           {[]Finding{left(9, 20*gib), left(8, 20*gib)}, 0},
		"a process, not memory": {[]Finding{{Code: code.Orphan, GPU: card, Bytes: gpu.Bytes(20 * gib), Owner: &Owner{Job: 8}}}, 0},
	} {
		s := starting(side(at(100), settle.Flat, reading(20*gib)))
		s.Left = tt.left
		found := Compare(s)
		if len(found) != 1 || ownerOf(found[0]) != tt.want {
			t.Errorf("%s: %+v, want job %d", name, found, tt.want)
		}
	}
}

// A handle keeps its memory only while its holder lives, and a process that came later cannot have been found then:
// with other candidates, what fits in size need not be what was left.
func TestInheritedMemoryHasItsCandidates(t *testing.T) {
	keeper := attrib.Process{PID: 71, UID: alice, Start: at(60)}
	newcomer := attrib.Process{PID: 72, UID: 1002, Start: at(95)}
	daemon := attrib.Process{PID: 73, UID: 997, Start: at(20)}
	reborn := keeper
	reborn.Start = at(95)
	for name, tt := range map[string]struct {
		then, now []attrib.Process
		want      slurm.JobID
	}{
		"the same":                {[]attrib.Process{keeper}, []attrib.Process{keeper}, 8},
		"another one ended":       {[]attrib.Process{keeper, daemon}, []attrib.Process{keeper}, 8},
		"the job's own ended":     {[]attrib.Process{keeper, daemon}, []attrib.Process{daemon}, 0},
		"one came":                {[]attrib.Process{keeper}, []attrib.Process{keeper, newcomer}, 0},
		"one came, and none then": {nil, []attrib.Process{newcomer}, 0},
		"the PID is another's":    {[]attrib.Process{keeper}, []attrib.Process{reborn}, 0},
	} {
		left := Finding{Code: code.Residue, GPU: card, Bytes: gpu.Bytes(20 * gib), Owner: &Owner{Job: 8, UID: alice, Level: attrib.ByExclusive}}
		for _, p := range tt.then {
			left.Candidates = append(left.Candidates, Holder{Process: p})
			if p.UID == alice {
				left.Candidates[len(left.Candidates)-1].Owner = &Owner{Job: 8, UID: alice, Level: attrib.ByExclusive}
			}
		}
		var now []attrib.Holding
		for _, p := range tt.now {
			now = append(now, onDriver(p))
		}
		s := searched(side(at(100), settle.Flat, reading(20*gib)), now...)
		s.Before, s.Job.Context, s.Self.Start = nil, slurm.Prolog, 0
		s.Left = []Finding{left}
		found := Compare(s)
		if len(found) != 1 || ownerOf(found[0]) != tt.want {
			t.Errorf("%s: %+v, want job %d", name, found, tt.want)
		}
	}
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
		"memory that the first end did not find":    {reading(20 * gib), nil, 200, 0},
		"memory that the first end found":           {reading(20 * gib), []Finding{residue}, 200, 10},
		"more memory than the first end found":      {reading(30 * gib), []Finding{residue}, 200, 0},
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
		"another job's":           {Finding{Code: code.Orphan, Holder: &live, Owner: by(attrib.ByCgroup, 11)}, 0},
		"gone":                    {Finding{Code: code.Orphan, Holder: &dead, Owner: by(attrib.ByCgroup, 10)}, 0},
		"not to be read":          {Finding{Code: code.Orphan, Holder: &unread, Owner: by(attrib.ByCgroup, 10)}, 0},
		"an exported handle's":    {Finding{Code: code.Residue, Candidates: []Holder{of(by(attrib.ByCgroup, 10))}}, 0},
		"unknown":                 {Finding{Code: code.Orphan, Holder: &live, Owner: by(attrib.ByCgroup, 10), Unknown: "x"}, 0},
		"a phantom's holder":      {Finding{Code: code.Phantom, Holder: &dead, Candidates: []Holder{of(by(attrib.ByCgroup, 10)), of(by(attrib.ByExclusive, 10)), of(nil)}}, 1},
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
		"a phantom on a GPU without a number":              with(searched(phantom, onCard(attrib.Process{PID: 71, UID: 1002, Cgroup: slurm.Owner{ID: 11}, Start: at(151)}, 1)), func(s *Scene) { s.Cards[0].Device.Minor = nil }),
	} {
		s.Others = []attrib.Record{live}
		found := Compare(s)
		if len(found) != 1 || len(found[0].Doubts) == 0 || found[0].Owner != nil {
			t.Errorf("%s: %+v", name, found)
		}
	}
}

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

// Which processes outside of jobs and services keep the driver open.
func TestKeepers(t *testing.T) {
	exporter := attrib.Holding{Process: attrib.Process{PID: 50, Start: at(10), Name: "dcgm-exporter"}, Control: true}
	edited := func(edit func(*attrib.Holding)) attrib.Holding { h := exporter; edit(&h); return h }
	for name, tt := range map[string]struct {
		h            attrib.Holding
		want, unread bool
	}{
		"a user's, the driver alone":        {edited(func(h *attrib.Holding) { h.UID = alice }), true, false},
		"a service":                         {edited(func(h *attrib.Holding) { h.Service = "nvidia-dcgm.service" }), false, false},
		"MPS":                               {edited(func(h *attrib.Holding) { h.Exe = "/usr/bin/nvidia-cuda-mps-control" }), false, false},
		"a job's":                           {edited(func(h *attrib.Holding) { h.Cgroup = slurm.Owner{ID: 7} }), false, false},
		"of two jobs":                       {edited(func(h *attrib.Holding) { h.Cgroup.Conflict = "two jobs" }), false, true},
		"one that could not be looked into": {edited(func(h *attrib.Holding) { h.Why = "denied" }), false, true},
		"Bookend's own":                     {edited(func(h *attrib.Holding) { h.Exe = "/libexec/bookend-gpu" }), false, false},
	} {
		got, unread := Keepers([]attrib.Holding{tt.h}, "/libexec/bookend-gpu")
		if len(got) > 1 || (len(got) == 1) != tt.want || (unread == 1) != tt.unread {
			t.Errorf("%s: %+v, %d unread", name, got, unread)
		}
	}
}
