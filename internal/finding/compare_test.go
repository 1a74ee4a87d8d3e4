package finding

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"bookend/internal/attrib"
	"bookend/internal/code"
	"bookend/internal/config"
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
			got, why := Unexplained(tt.r, l, Baseline{})
			if got != tt.want || !strings.Contains(why, tt.unknown) || (why == "") != (tt.unknown == "") {
				t.Errorf("Unexplained = %d, %q; want %d, %q", got, why, tt.want, tt.unknown)
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

var epoch = gpu.Epoch{Boot: "b", Driver: "580", Module: "m"}

// A baseline grows by services that have a name, and by nothing else: memory whose holder nobody knows would be a leak
// learned away.
func TestLearn(t *testing.T) {
	dcgm := attrib.Process{PID: 60, Start: at(5), Service: "dcgm.service"}
	resident60 := []Resident{{PID: 60, Start: at(5), Bytes: 40 * mib, Service: "dcgm.service"}}
	opener := onCard(dcgm, 3)
	unlisted := reading(48 * mib)
	listing := reading(49*mib, listed(60, 40*mib))
	known := Baseline{GPU: card, Bytes: 48 * mib, Holder: "dcgm.service"}
	for _, tt := range []struct {
		name  string
		now   Side
		found []attrib.Holding
		old   Baseline
		edit  func(*Scene)
		bytes uint64
		who   []Resident
		news  bool
	}{
		{"a service that is listed", side(at(100), settle.Flat, listing, dcgm), nil, Baseline{}, nil, 0, resident60, true},
		{"a service that is not listed but has the GPU open", side(at(100), settle.Flat, unlisted), []attrib.Holding{opener}, Baseline{}, nil, 48 * mib, nil, true},
		{"memory without a holder", side(at(100), settle.Flat, unlisted), nil, Baseline{}, nil, 0, nil, false},
		{"shared memory counted twice", side(at(100), settle.Flat, reading(10*mib, listed(60, 40*mib)), dcgm), nil, known, nil, 48 * mib, nil, false},
		{"a user's process has the driver open too", side(at(100), settle.Flat, unlisted), []attrib.Holding{opener, onDriver(attrib.Process{PID: 9, UID: alice})}, Baseline{}, nil, 0, nil, false},
		{"a user's process is listed", side(at(100), settle.Flat, listing, attrib.Process{PID: 60, UID: alice}), nil, known, nil, 48 * mib, nil, false},
		{"known, and gone since", side(at(100), settle.Clean, reading(0)), nil, known, nil, 0, nil, true},
		{"more than known without a search", side(at(100), settle.Clean, reading(52*mib+1)), nil, known, nil, 0, nil, true},
		{"accepted by an admin", side(at(100), settle.Clean, reading(0)), nil, Baseline{GPU: card, Bytes: 50 * mib, Accepted: true}, nil, 50 * mib, nil, false},
		{"a job had the GPU before: it may have left it", side(at(100), settle.Flat, unlisted), []attrib.Holding{opener}, Baseline{}, func(s *Scene) {
			s.Others = []attrib.Record{{Job: 9, GPUs: []gpu.ID{card}, Start: at(50), End: at(60)}}
		}, 0, nil, false},
		{"another live job has the GPU", side(at(100), settle.Flat, unlisted), []attrib.Holding{opener}, Baseline{}, func(s *Scene) {
			s.Others = []attrib.Record{{Job: 11, GPUs: []gpu.ID{card}, Start: at(90)}}
		}, 0, nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := searched(tt.now, tt.found...)
			s.Before, s.Job.Context = nil, "prolog_slurmd"
			s.Baselines = map[gpu.ID]Baseline{card: tt.old}
			if tt.edit != nil {
				tt.edit(&s)
			}
			got, news := s.Learn(s.Cards[0], epoch)
			if got.Bytes != tt.bytes || !reflect.DeepEqual(got.Residents, tt.who) || news != tt.news {
				t.Errorf("Learn = %+v, %v; want %d bytes, %v, %v", got, news, tt.bytes, tt.who, tt.news)
			}
		})
	}
}

// Services with little memory are part of the node: no finding, and no obstacle to a clean start.
func TestResidents(t *testing.T) {
	dcgm := attrib.Process{PID: 60, Start: at(5), Service: "dcgm.service"}
	quiet := side(at(200), settle.Flat, reading(49*mib, listed(60, 40*mib)), dcgm)
	if found := Compare(ending(quiet)); len(found) != 0 {
		t.Errorf("a service: %+v", found)
	}
	large := side(at(200), settle.Flat, reading(2*gib+9*mib, listed(60, 2*gib)), dcgm)
	if found := Compare(ending(large)); len(found) != 1 || len(found[0].Doubts) == 0 {
		t.Errorf("a service with much memory: %+v", found)
	}
	both := side(at(200), settle.Flat, reading(20*gib+58*mib, listed(60, 40*mib), listed(70, 20*gib)), dcgm, orphan)
	before := side(at(100), settle.Flat, reading(49*mib, listed(60, 40*mib)), dcgm)
	s := ending(both)
	s.Before = &before
	found := Compare(s)
	if len(found) != 1 || found[0].Holder.PID != 70 || len(found[0].Doubts) != 0 {
		t.Errorf("an orphan beside a service that was there before: %+v", found)
	}
}

// What a start called dirty is not clean by hindsight: a baseline counts if the start had it.
func TestBaselineLearnedTooLate(t *testing.T) {
	before := side(at(100), settle.Flat, reading(48*mib))
	for name, tt := range map[string]struct {
		learned time.Duration
		clean   bool
	}{
		"long before the start": {at(50), true},
		"accepted by an admin":  {0, true},
		"at the start":          {at(100), false},
		"while it looked":       {at(97), false},
		"since":                 {at(150), false},
	} {
		s := ending(side(at(200), settle.Flat, reading(20*gib+57*mib, listed(70, 20*gib)), orphan))
		s.Before = &before
		s.Baselines = map[gpu.ID]Baseline{card: {GPU: card, Bytes: 48 * mib, Holder: "dcgm.service", At: tt.learned}}
		found := Compare(s)
		if len(found) != 1 || found[0].Holder.PID != 70 || (len(found[0].Doubts) == 0) != tt.clean {
			t.Errorf("%s: %+v", name, found)
		}
	}
}

// An end expects what the start left on the GPU or what its baseline explains, whichever is more, each process once.
func TestExpectations(t *testing.T) {
	dcgm := attrib.Process{PID: 60, Start: at(5), Service: "dcgm.service"}
	base := Baseline{GPU: card, Bytes: 48 * mib, Residents: []Resident{{PID: 60, Start: at(5), Bytes: 40 * mib}}}
	expected60 := gpu.ExpectedProcess{PID: 60, Bytes: 40 * mib, Share: 9 * mib}
	known60 := map[int]time.Duration{60: at(5)}
	for _, tt := range []struct {
		name   string
		before Side
		want   gpu.Expected
		known  map[int]time.Duration
	}{
		{"less than the baseline", side(at(100), settle.Clean, reading(0)), gpu.Expected{Bytes: 48 * mib, Processes: []gpu.ExpectedProcess{expected60}}, known60},
		{"more than the baseline", side(at(100), settle.Flat, reading(149*mib, listed(60, 40*mib)), dcgm),
			gpu.Expected{Bytes: 100 * mib, Processes: []gpu.ExpectedProcess{expected60}}, known60},
		{"shared memory counted twice", side(at(100), settle.Flat, reading(70*mib, listed(70, 70*mib), listed(71, 70*mib)), orphan),
			gpu.Expected{Bytes: 48 * mib, Processes: []gpu.ExpectedProcess{{PID: 70, Bytes: 70 * mib}, expected60}}, map[int]time.Duration{60: at(5), 70: at(150)}},
		{"memory unknown", side(at(100), settle.Flat, gpu.Reading{Device: gpu.Device{ID: card}, Memory: gpu.Memory{Used: gpu.Unknown("lost")}}),
			gpu.Expected{Bytes: 48 * mib, Processes: []gpu.ExpectedProcess{expected60}}, known60},
	} {
		expect, known := Expectations(&tt.before, map[gpu.ID]Baseline{card: base}, Limits{PerClient: 9 * mib})
		if got := expect[card]; !reflect.DeepEqual(got, tt.want) || !maps.Equal(known, tt.known) {
			t.Errorf("%s: %+v, %v; want %+v, %v", tt.name, got, known, tt.want, tt.known)
		}
	}
}

// A GPU that still moved at the start takes nothing from what is known of the next one.
func TestExpectationsOfTheNextGPU(t *testing.T) {
	before := side(at(100), settle.Moving, reading(100*mib))
	next := reading(40 * mib)
	next.Device.ID = "GPU-1"
	before.Snapshot.Readings = append(before.Snapshot.Readings, next)
	before.Curves["GPU-1"] = settle.Curve{State: settle.Flat}
	expect, _ := Expectations(&before, nil, Limits{})
	if len(expect) != 1 || expect["GPU-1"].Bytes != 40*mib {
		t.Errorf("%+v", expect)
	}
}

func enforcing(edit ...func(*config.Config)) config.Config {
	c := config.Default()
	c.Mode = config.Enforce
	for _, e := range edit {
		e(&c)
	}
	return c
}

func TestDecide(t *testing.T) {
	sure := Finding{Code: code.Orphan}
	tests := []struct {
		name     string
		cfg      config.Config
		phase    slurm.Context
		found    []Finding
		restarts int
		action   config.Action
		exit     int
		held     bool
	}{
		{"a certain orphan drains", enforcing(), slurm.Epilog, []Finding{sure}, 0, config.Drain, 10, false},
		{"observe never drains", config.Default(), slurm.Epilog, []Finding{sure}, 0, config.Warn, 0, true},
		{"a doubt is no drain", enforcing(), slurm.Epilog, []Finding{{Code: code.Orphan, Doubts: []string{"x"}}}, 0, config.Warn, 0, false},
		{"unknown is no drain", enforcing(), slurm.Epilog, []Finding{{Code: code.Residue, Unknown: "x"}}, 0, config.Warn, 0, false},
		{"the strongest decides", enforcing(), slurm.Epilog, []Finding{{Code: code.Foreign}, {Code: code.Residue}, {Code: code.Moving}}, 0, config.Drain, 11, false},
		{"a lost GPU at the start drains", enforcing(), slurm.Prolog, []Finding{{Code: code.Lost}}, 0, config.Drain, 20, false},
		{"a job restarted again and again is let through", enforcing(), slurm.Prolog, []Finding{{Code: code.Lost}}, 2, config.Warn, 0, true},
		{"restarts do not matter at the end", enforcing(), slurm.Epilog, []Finding{{Code: code.Lost}}, 9, config.Drain, 20, false},
		{"CUDA that does not work warns once", enforcing(), slurm.Epilog, []Finding{{Code: code.Broken}}, 0, config.Warn, 0, false},
		{"and drains at the next job", enforcing(), slurm.Epilog, []Finding{{Code: code.Broken, Repeated: true}}, 0, config.Drain, 18, false},
		{"not with a doubt", enforcing(), slurm.Epilog, []Finding{{Code: code.Broken, Repeated: true, Doubts: []string{"x"}}}, 0, config.Warn, 0, false},
		{"not where faults do not drain", enforcing(func(c *config.Config) { c.DrainOn = nil }), slurm.Epilog,
			[]Finding{{Code: code.Broken, Repeated: true}}, 0, config.Warn, 0, false},
		{"a driver that is gone at two jobs", enforcing(), slurm.Prolog, []Finding{{Code: code.NoDriver, Repeated: true}}, 0, config.Drain, 22, false},
		{"own faults drain where the admin says so", enforcing(func(c *config.Config) { c.OnUnknown = config.Drain }), slurm.Epilog,
			[]Finding{{Code: code.BackendMissing}}, 0, config.Drain, 32, false},
		{"own notes never drain", enforcing(func(c *config.Config) { c.OnUnknown = config.Drain }), slurm.Epilog,
			[]Finding{{Code: code.NoRecord}, {Code: code.Again}, {Code: code.Output, Observed: "hung"}}, 0, config.Note, 0, false},
		{"a note about a GPU never drains", enforcing(func(c *config.Config) {
			c.Policy.Epilog = map[code.Code]config.Action{code.Ended: config.Drain, code.Unjudged: config.Drain}
		}), slurm.Epilog, []Finding{{Code: code.Ended}, {Code: code.Unjudged}}, 0, config.Warn, 0, false},
		{"a partition's own rule comes first", enforcing(func(c *config.Config) {
			c.Policy.Partitions = map[string]config.PartitionPolicy{"p": {Epilog: map[code.Code]config.Action{code.Orphan: config.Note}}}
		}), slurm.Epilog, []Finding{sure}, 0, config.Note, 0, false},
		{"a partition's own mode comes first", enforcing(func(c *config.Config) {
			c.Policy.Partitions = map[string]config.PartitionPolicy{"p": {Mode: config.Observe}}
		}), slurm.Epilog, []Finding{sure}, 0, config.Warn, 0, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v := Decide(tt.cfg, tt.phase, slurm.Job{Partition: "p", Restarts: tt.restarts}, tt.found)
			if v.Action != tt.action || v.Exit != tt.exit || (v.Held != "") != tt.held {
				t.Errorf("Decide = %+v, want %s, exit %d, held %v", v, tt.action, tt.exit, tt.held)
			}
			if len(v.Judged) != len(tt.found) {
				t.Errorf("judged %d of %d findings", len(v.Judged), len(tt.found))
			}
		})
	}
}

// The health check drains for nothing, whatever is configured; its exit code says only whether it checked.
func TestHealthCheckNeverDrains(t *testing.T) {
	c := enforcing(func(c *config.Config) { c.OnUnknown = config.Drain })
	c.Policy.HealthCheck = map[code.Code]config.Action{}
	for _, e := range code.All() {
		c.Policy.HealthCheck[e.Code] = config.Drain // no file may say so
		v := Decide(c, slurm.HealthCheck, slurm.Job{}, []Finding{{Code: e.Code}})
		want := map[code.Code]int{code.BadEnv: 31, code.Panicked: 41, code.Deadline: 42}[e.Code]
		if v.Action != config.Warn || v.Exit != want || v.Judged[0].Action != config.Warn {
			t.Errorf("%s: %+v", e.Code, v)
		}
	}
}

// A second look adds what it found, and takes back no more than what it proves gone.
func TestAgain(t *testing.T) {
	held := Finding{Code: code.Orphan, GPU: card, Bytes: gpu.Bytes(gib), Holder: &Holder{Process: orphan}}
	residue := Finding{Code: code.Residue, GPU: card, Bytes: gpu.Bytes(gib)}
	trespass := Finding{Code: code.Trespass, GPU: "GPU-1", Holder: &Holder{Process: attrib.Process{PID: 80}}}
	untraced := Finding{Code: code.Untraced, Unknown: "one process hung"}
	moving, unread := Finding{Code: code.Moving, GPU: card, Unknown: "after 2.0 s"}, Finding{Code: code.Unread, GPU: card, Unknown: "no reading"}
	later := held
	later.Bytes = gpu.Bytes(2 * gib)
	clean, flat := side(at(200), settle.Clean, reading(0)), side(at(200), settle.Flat, reading(gib))
	still := side(at(200), settle.Moving, reading(gib, listed(70, gib)), orphan)
	gone := side(at(200), settle.Moving, reading(gib))
	young := orphan
	young.Start = at(199)
	reused := side(at(200), settle.Moving, reading(gib, listed(70, gib)), young)
	blind := Side{Curves: map[gpu.ID]settle.Curve{card: {State: settle.Unknown}}}

	for name, tt := range map[string]struct {
		first, second []Finding
		now           Side
		want          string // codes; "?" marks one with a doubt
	}{
		"it is clean":                   {[]Finding{held, residue, untraced}, nil, clean, ""},
		"something else is there":       {[]Finding{held}, []Finding{residue}, flat, "BKD-RESIDUE "},
		"the process has gone":          {[]Finding{held}, []Finding{moving}, gone, "BKD-MOVING "},
		"its PID is another's":          {[]Finding{held}, []Finding{moving}, reused, "BKD-MOVING "},
		"it is there still":             {[]Finding{held}, []Finding{moving}, still, "BKD-ORPHAN? BKD-MOVING "},
		"named again":                   {[]Finding{held, moving}, []Finding{later, moving}, still, "BKD-ORPHAN BKD-MOVING "},
		"not read":                      {[]Finding{held, residue}, []Finding{unread}, blind, "BKD-ORPHAN? BKD-RESIDUE? BKD-UNREAD "},
		"other GPUs are not seen again": {[]Finding{trespass}, nil, clean, "BKD-TRESPASS "},
	} {
		got := ""
		for _, f := range ending(tt.now).Again(tt.first, tt.second) {
			mark := ""
			if len(f.Doubts) > 0 {
				mark = "?"
			}
			got += fmt.Sprintf("%s%s ", f.Code, mark)
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
	if len(held.Doubts) > 0 {
		t.Errorf("the first list was changed: %+v", held)
	}
}
