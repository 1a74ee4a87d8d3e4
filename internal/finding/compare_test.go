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

const (
	mib   = uint64(1) << 20
	gib   = mib << 10
	card  = gpu.ID("GPU-0")
	alice = 1001
)

func at(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

// reading is an H200 with the given bytes in use; what the driver adds for each client is in used already.
func reading(used uint64, procs ...gpu.Process) gpu.Reading {
	total := uint64(143771) * mib
	return gpu.Reading{
		Device:    gpu.Device{ID: card},
		Memory:    gpu.Memory{Total: gpu.Bytes(total), Used: gpu.Bytes(used), Free: gpu.Bytes(total - used), Reserved: gpu.Bytes(615 * mib)},
		Processes: procs,
	}
}

func side(when time.Duration, state settle.State, r gpu.Reading, procs ...attrib.Process) Side {
	s := Side{
		Snapshot:  gpu.Snapshot{At: when, Readings: []gpu.Reading{r}},
		Curves:    map[gpu.ID]settle.Curve{card: {State: state, Looks: 8, Span: 4 * time.Second, Steady: state != settle.Moving}},
		Processes: map[int]attrib.Process{},
		Scan:      &attrib.Scan{Looked: 300},
	}
	for _, p := range procs {
		s.Processes[p.PID] = p
	}
	return s
}

func listed(pid int, bytes uint64) gpu.Process {
	return gpu.Process{PID: pid, Memory: gpu.Bytes(bytes), Kinds: []gpu.Kind{gpu.Compute}}
}

// ending is the end of job 10 of alice, which began on a clean card at 100 s and had it alone.
func ending(now Side) Scene {
	before := side(at(100), settle.Clean, reading(0))
	return Scene{
		Job:    slurm.Job{Context: slurm.Epilog, ID: 10, UID: alice},
		Cards:  []Card{{Index: 0, Device: gpu.Device{ID: card}}},
		Before: &before, Now: now,
		Self:   attrib.Record{Job: 10, UID: alice, GPUs: []gpu.ID{card}, Start: at(100), Alone: true},
		Limits: Limits{Report: 32 * mib, Drain: 512 * mib, PerClient: 9 * mib},
	}
}

func starting(now Side) Scene {
	s := ending(now)
	s.Before, s.Job.Context, s.Self.Start = nil, slurm.Prolog, 0
	return s
}

var orphan = attrib.Process{PID: 70, UID: alice, Start: at(150), Name: "python"}

func orphanSide() Side {
	return side(at(200), settle.Flat, reading(20*gib+9*mib, listed(70, 20*gib)), orphan)
}

func TestCompareAtTheEnd(t *testing.T) {
	exported := side(at(200), settle.Flat, reading(20*gib))
	phantom := side(at(200), settle.Flat, reading(20*gib+9*mib, listed(70, 20*gib)), attrib.Process{PID: 70, Gone: true})
	outside := orphan
	outside.UID = 1002
	rootly := orphan
	rootly.UID = 0
	foreign := orphan
	foreign.Cgroup = slurm.Owner{ID: 11}
	live := attrib.Record{Job: 11, UID: 1002, GPUs: []gpu.ID{"GPU-1"}, Start: at(90), Alone: true}

	tests := []struct {
		name    string
		scene   Scene
		want    []code.Code
		owner   slurm.JobID
		certain bool // nothing in doubt: may drain
	}{
		{"orphan", ending(orphanSide()), []code.Code{code.Orphan}, 10, true},
		{"exported handle: memory and no process", ending(exported), []code.Code{code.Residue}, 10, true},
		{"phantom: listed PID is gone", ending(phantom), []code.Code{code.Phantom}, 10, true},
		{"process of another user outside any job", ending(side(at(200), settle.Flat, reading(20*gib+9*mib, listed(70, 20*gib)), outside)), []code.Code{code.Stray}, 0, true},
		{"root's process may be a service", ending(side(at(200), settle.Flat, reading(20*gib+9*mib, listed(70, 20*gib)), rootly)), []code.Code{code.Stray}, 0, false},
		{"another live job's process", with(ending(side(at(200), settle.Flat, reading(20*gib+9*mib, listed(70, 20*gib)), foreign)), func(s *Scene) { s.Others = []attrib.Record{live} }), []code.Code{code.Foreign}, 11, false},
		{"still moving", ending(side(at(200), settle.Moving, reading(20*gib))), []code.Code{code.Moving}, 0, false},
		{"no record of the start", with(ending(orphanSide()), func(s *Scene) { s.Before = nil }), []code.Code{code.Stray}, 0, false},
		{"inherited: the same process was there before", with(ending(orphanSide()), func(s *Scene) {
			old := orphan
			old.Start = at(20)
			dirty := side(at(100), settle.Flat, reading(20*gib+9*mib, listed(70, 20*gib)), old)
			s.Before, s.Now.Processes[70] = &dirty, old
		}), []code.Code{code.Dirty}, 0, false},
		{"below the drain threshold", ending(side(at(200), settle.Flat, reading(300*mib))), []code.Code{code.Residue}, 10, false},
		{"another live job was given the same GPU", with(ending(exported), func(s *Scene) {
			s.Self.Alone = false
			s.Others = []attrib.Record{{Job: 12, UID: 1002, GPUs: []gpu.ID{card}, Start: at(110)}}
		}), []code.Code{code.Residue}, 0, false},
		{"legal sharing still names the job's own orphan", with(ending(side(at(200), settle.Flat, reading(20*gib+9*mib, listed(70, 20*gib)),
			attrib.Process{PID: 70, UID: alice, Start: at(150), Cgroup: slurm.Owner{ID: 10}})), func(s *Scene) { s.Shared = "partition" }), []code.Code{code.Orphan}, 10, false},
		{"a live rival of the same user puts the owner in doubt", with(ending(orphanSide()), func(s *Scene) {
			rival := live
			rival.UID = alice
			s.Others = []attrib.Record{rival}
		}), []code.Code{code.Orphan}, 10, false},
		{"no one can tell whether it is shared", with(ending(orphanSide()), func(s *Scene) { s.SharedUnknown = "no gres.conf" }), []code.Code{code.Orphan}, 10, false},
		{"a MIG instance", with(ending(orphanSide()), func(s *Scene) { s.Cards[0].Device.Parent = "GPU-9" }), []code.Code{code.Orphan}, 10, false},
		{"run in job: everything is in doubt", with(ending(orphanSide()), func(s *Scene) { s.Doubt = "RunInJob" }), []code.Code{code.Orphan}, 10, false},
		{"lost GPU", with(ending(side(at(200), settle.Unknown, gpu.Reading{})), func(s *Scene) {
			s.Now.Snapshot.Faults = []gpu.Fault{{Code: gpu.FaultLost, Device: card, Detail: "nvmlDeviceGetMemoryInfo: GPU is lost"}}
		}), []code.Code{code.Lost}, 0, true},
		{"a fault seen once proves nothing", with(ending(side(at(200), settle.Unknown, gpu.Reading{})), func(s *Scene) {
			s.Now.Curves[card] = settle.Curve{State: settle.Unknown, Looks: 1}
			s.Now.Snapshot.Faults = []gpu.Fault{{Code: gpu.FaultLost, Device: card}}
		}), []code.Code{code.Lost}, 0, false},
		{"a process that is ending", ending(side(at(200), settle.Flat, reading(20*gib+9*mib, listed(70, 20*gib)),
			attrib.Process{PID: 70, UID: alice, Start: at(150), State: "D"})), []code.Code{code.Orphan}, 10, false},
		{"a process whose first thread has ended holds on", ending(side(at(200), settle.Flat, reading(20*gib+9*mib, listed(70, 20*gib)),
			attrib.Process{PID: 70, UID: alice, Start: at(150), State: "Z"})), []code.Code{code.Orphan}, 10, true},
		{"the start's memory was unknown", with(ending(exported), func(s *Scene) {
			blind := side(at(100), settle.Unknown, reading(0))
			blind.Snapshot.Readings[0].Memory.Used = gpu.Unknown("not supported")
			s.Before = &blind
		}), []code.Code{code.Residue}, 0, false},
		{"memory that cannot be judged hides no process", with(ending(orphanSide()), func(s *Scene) {
			s.Now.Snapshot.Readings[0].Memory.Unjudged = "shared with the host"
		}), []code.Code{code.Orphan}, 10, true},
		{"untrusted list accuses no one", with(ending(orphanSide()), func(s *Scene) {
			s.Now.Snapshot.Readings[0].ProcessesUnknown = "PID above pid_max"
		}), []code.Code{code.Unread}, 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { check(t, Compare(tt.scene), tt.want, tt.owner, tt.certain) })
	}
}

// A process that every look of the watch shows is named whatever the total does, with the least that it ever held.
func TestCompareStayed(t *testing.T) {
	own := orphan
	own.Cgroup = slurm.Owner{ID: 10}
	moving := func(least gpu.Figure, facts attrib.Process) Side {
		s := side(at(200), settle.Moving, reading(21*gib, listed(70, least.Bytes), listed(71, gib)), facts, attrib.Process{PID: 71, UID: 1002, Start: at(150)})
		s.Stayed = map[gpu.ID][]settle.Stay{card: {{Process: gpu.Process{PID: 70, Memory: least}}}}
		return s
	}
	dying := own
	dying.State = "Z"
	live := own
	live.Cgroup.ID = 11
	other := attrib.Record{Job: 11, UID: 1002, GPUs: []gpu.ID{"GPU-1"}, Start: at(90)}
	for _, tt := range []struct {
		name    string
		scene   Scene
		want    code.Code // before BKD-MOVING; empty: that alone
		certain bool
	}{
		{"the job's own", ending(moving(gpu.Bytes(19*gib), own)), code.Orphan, true},
		{"between jobs", with(between(moving(gpu.Bytes(19*gib), own)), func(s *Scene) {
			s.Others = []attrib.Record{{Job: 10, UID: alice, Start: at(100), End: at(160)}}
		}), code.Orphan, true},
		{"little at one look", ending(moving(gpu.Bytes(500*mib), own)), code.Orphan, false},
		{"gone: no start time proves it the same", ending(moving(gpu.Bytes(19*gib), attrib.Process{PID: 70, Gone: true})), code.Phantom, false},
		{"a live job's", with(ending(moving(gpu.Bytes(19*gib), live)), func(s *Scene) { s.Others = []attrib.Record{other} }), code.Foreign, false},
		{"the node's own little", ending(moving(gpu.Bytes(mib), attrib.Process{PID: 70, Start: at(5), Service: "x.service"})), "", false},
		{"its first thread has ended", ending(moving(gpu.Bytes(19*gib), dying)), code.Orphan, false},
	} {
		found := Compare(tt.scene)
		if tt.want == "" {
			check(t, found, []code.Code{code.Moving}, 0, false)
			continue
		}
		if len(found) != 2 || found[0].Code != tt.want || found[1].Code != code.Moving || found[1].Unknown == "" {
			t.Errorf("%s: %+v", tt.name, found)
			continue
		}
		if sure := len(found[0].Doubts) == 0 && found[0].Unknown == ""; sure != tt.certain || found[0].Holder.PID != 70 {
			t.Errorf("%s: certain %v: %+v", tt.name, sure, found[0])
		}
		if least := tt.scene.Now.Stayed[card][0].Memory; found[0].Bytes != least {
			t.Errorf("%s: %+v, want the least, %+v", tt.name, found[0].Bytes, least)
		}
	}
}

// The threshold is about what is certain, not about all that is in use: a service's gigabytes are no reason to
// drain for a few MiB beside them, and memory beside a process that may hold it is nobody's for certain.
func TestCompareBesideAService(t *testing.T) {
	service := attrib.Process{PID: 50, UID: 0, Start: at(150), Name: "dcgm"}
	foreign := attrib.Process{PID: 50, UID: 1002, Start: at(150), Cgroup: slurm.Owner{ID: 11}}
	live := attrib.Record{Job: 11, UID: 1002, GPUs: []gpu.ID{"GPU-1"}, Start: at(90), Alone: true}
	for name, p := range map[string]attrib.Process{"root's service": service, "another live job": foreign} {
		for _, extra := range []uint64{40 * mib, 20 * gib} {
			s := ending(side(at(200), settle.Flat, reading(2*gib+9*mib+extra, listed(50, 2*gib)), p))
			s.Others = []attrib.Record{live}
			for _, f := range Compare(s) {
				if len(f.Doubts) == 0 && f.Unknown == "" || f.Code == code.Residue && f.Owner != nil {
					t.Errorf("%s, %d MiB beside it: %+v is certain or blames somebody", name, extra>>20, f)
				}
			}
		}
	}
}

// Two leftovers of one job that are small by themselves make a card unusable together.
func TestCompareAddsUp(t *testing.T) {
	other := attrib.Process{PID: 71, UID: alice, Start: at(151)}
	s := ending(side(at(200), settle.Flat, reading(600*mib+18*mib, listed(70, 300*mib), listed(71, 300*mib)), orphan, other))
	check(t, Compare(s), []code.Code{code.Orphan, code.Orphan}, 10, true)
}

// A figure that is missing takes nothing from what is certain.
func TestCompareBesideAnUnknownFigure(t *testing.T) {
	r := reading(30*gib, listed(70, 20*gib), gpu.Process{PID: 71, Memory: gpu.Unknown("not available")})
	found := Compare(ending(side(at(200), settle.Flat, r, orphan, attrib.Process{PID: 71, UID: alice, Start: at(150)})))
	if len(found) == 0 || found[0].Code != code.Orphan || len(found[0].Doubts) > 0 {
		t.Errorf("20 GiB of an orphan are in doubt: %+v", found)
	}
	found = Compare(ending(side(at(200), settle.Flat, reading(30*gib, gpu.Process{PID: 70, Memory: gpu.Unknown("not available")}), orphan)))
	if len(found) == 0 || !slices.Contains(found[0].Doubts, "how much memory is held is unknown: not available") {
		t.Errorf("no figure at all: %+v", found)
	}
}

func with(s Scene, edit func(*Scene)) Scene {
	edit(&s)
	return s
}

func check(t *testing.T, got []Finding, want []code.Code, owner slurm.JobID, certain bool) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("Compare = %+v, want codes %v", got, want)
	}
	for i, f := range got {
		if f.Code != want[i] {
			t.Errorf("finding %d is %s, want %s", i, f.Code, want[i])
		}
		if f.GPU != card || f.Index == nil {
			t.Errorf("finding %d names no GPU: %+v", i, f)
		}
		if job := ownerOf(f); job != owner {
			t.Errorf("finding %d blames job %d, want %d", i, job, owner)
		}
		if sure := len(f.Doubts) == 0 && f.Unknown == ""; sure != certain {
			t.Errorf("finding %d certain = %v, want %v (doubts %q, unknown %q)", i, sure, certain, f.Doubts, f.Unknown)
		}
	}
}

func ownerOf(f Finding) slurm.JobID {
	if f.Owner == nil {
		return 0
	}
	return f.Owner.Job
}

func TestCompareAtTheStart(t *testing.T) {
	earlier := attrib.Record{Job: 9, UID: alice, GPUs: []gpu.ID{card}, Start: at(40), End: at(90), Alone: true}
	old := attrib.Process{PID: 70, UID: alice, Start: at(60)}
	left := Finding{Code: code.Residue, GPU: card, Bytes: gpu.Bytes(20 * gib), Owner: &Owner{Job: 9, UID: alice, Level: attrib.ByExclusive}}
	leftPhantom := Finding{Code: code.Phantom, GPU: card, Bytes: gpu.Bytes(20 * gib), Owner: &Owner{Job: 9, UID: alice, Level: attrib.ByExclusive},
		Holder: &Holder{Process: attrib.Process{PID: 70, Gone: true}}}

	dirty := side(at(100), settle.Flat, reading(20*gib+9*mib, listed(70, 20*gib)), old)
	empty := side(at(100), settle.Flat, reading(20*gib))
	gone := side(at(100), settle.Flat, reading(20*gib+9*mib, listed(70, 20*gib)), attrib.Process{PID: 70, Gone: true})
	tests := []struct {
		name  string
		scene Scene
		want  []code.Code
		owner slurm.JobID
	}{
		{"clean", starting(side(at(100), settle.Clean, reading(0))), nil, 0},
		{"an earlier job's orphan is named", with(starting(dirty), func(s *Scene) { s.Others = []attrib.Record{earlier} }), []code.Code{code.Dirty}, 9},
		{"memory without a process, left by a known job", with(starting(empty), func(s *Scene) { s.Left = []Finding{left} }), []code.Code{code.Dirty}, 9},
		{"a dead PID, left by a known job", with(starting(gone), func(s *Scene) { s.Left = []Finding{leftPhantom} }), []code.Code{code.Dirty}, 9},
		{"a dead PID, and as much memory left without a process", with(starting(gone), func(s *Scene) { s.Left = []Finding{left} }), []code.Code{code.Dirty}, 0},
		{"another live job sits on the GPU", with(starting(dirty), func(s *Scene) {
			live := earlier
			live.End, live.GPUs = 0, []gpu.ID{"GPU-1"}
			s.Others = []attrib.Record{live}
			s.Now.Processes = map[int]attrib.Process{70: {PID: 70, UID: alice, Start: at(60), Cgroup: slurm.Owner{ID: 9}}}
		}), []code.Code{code.Foreign}, 9},
		{"Slurm gave the GPU to another live job too", with(starting(dirty), func(s *Scene) {
			live := earlier
			live.End = 0
			s.Others = []attrib.Record{live}
		}), nil, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := Compare(tt.scene)
			if len(got) != len(tt.want) {
				t.Fatalf("Compare = %+v, want codes %v", got, tt.want)
			}
			for i, f := range got {
				if f.Code != tt.want[i] || ownerOf(f) != tt.owner {
					t.Errorf("finding %d: %s job %d, want %s job %d", i, f.Code, ownerOf(f), tt.want[i], tt.owner)
				}
			}
		})
	}
}

// The sheet: used = listed + the driver's share of each client + unexplained.
func TestBalance(t *testing.T) {
	l := Limits{PerClient: 9 * mib}
	unknownProc := gpu.Process{PID: 3, Memory: gpu.Unknown("not available")}
	tests := []struct {
		name    string
		r       gpu.Reading
		want    uint64
		unknown string
	}{
		{"one client, 8 MiB beyond its figure", reading(gib+8*mib, listed(1, gib)), 0, ""},
		{"counted twice", reading(gib, listed(1, gib), listed(2, gib)), 0, "twice"},
		{"a process without a figure", reading(gib, unknownProc), 0, "PID 3"},
		{"memory unknown", gpu.Reading{Memory: gpu.Memory{Used: gpu.Unknown("lost")}}, 0, "lost"},
		{"older driver", gpu.Reading{Memory: gpu.Memory{Used: gpu.Bytes(615 * mib), UsedHasReserved: true}}, 0, "reserve"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, why := balance(tt.r, l)
			if got != tt.want || !strings.Contains(why, tt.unknown) || (why == "") != (tt.unknown == "") {
				t.Errorf("balance = %d, %q; want %d, %q", got, why, tt.want, tt.unknown)
			}
		})
	}
}

// between is a look at a card that nobody has: job 9 of alice had it from 50 to 90 s.
func between(now Side) Scene {
	return Scene{
		Job:    slurm.Job{Context: slurm.HealthCheck, Node: "n1"},
		Cards:  []Card{{Index: 0, Device: gpu.Device{ID: card}}},
		Now:    now,
		Others: []attrib.Record{{Job: 9, UID: alice, GPUs: []gpu.ID{card}, Start: at(50), End: at(90), Alone: true}},
		Limits: Limits{Report: 32 * mib, Drain: 512 * mib, PerClient: 9 * mib},
	}
}

// What lies on a card that nobody has, and who is named for it.
func TestBetweenJobs(t *testing.T) {
	left := attrib.Process{PID: 70, UID: alice, Start: at(60), Name: "train"}
	edited := func(change func(*attrib.Process)) attrib.Process { p := left; change(&p); return p }
	on := func(p attrib.Process) Side {
		return side(at(200), settle.Flat, reading(2*gib+9*mib, listed(70, 2*gib)), p)
	}
	for _, tt := range []struct {
		name  string
		now   Side
		edit  func(*Scene)
		code  code.Code // empty: nothing is said
		owner slurm.JobID
		level attrib.Level
	}{
		{"in the ended job's cgroup", on(edited(func(p *attrib.Process) { p.Cgroup.ID = 9 })), nil, code.Orphan, 9, attrib.ByCgroup},
		{"seen there by a health check", on(left), func(s *Scene) {
			s.Self.Seen = []attrib.Sighting{{PID: 70, Start: at(60), Owner: slurm.Owner{ID: 9}}}
		}, code.Orphan, 9, attrib.BySighting},
		{"started while the job had the GPU alone", on(left), nil, code.Orphan, 9, attrib.ByExclusive},
		{"a login", on(edited(func(p *attrib.Process) { p.Start = at(150) })), nil, code.Stray, 0, ""},
		{"a daemon of MPS that waits", on(edited(func(p *attrib.Process) { p.Start, p.Exe = at(150), "/usr/bin/nvidia-cuda-mps-server" })), nil, "", 0, ""},
		{"under a dead PID, on record", side(at(200), settle.Flat, reading(2*gib+9*mib, listed(70, 2*gib)), attrib.Process{PID: 70, Gone: true}), func(s *Scene) {
			s.Left = []Finding{{Code: code.Phantom, GPU: card, Bytes: gpu.Bytes(2 * gib), Holder: &Holder{Process: attrib.Process{PID: 70}}, Owner: &Owner{Job: 9, Level: attrib.ByExclusive}}}
		}, code.Phantom, 9, attrib.ByExclusive},
		{"no one's memory, on record", side(at(200), settle.Flat, reading(2*gib)), func(s *Scene) {
			s.Left = []Finding{{Code: code.Residue, GPU: card, Bytes: gpu.Bytes(2 * gib), Owner: &Owner{Job: 9, Level: attrib.ByExclusive}}}
		}, code.Residue, 9, attrib.ByExclusive},
		{"on its way back", side(at(200), settle.Moving, reading(2*gib)), nil, code.Moving, 0, ""},
		{"clean", side(at(200), settle.Clean, reading(0)), nil, "", 0, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := between(tt.now)
			if tt.edit != nil {
				tt.edit(&s)
			}
			found := Compare(s)
			if tt.code == "" {
				if len(found) > 0 {
					t.Errorf("found %+v", found)
				}
				return
			}
			if len(found) != 1 || found[0].Code != tt.code {
				t.Fatalf("found %+v", found)
			}
			switch o := found[0].Owner; {
			case o == nil && tt.owner == 0:
			case o == nil || o.Job != tt.owner || o.Level != tt.level:
				t.Errorf("owner %+v", o)
			}
		})
	}
}

// A run that counts as over only because its card was given away proves nothing certain: neither that its process was
// left behind, nor that another's card was that one's alone.
func TestUnseenEndIsDoubted(t *testing.T) {
	unseen := attrib.Record{Job: 9, UID: alice, GPUs: []gpu.ID{card}, Start: at(50), End: at(100), Unseen: true}
	doubted := func(name string, found []Finding, doubt string) {
		t.Helper()
		if len(found) != 1 || !strings.Contains(strings.Join(found[0].Doubts, "; "), doubt) {
			t.Errorf("%s: want a doubt %q: %+v", name, doubt, found)
		}
	}
	held := func(p attrib.Process) Side {
		return side(at(200), settle.Flat, reading(2*gib+9*mib, listed(70, 2*gib)), p)
	}
	s := ending(held(attrib.Process{PID: 70, UID: alice, Start: at(60), Cgroup: slurm.Owner{ID: 9}}))
	s.Others = []attrib.Record{unseen}
	doubted("its process", Compare(s), "no one saw the end of its job 9")

	s = ending(held(attrib.Process{PID: 70, UID: alice, Start: at(150), Cgroup: slurm.Owner{ID: 10}}))
	s.Others = []attrib.Record{unseen}
	doubted("its GPU", Compare(s), "job 9 was given the same GPU, and no one saw its end")

	s = searched(side(at(200), settle.Flat, reading(2*gib)), onDriver(attrib.Process{PID: 71, UID: alice, Start: at(60), Cgroup: slurm.Owner{ID: 9}}))
	s.Others = []attrib.Record{{Job: 9, UID: alice, GPUs: []gpu.ID{"GPU-1"}, Start: at(50), End: at(100), Unseen: true}}
	doubted("its process as a candidate", Compare(s), "no one saw the end of its job 9")
}
