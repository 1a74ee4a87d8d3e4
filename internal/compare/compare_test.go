package compare

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"bookend/internal/attribution"
	"bookend/internal/catalog"
	"bookend/internal/gpu"
	"bookend/internal/record"
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

func side(when time.Duration, state record.State, r gpu.Reading, procs ...record.Process) record.Side {
	s := record.Side{
		Snapshot:  gpu.Snapshot{At: when, Readings: []gpu.Reading{r}},
		Curves:    map[gpu.ID]record.Curve{card: {State: state, Looks: 8, Span: 4 * time.Second, Steady: state != record.Moving}},
		Processes: map[int]record.Process{},
		Scan:      &record.Scan{Looked: 300},
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
func ending(now record.Side) Input {
	before := side(at(100), record.Clean, reading(0))
	return Input{
		Job:    slurm.Job{Context: slurm.Epilog, ID: 10, UID: alice},
		Cards:  []record.Assigned{{Index: 0, Device: gpu.Device{ID: card}}},
		Before: &before, Now: now,
		Book: attribution.Book{
			Self: attribution.Allocation{Job: 10, UID: alice, GPUs: []gpu.ID{card}, Start: at(100), Alone: true},
		},
		Limits: record.Limits{Report: 32 * mib, Drain: 512 * mib, PerClient: 9 * mib},
	}
}

var orphan = record.Process{PID: 70, UID: alice, Start: at(150), Name: "python"}

func orphanSide() record.Side {
	return side(at(200), record.Flat, reading(20*gib+9*mib, listed(70, 20*gib)), orphan)
}

func with(s Input, edits ...func(*Input)) Input {
	for _, edit := range edits {
		edit(&s)
	}
	return s
}

// between is a look at a card that nobody has: job 9 of alice had it from 50 to 90 s.
func between(now record.Side) Input {
	return Input{
		Job:   slurm.Job{Context: slurm.HealthCheck, Node: "n1"},
		Cards: []record.Assigned{{Index: 0, Device: gpu.Device{ID: card}}},
		Now:   now,
		Book: attribution.Book{
			Others: []attribution.Allocation{{Job: 9, UID: alice, GPUs: []gpu.ID{card}, Start: at(50), End: at(90), Alone: true}},
		},
		Limits: record.Limits{Report: 32 * mib, Drain: 512 * mib, PerClient: 9 * mib},
	}
}

// on is PID 70 with 20 GiB on the GPU at this second; unlisted as much memory that no process is listed for.
func on(when float64, p record.Process) record.Side {
	return side(at(when), record.Flat, reading(20*gib+9*mib, listed(70, 20*gib)), p)
}

func having(when float64, bytes uint64, p record.Process) record.Side {
	return side(at(when), record.Flat, reading(bytes+9*mib, listed(70, bytes)), p)
}

func unlisted(when float64) record.Side { return side(at(when), record.Flat, reading(20*gib)) }

func in(job slurm.JobID, p record.Process) record.Process { p.Cgroup.ID = job; return p }

func by(uid uint32, p record.Process) record.Process { p.UID = uid; return p }

func state(s string, p record.Process) record.Process { p.State = s; return p }

func named(job slurm.JobID, p record.Process) record.Process { p.EnvJobID = job; return p }

func withStep(p record.Process) record.Process { here(&p); return p }

func unopened(p record.Process) record.Process { p.DeviceUnknown = "not read in time"; return p }

func hangs(p record.Process) record.Process { p.EnvUnknown = "it does not answer"; return p }

func steps(p record.Process, jobs ...slurm.JobID) record.Process { p.Steps = jobs; return p }

func mpsNamed(p record.Process) record.Process { p.Name = "nvidia-cuda-mps"; return p }

func inContainer(p record.Process) record.Process { p.OtherPIDs = true; return p }

func since(second float64, p record.Process) record.Process { p.Start = at(second); return p }

// environed is a process whose environment names a job without a record.
func environed(p record.Process) record.Process {
	p.EnvJobID, p.EnvJobHere = 77, "it has a step here"
	return p
}

func daemon(p record.Process) record.Process { p.Cgroup.Daemon = true; return p }

func service(name string, p record.Process) record.Process { p.Service = name; return p }

// Edits of a scene.
func others(all ...attribution.Allocation) func(*Input) {
	return func(s *Input) { s.Book.Others = all }
}
func left(all ...record.Finding) func(*Input) { return func(s *Input) { s.Book.Left = all } }
func sawAlive(job slurm.JobID) func(*Input) {
	return func(s *Input) {
		s.Book.Self.Seen = []record.Sighting{{PID: 70, Start: at(150), Owner: slurm.Owner{ID: job}}}
	}
}
func wasEnding(start float64, pid int, seen float64) func(*Input) {
	return func(s *Input) {
		s.Book.Ending = map[record.Instance]time.Duration{{PID: pid, Start: at(start)}: at(seen)}
	}
}
func unread(p record.Process) func(*Input) {
	return func(s *Input) { s.Now.Scan.Unread = append(s.Now.Scan.Unread, hangs(p)) }
}
func ended(s *Input)                       { s.Book.Self.End = at(200) }
func before(then record.Side) func(*Input) { return func(s *Input) { s.Before = &then } }
func shared(s *Input)                      { s.Shared = "partition" }
func perhaps(s *Input)                     { s.SharedUnknown = "no gres.conf" }
func instance(s *Input)                    { s.Cards[0].Device.Parent = "GPU-9" }
func inside(s *Input)                      { s.Doubt = "RunInJob" }
func site(s *Input)                        { s.MPSUIDs = []int{993} }
func unrecorded(s *Input)                  { s.Before = nil }

// clients is a driver that was seen to hold so many MiB for a process beyond its figure.
func clients(share uint64) func(*Input) {
	return func(s *Input) { s.Clients = map[string]uint64{"": share * mib} }
}

// crowded is an end with three processes of 2 GiB, and so many MiB beyond their figures.
func crowded(beyond uint64) Input {
	r, two, three := reading(6*gib+beyond*mib), orphan, orphan
	two.PID, three.PID = 71, 72
	for pid := 70; pid <= 72; pid++ {
		r.Processes = append(r.Processes, listed(pid, 2*gib))
	}
	return searched(side(at(200), record.Flat, r, orphan, two, three))
}
func beginning(s *Input) { s.Before, s.Job.Context, s.Book.Self.Start = nil, slurm.Prolog, 0 }

// leftBy is what an end's record says of one job.
func leftBy(job slurm.JobID, c catalog.Code, bytes uint64, candidates ...record.Holder) record.Finding {
	f := record.Finding{Code: c, GPU: card, Bytes: gpu.Bytes(bytes), Owner: &record.Owner{Job: job, UID: alice, Level: record.ByExclusive}}
	if f.Candidates = candidates; c != catalog.Residue {
		f.Holder = &record.Holder{Process: record.Process{PID: 70, Gone: true}}
	}
	return f
}

// What is found on a GPU, whose it is by which evidence, who may hold it, and what keeps it from being certain.
func TestCompare(t *testing.T) {
	gone := record.Process{PID: 70, Gone: true}
	child, keeper := record.Process{PID: 71, UID: alice, Start: at(151)}, record.Process{PID: 71, UID: alice, Start: at(60)}
	second, ofRun, mps := child, keeper, orphan
	second.PID, ofRun.Cgroup.SLUID, mps.Exe = 72, "sA", "/usr/bin/nvidia-cuda-mps-server"
	monitor := record.Process{PID: 72, UID: 1002, Start: at(20)}
	early := since(60, orphan)
	live := attribution.Allocation{Job: 11, UID: 1002, GPUs: []gpu.ID{"GPU-1"}, Start: at(90), Alone: true}
	rival := live
	rival.UID = alice
	earlier := attribution.Allocation{Job: 9, UID: alice, GPUs: []gpu.ID{card}, Start: at(40), End: at(90), Alone: true}
	here, elsewhere, unseen := earlier, earlier, earlier
	here.End, elsewhere.End, elsewhere.GPUs, unseen.Unseen = 0, 0, []gpu.ID{"GPU-1"}, true
	unseenElsewhere := unseen
	unseenElsewhere.GPUs = []gpu.ID{"GPU-1"}
	lost := func(looks record.Curve) func(*Input) {
		return func(s *Input) {
			s.Now.Curves[card] = looks
			s.Now.Snapshot.Faults = []gpu.Fault{{Code: gpu.FaultLost, Device: card, Detail: "GPU is lost"}}
		}
	}
	old := since(20, orphan)
	blind := side(at(100), record.Unreadable, reading(0))
	blind.Snapshot.Readings[0].Memory.Used = gpu.Unknown("not supported")
	hidden := onCard(in(11, record.Process{PID: 71, UID: 1002, Start: at(151), Exe: "/home/bob/nvidia-cuda-mps-x"}), 3)
	unjudged := func(when float64, listing ...record.Process) record.Side { // the operating system keeps files in its memory
		r, state := reading(9*gib), record.Unreadable
		for _, p := range listing {
			r.Processes, state = append(r.Processes, listed(p.PID, 8*gib)), record.Flat
		}
		r.Memory.Unjudged = "files are in it"
		return side(at(when), state, r, listing...)
	}
	small := reading(618*mib, listed(70, 300*mib), listed(71, 300*mib))
	both := reading(20*gib+58*mib, listed(60, 40*mib), listed(70, 20*gib))
	dcgm := record.Process{PID: 60, Start: at(5), Service: "dcgm.service"}
	beside := func(p record.Process, extra uint64) Input {
		return ending(side(at(200), record.Flat, reading(2*gib+9*mib+extra, listed(50, 2*gib)), p))
	}
	moving := func(least uint64, facts record.Process) record.Side {
		s := side(at(200), record.Moving, reading(21*gib, listed(70, least), listed(71, gib)), facts, by(1002, child))
		s.Stayed = map[gpu.ID][]record.Stay{card: {{Process: gpu.Process{PID: 70, Memory: gpu.Bytes(least)}, Soon: least, Ending: facts.Gone}}}
		return s
	}
	over := attribution.Allocation{Job: 10, UID: alice, Start: at(100), End: at(160)}
	held := func(p record.Process) record.Holder {
		h := record.Holder{Process: p}
		if p.UID == alice {
			h.Owner = &record.Owner{Job: 8, UID: alice, Level: record.ByExclusive}
		}
		return h
	}
	surely := leftBy(9, catalog.Phantom, 20*gib)
	surely.Owner.Level = record.BySighting
	elsewhereLeft := leftBy(9, catalog.Phantom, 20*gib)
	elsewhereLeft.GPU = "GPU-1"
	start := func(now record.Side, edits ...func(*Input)) Input {
		return with(ending(now), append(edits, beginning)...)
	}
	for _, tt := range []struct {
		name  string
		scene Input
		want  string // codes, with the owner, its level and the candidates
		doubt string // of the first, where it is not certain; "-" for none, "" for what does not matter
	}{
		{"an orphan", ending(orphanSide()), "ORPHAN 10 exclusive", "-"},
		{"memory and no process", ending(unlisted(200)), "RESIDUE 10 exclusive", "-"},
		{"a listed PID that is gone", ending(on(200, gone)), "PHANTOM 10 exclusive", "-"},
		{"one that was seen in the job's cgroup", with(ending(on(200, gone)), sawAlive(10)), "PHANTOM 10 sighting", "-"},
		{"one that was seen in another's", with(ending(on(200, gone)), sawAlive(11)), "PHANTOM", "-"},
		{"one that was seen in another's, which has ended", with(ending(on(200, gone)), others(attribution.Allocation{Job: 11, UID: 1002, GPUs: []gpu.ID{"GPU-1"}, Start: at(90), End: at(180), Seen: []record.Sighting{{PID: 70, Start: at(150), Owner: slurm.Owner{ID: 11}}}})), "PHANTOM", "-"},
		{"one that was seen in another's, before this job", with(ending(on(200, gone)), sawAlive(11), func(s *Input) { s.Book.Self.Seen[0].Start = at(60) }), "PHANTOM 10 exclusive", "-"},
		{"one that was seen in another's, and this job's has the GPU open", with(searched(on(200, gone), onCard(in(10, child), 3)), sawAlive(11)), "PHANTOM 10 exclusive [71]", "-"},
		{"another user's, outside any job", ending(on(200, by(1002, orphan))), "STRAY", "-"},
		{"root's may be a service", ending(on(200, by(0, orphan))), "STRAY", "root's"},
		{"a service run as the job's user", ending(on(200, service("x.service", orphan))), "STRAY", "service"},
		{"another live job's", with(ending(on(200, in(11, orphan))), others(live)), "FOREIGN 11 cgroup", "live job"},
		{"still moving", ending(side(at(200), record.Moving, reading(20*gib))), "MOVING", "still changing"},
		{"no record of the start", with(ending(orphanSide()), unrecorded), "STRAY", "no record"},
		{"the same process was there before", with(ending(on(200, old)), before(on(100, old))),
			"DIRTY", "before this job"},
		{"below the drain threshold", ending(side(at(200), record.Flat, reading(300*mib))),
			"RESIDUE 10 exclusive", "300 MiB"},
		{"little ones add up", ending(side(at(200), record.Flat, small, orphan, record.Process{PID: 71, UID: alice, Start: at(151)})),
			"ORPHAN 10 exclusive ORPHAN 10 exclusive", "-"},
		{"another live job was given the GPU", with(ending(unlisted(200)), others(attribution.Allocation{Job: 12, UID: 1002, GPUs: []gpu.ID{card}, Start: at(110)}), func(s *Input) { s.Book.Self.Alone = false }),
			"RESIDUE", "job 12 was given"},
		{"legal sharing names the job's own", with(ending(on(200, in(10, orphan))), shared),
			"ORPHAN 10 cgroup", "may be shared"},
		{"a live rival of the same user", with(ending(orphanSide()), others(rival)),
			"ORPHAN 10 exclusive", "job 11 could own it"},
		{"no one can tell whether it has a GPU open", ending(on(200, unopened(by(1002, orphan)))), "STRAY", "has a GPU open"},
		{"nor whether the job's own has", ending(on(200, unopened(orphan))), "ORPHAN 10 exclusive", "-"},
		{"an invented job in its environment", ending(on(200, named(424242, orphan))), "ORPHAN", "-"},
		{"another user's, with an invented job", ending(on(200, named(424242, by(1002, orphan)))), "STRAY", "-"},
		{"the environment's job is here", ending(on(200, withStep(named(777, orphan)))), "ORPHAN", "job 777 could own it"},
		{"no one can tell whether it is shared", with(ending(orphanSide()), perhaps),
			"ORPHAN 10 exclusive", "no gres.conf"},
		{"a MIG instance", with(ending(orphanSide()), instance), "ORPHAN 10 exclusive", "MIG"},
		{"inside the job", with(ending(orphanSide()), inside), "ORPHAN 10 exclusive", "RunInJob"},
		{"slurmstepd's own child, inside the job", with(ending(on(200, daemon(in(10, orphan)))), inside), "", ""},
		{"slurmstepd's own child", ending(on(200, daemon(in(10, orphan)))), "ORPHAN 10 cgroup", "-"},
		{"a lost GPU", with(ending(side(at(200), record.Unreadable, gpu.Reading{})), lost(record.Curve{State: record.Unreadable, Steady: true})),
			"LOST", "-"},
		{"a lost GPU that others may share", with(ending(side(at(200), record.Unreadable, gpu.Reading{})), lost(record.Curve{State: record.Unreadable, Steady: true}),
			func(s *Input) { s.Shared, s.RunDoubt = "it is given out in shards", "another run's" }), "LOST", "-"},
		{"a fault seen once", with(ending(side(at(200), record.Unreadable, gpu.Reading{})), lost(record.Curve{State: record.Unreadable, Looks: 1})),
			"LOST", "1 looks"},
		{"a GPU that does not answer", with(ending(side(at(200), record.Unreadable, gpu.Reading{})), lost(record.Curve{State: record.Unreadable, Steady: true}),
			func(s *Input) { s.Now.Snapshot.Faults[0].Code = gpu.FaultDriver }), "NOANSWER", "-"},
		{"one that the hook may not open", with(ending(side(at(200), record.Unreadable, gpu.Reading{})), lost(record.Curve{State: record.Unreadable, Steady: true}),
			func(s *Input) { s.Now.Snapshot.Faults[0].Code = gpu.FaultForbidden }), "NOANSWER", "permissions"},
		{"another part of its GPU is lost", with(ending(orphanSide()), instance, func(s *Input) {
			s.Cards[0].Device.BusID = "0000:10:00.0"
			s.Now.Snapshot.Faults = []gpu.Fault{{Code: gpu.FaultLost, Device: "MIG-2", BusID: "0000:10:00.0"}}
		}), "ORPHAN 10 exclusive", "MIG"},
		{"it is ending", ending(on(200, state("X", orphan))), "ORPHAN 10 exclusive", "it is ending"},
		{"it sleeps in the kernel", ending(on(200, state("D", orphan))), "ORPHAN 10 exclusive", "-"},
		{"an earlier hook saw it ending", with(ending(on(200, state("X", orphan))), wasEnding(150, 70, 150)),
			"ORPHAN 10 exclusive", "-"},
		{"this watch saw it ending before", with(ending(on(200, state("X", orphan))), wasEnding(150, 70, 197)),
			"ORPHAN 10 exclusive", "it is ending"},
		{"another of its PID was ending", with(ending(on(200, state("X", orphan))), wasEnding(120, 70, 150)),
			"ORPHAN 10 exclusive", "it is ending"},
		{"its first thread has ended", ending(on(200, state("Z", orphan))), "ORPHAN 10 exclusive", "-"},
		{"the start's memory was unknown", with(ending(unlisted(200)), before(blind)), "RESIDUE", "not supported"},
		{"memory that cannot be judged", with(ending(orphanSide()), func(s *Input) { s.Now.Snapshot.Readings[0].Memory.Unjudged = "shared with the host" }),
			"ORPHAN 10 exclusive", "-"},
		{"memory that cannot be judged, and no process at the start", with(ending(unjudged(200, orphan)), before(unjudged(100))),
			"ORPHAN 10 exclusive", "-"},
		{"memory that cannot be judged, and one there at the start", with(ending(unjudged(200, orphan)), before(unjudged(100, by(1002, old)))),
			"ORPHAN 10 exclusive", "not clean when the job started"},
		{"an untrusted list accuses no one", with(ending(orphanSide()), func(s *Input) { s.Now.Snapshot.Readings[0].ProcessesUnknown = "PID above pid_max" }),
			"UNREAD", "pid_max"},
		{"an unseen end: its process", with(ending(on(200, in(9, early))), others(unseen)),
			"STRAY 9 cgroup", "no one saw the end of its job 9"},
		{"an unseen end: its GPU", with(ending(on(200, in(10, orphan))), others(unseen)),
			"ORPHAN 10 cgroup", "and no one saw its end"},
		{"an unseen end: a candidate", with(searched(unlisted(200), onDriver(in(9, keeper))), others(unseenElsewhere)),
			"RESIDUE [71]", "no one saw the end of its job 9"},

		// A service's gigabytes are no reason to drain for a few MiB beside them, and memory beside a process that may hold
		// it is nobody's for certain. Services with little memory are part of the node.
		{"little beside root's", beside(record.Process{PID: 50, Start: at(150)}, 40*mib), "STRAY RESIDUE", "root's"},
		{"much beside root's", beside(record.Process{PID: 50, Start: at(150)}, 20*gib), "STRAY RESIDUE", "root's"},
		{"little beside a live job's", with(beside(in(11, record.Process{PID: 50, UID: 1002, Start: at(150)}), 40*mib), others(live)),
			"FOREIGN 11 cgroup RESIDUE", "live job"},
		{"much beside a live job's", with(beside(in(11, record.Process{PID: 50, UID: 1002, Start: at(150)}), 20*gib), others(live)),
			"FOREIGN 11 cgroup RESIDUE", "live job"},
		{"a service", ending(side(at(200), record.Flat, reading(49*mib, listed(60, 40*mib)), dcgm)), "", ""},
		{"a service with much memory", ending(side(at(200), record.Flat, reading(2*gib+9*mib, listed(60, 2*gib)), dcgm)), "STRAY", "service"},
		{"an orphan beside a service that was there", with(ending(side(at(200), record.Flat, both, dcgm, orphan)),
			before(side(at(100), record.Flat, reading(49*mib, listed(60, 40*mib)), dcgm))), "ORPHAN 10 exclusive", "-"},

		// A process that every look of the watch shows is named whatever the total does, with the least that it ever held.
		{"stayed: the job's own", ending(moving(19*gib, in(10, orphan))), "ORPHAN 10 cgroup MOVING", "-"},
		{"stayed, between jobs", with(between(moving(19*gib, in(10, orphan))), others(over)), "ORPHAN 10 cgroup MOVING", "-"},
		{"stayed: little at one look", ending(moving(500*mib, in(10, orphan))), "ORPHAN 10 cgroup MOVING", "500 MiB"},
		{"stayed: it had just ended", ending(moving(19*gib, gone)), "PHANTOM 10 exclusive MOVING", "had just ended"},
		{"stayed: a live job's", with(ending(moving(19*gib, in(11, orphan))), others(live)), "FOREIGN 11 cgroup MOVING", "live job"},
		{"stayed: the node's own little", ending(moving(mib, service("x.service", since(5, orphan)))), "MOVING", ""},
		{"stayed: its first thread has ended", ending(moving(19*gib, state("Z", in(10, orphan)))), "ORPHAN 10 cgroup MOVING", "-"},

		// Who may hold a dead process's memory: whoever has this very GPU open.
		{"the forked child", searched(on(200, gone), onCard(child, 3)), "PHANTOM 10 exclusive [71]", "-"},
		{"its PID is another process's", searched(on(200, record.Process{PID: 70, Gone: true, Reused: true}), onCard(child, 3)),
			"PHANTOM 10 exclusive [71]", "-"},
		{"the user's own, with an invented job", searched(on(200, gone), onCard(named(777, child), 3)),
			"PHANTOM [71]", "-"},
		{"in the job's cgroup still", searched(on(200, gone), onCard(in(10, child), 3)), "PHANTOM 10 cgroup [71]", "-"},
		{"a dead PID of this job, while an earlier job's process watches", with(searched(on(200, gone), onCard(in(9, keeper), 3)), others(earlier), sawAlive(10)),
			"PHANTOM [71]", "-"},
		{"without a start, an earlier job's process has it open", with(searched(on(200, gone), onCard(in(9, keeper), 3)), others(earlier), unrecorded),
			"PHANTOM 9 exclusive [71]", "no record"},
		{"without a start, this job's has", with(searched(on(200, gone), onCard(in(10, child), 3)), unrecorded),
			"PHANTOM 10 exclusive [71]", "no record"},
		{"a dead PID that was there, which this job's child has open", with(searched(on(200, gone), onCard(in(10, child), 3)), before(on(100, gone))),
			"DIRTY [71]", "before this job"},
		{"a dead PID that was there, which an earlier job's has open", with(searched(on(200, gone), onCard(in(9, keeper), 3)), before(on(100, gone)), others(earlier)),
			"DIRTY 9 exclusive [71]", "before this job"},
		{"the weakest evidence counts", searched(on(200, gone), onCard(in(10, child), 3), onCard(second, 3)),
			"PHANTOM 10 exclusive [71 72]", "-"},
		{"a service of the node", searched(on(200, gone), onCard(since(20, service("dcgm.service", child)), 3)),
			"PHANTOM 10 exclusive", "-"},
		{"a service since the job began", searched(on(200, gone), onCard(by(0, service("x.service", child)), 3)),
			"PHANTOM [71]", "service"},
		{"a live job's has it open", with(searched(on(200, gone), onCard(in(11, by(1002, child)), 3)), others(live)),
			"PHANTOM [71]", "live job"},
		{"a live job's under MPS's name", with(searched(on(200, gone), hidden), others(live)),
			"PHANTOM [71]", "live job"},
		{"another user's under MPS's name", searched(on(200, gone), onCard(mpsNamed(by(1002, child)), 3)), "PHANTOM [71]", "-"},
		{"one under root's in a container", searched(on(200, gone), onCard(inContainer(mpsNamed(by(0, child))), 3)), "PHANTOM [71]",
			"may hold it"},
		{"a daemon of MPS that root runs", searched(on(200, gone), onCard(mpsNamed(by(0, child)), 3)),
			"PHANTOM 10 exclusive", "-"},
		{"the driver holds more for each process than was measured", with(crowded(80), clients(20)), "ORPHAN 10 exclusive ORPHAN 10 exclusive ORPHAN 10 exclusive RESIDUE", ""},
		{"the driver holds less", with(crowded(80), clients(8)), "ORPHAN 10 exclusive ORPHAN 10 exclusive ORPHAN 10 exclusive RESIDUE 10 exclusive", "-"},
		{"no recording tells", crowded(80), "ORPHAN 10 exclusive ORPHAN 10 exclusive ORPHAN 10 exclusive RESIDUE 10 exclusive", "-"},
		{"more than the driver holds", with(crowded(93), clients(20)), "ORPHAN 10 exclusive ORPHAN 10 exclusive ORPHAN 10 exclusive RESIDUE 10 exclusive", "-"},
		{"enough to drain", with(crowded(540), clients(64*16)), "ORPHAN 10 exclusive ORPHAN 10 exclusive ORPHAN 10 exclusive RESIDUE 10 exclusive", "-"},
		{"a GPU without a number", with(searched(on(200, gone), onCard(in(11, by(1002, child)), 1)), others(live), func(s *Input) { s.Cards[0].Device.Minor = nil }),
			"PHANTOM [71]", "live job"},
		{"a job without a record", searched(on(200, gone), onCard(in(99, child), 3)),
			"PHANTOM [71]", "could not be told"},
		{"the search was cut short", with(searched(on(200, gone)), func(s *Input) { s.Now.Scan.Partial = "out of time" }),
			"PHANTOM", "out of time"},

		// A process whose memory cannot be read excuses nothing if it is of a job that is over.
		{"one of the job's hangs", with(searched(on(200, gone)), unread(child)), "PHANTOM 10 exclusive", "-"},
		{"one in the job's cgroup hangs", with(searched(unlisted(200)), unread(in(10, child))), "RESIDUE 10 exclusive", "-"},
		{"the holder hangs", with(searched(unlisted(200), onDriver(hangs(child))), unread(child)), "RESIDUE 10 exclusive [71]", "-"},
		{"one of an earlier job's hangs", with(searched(on(200, gone)), others(earlier), unread(in(9, keeper))), "PHANTOM", "-"},
		{"one of a live job's hangs", with(searched(on(200, gone)), others(live), unread(in(11, child))), "PHANTOM", "not every process"},
		{"one of another user hangs", with(searched(unlisted(200)), unread(by(1002, child))), "RESIDUE", "not every process"},
		{"one of root's hangs", with(searched(unlisted(200)), unread(by(0, child))), "RESIDUE", "not every process"},
		{"one that may be a job's without a record", with(searched(on(200, gone)), unread(steps(child, 10, 77))),
			"PHANTOM 10 exclusive", "not every process"},
		{"one that may be this job's alone", with(searched(on(200, gone)), unread(steps(child, 10))), "PHANTOM 10 exclusive", "-"},
		{"the orphan hangs", ending(on(200, hangs(orphan))), "ORPHAN 10 exclusive", "-"},
		{"the orphan hangs, in a cgroup", ending(on(200, hangs(in(10, orphan)))), "ORPHAN 10 cgroup", "-"},
		{"what hangs may be of a job without a record", ending(on(200, steps(hangs(orphan), 77))),
			"ORPHAN 10 exclusive", "job 77 could own it"},
		{"another user's hangs", ending(on(200, hangs(by(1002, orphan)))), "STRAY", "could not be told"},
		{"a dead PID that was there", with(ending(on(200, gone)), before(on(100, gone)), left(leftBy(9, catalog.Phantom, 20*gib))),
			"DIRTY 9 exclusive", "before this job"},
		{"one that was there, and was seen in its job's cgroup then", with(ending(on(200, gone)), before(on(100, gone)), left(surely)),
			"DIRTY 9 exclusive", "before this job"},
		{"less of a dead PID that was there", with(ending(having(200, 10*gib, gone)), before(on(100, gone))),
			"DIRTY", "before this job"},
		{"less of one that lived then", with(ending(having(200, 10*gib, gone)), before(on(100, old))), "DIRTY", "before this job"},
		{"no one knows how much it had then", with(ending(on(200, gone)), before(side(at(100), record.Flat,
			reading(20*gib, gpu.Process{PID: 70, Memory: gpu.Unknown("not available")}), gone))), "DIRTY", "before this job"},
		{"more of one that lived then", with(ending(on(200, gone)), before(having(100, 10*gib, old))), "DIRTY", "before this job"},
		{"more of it than was there", with(ending(on(200, gone)), before(having(100, 10*gib, gone))),
			"PHANTOM 10 exclusive", "not clean when the job started"},
		{"its number was seen in its job's cgroup", with(ending(on(200, gone)), before(on(100, gone)), left(leftBy(9, catalog.Phantom, 20*gib)), sawAlive(9)),
			"DIRTY 9 exclusive", "before this job"},
		{"a guess while its job has ended", with(searched(on(100, gone), onCard(in(9, keeper), 3)), others(earlier), beginning),
			"DIRTY 9 exclusive [71]", ""},

		// Who may hold memory that no process is listed for: whoever has the driver open and nothing that explains why.
		{"one has the driver open", searched(unlisted(200), onDriver(child)), "RESIDUE 10 exclusive [71]", "-"},
		{"an innocent second one", searched(unlisted(200), onDriver(child), onDriver(monitor)),
			"RESIDUE 10 exclusive [71 72]", "which one does cannot be told"},
		{"two of the job's own", searched(unlisted(200), onDriver(child), onDriver(second)), "RESIDUE 10 exclusive [71 72]", "-"},
		{"two of the job's own, of which one may be another's", with(searched(unlisted(200), onDriver(child), onDriver(withStep(named(777, second))))),
			"RESIDUE [71 72]", "job 777 could own it"},
		{"the job's own and an earlier job's", with(searched(unlisted(200), onDriver(child), onDriver(in(9, since(60, second)))), others(earlier)),
			"RESIDUE 10 exclusive [71 72]", "-"},
		{"the start listed a process of an earlier job's, which has ended", with(searched(unlisted(200), onDriver(child), onDriver(in(9, since(60, second)))), others(earlier), before(on(100, in(9, early)))),
			"RESIDUE [71 72]", "not clean when the job started"},
		{"the start listed a service, which has ended", with(searched(unlisted(200), onDriver(child)), before(side(at(100), record.Flat, reading(49*mib, listed(60, 40*mib)), dcgm))),
			"RESIDUE 10 exclusive [71]", "-"},
		{"another's that came with it", searched(unlisted(200), onDriver(child), onDriver(record.Process{PID: 72, UID: 1002, Start: at(160)})),
			"RESIDUE [71 72]", "which one does cannot be told"},
		{"root's", searched(unlisted(200), onDriver(record.Process{PID: 72, Start: at(20)})), "RESIDUE [72]", "root's"},
		{"as little as a service may have", searched(side(at(200), record.Flat, reading(64*mib)), onCard(dcgm, 3)), "RESIDUE", ""},
		{"a byte more", searched(side(at(200), record.Flat, reading(64*mib+1)), onCard(dcgm, 3)), "RESIDUE 10 exclusive", ""},
		{"one with another GPU", searched(unlisted(200), onCard(child, 1)), "RESIDUE 10 exclusive", "-"},
		{"another user's with another GPU", searched(unlisted(200), onCard(monitor, 1)),
			"RESIDUE", "for another reason"},
		{"another user's under MPS's name, that came with it",
			searched(unlisted(200), onDriver(mpsNamed(by(1002, child)))), "RESIDUE [71]", "-"},
		{"a live job's under MPS's name", with(searched(unlisted(200), hidden), others(live)), "RESIDUE [71]", "live job"},
		{"another run's of the job", with(searched(unlisted(200), onDriver(ofRun)), others(attribution.Allocation{Job: 10, SLUID: "sA", UID: alice, GPUs: []gpu.ID{"GPU-1"}, Start: at(50), End: at(90)}),
			func(s *Input) { s.Job.SLUID, s.Book.Self.SLUID = "sB", "sB" }), "RESIDUE [71]", "-"},
		{"a live job has the driver open", with(searched(unlisted(200), onDriver(in(11, child))), others(rival)),
			"RESIDUE [71]", "live job"},

		// A second end of a run adds no blame to what the first one found: others may have had the GPU since.
		{"memory that the first end did not find", with(searched(unlisted(300)), ended), "RESIDUE", ""},
		{"memory that the first end found", with(searched(unlisted(300)), ended, left(leftBy(10, catalog.Residue, 20*gib))),
			"RESIDUE 10 exclusive", ""},
		{"more than the first end found", with(searched(side(at(300), record.Flat, reading(30*gib))), ended, left(leftBy(10, catalog.Residue, 20*gib))),
			"RESIDUE", ""},
		{"a dead PID that it did not see", with(searched(on(300, gone)), ended), "PHANTOM", ""},
		{"a dead PID that it saw", with(searched(on(300, gone)), ended, left(leftBy(10, catalog.Phantom, 20*gib))),
			"PHANTOM 10 exclusive", ""},

		// At a start, and who is named for what lies there.
		{"a clean start", start(side(at(100), record.Clean, reading(0))), "", ""},
		{"an earlier job's orphan", start(on(100, early), others(earlier)), "DIRTY 9 exclusive", ""},
		{"a dead PID of an earlier job", start(on(100, gone), left(leftBy(9, catalog.Phantom, 20*gib))),
			"DIRTY 9 exclusive", ""},
		{"a dead PID, left on another GPU", start(on(100, gone), left(elsewhereLeft)), "DIRTY", ""},
		{"a dead PID, and other memory left", start(on(100, gone), left(leftBy(9, catalog.Residue, 20*gib))), "DIRTY", ""},
		{"another live job sits there", start(on(100, in(9, early)), others(elsewhere)), "FOREIGN 9 cgroup", ""},
		{"Slurm gave it to another live job", start(on(100, early), others(here)), "", ""},
		{"memory of one job", start(unlisted(100), left(leftBy(8, catalog.Residue, 20*gib-4*mib))),
			"DIRTY 8 exclusive", ""},
		{"less by the margin", start(unlisted(100), left(leftBy(8, catalog.Residue, 20*gib-AsMuch))),
			"DIRTY 8 exclusive", ""},
		{"less by a byte more", start(unlisted(100), left(leftBy(8, catalog.Residue, 20*gib-AsMuch-1))), "DIRTY", ""},
		{"root's may hold it", with(searched(unlisted(100), onDriver(record.Process{PID: 50, Start: at(50)})), beginning), "DIRTY [50]", "root's"},
		{"the figure fits one", start(unlisted(100), left(leftBy(9, catalog.Residue, gib), leftBy(8, catalog.Residue, 20*gib))),
			"DIRTY 8 exclusive", ""},
		{"it fits two", start(unlisted(100), left(leftBy(9, catalog.Residue, 20*gib), leftBy(8, catalog.Residue, 20*gib))),
			"DIRTY", ""},
		{"a process, not memory", start(unlisted(100), left(leftBy(8, catalog.Orphan, 20*gib))), "DIRTY", ""},
		{"with the same candidates", with(searched(unlisted(100), onDriver(keeper)), beginning, left(leftBy(8, catalog.Residue, 20*gib, held(keeper)))),
			"DIRTY 8 exclusive [71]", ""},
		{"another candidate ended", with(searched(unlisted(100), onDriver(keeper)), beginning, left(leftBy(8, catalog.Residue, 20*gib, held(keeper), held(monitor)))),
			"DIRTY 8 exclusive [71]", ""},
		{"the job's own candidate ended", with(searched(unlisted(100), onDriver(monitor)), beginning, left(leftBy(8, catalog.Residue, 20*gib, held(keeper), held(monitor)))),
			"DIRTY [72]", ""},
		{"a candidate came", with(searched(unlisted(100), onDriver(keeper), onDriver(since(95, monitor))), beginning, left(leftBy(8, catalog.Residue, 20*gib, held(keeper)))),
			"DIRTY [71 72]", ""},
		{"a candidate came, and none then", with(searched(unlisted(100), onDriver(monitor)), beginning, left(leftBy(8, catalog.Residue, 20*gib))),
			"DIRTY [72]", ""},
		{"the candidate's PID is another's", with(searched(unlisted(100), onDriver(since(95, keeper))), beginning, left(leftBy(8, catalog.Residue, 20*gib, held(keeper)))),
			"DIRTY [71]", ""},

		// A start may drain as well, where policy says so: not for what a job holds by right that Slurm has suspended.
		{"a live job with the GPU may hold it", start(unlisted(100), others(here)), "DIRTY", "job 9 was given"},
		{"a live job with the GPU may hold a dead process's", start(on(100, gone), others(here)), "DIRTY", "job 9 was given"},
		{"a job may hold it whose end no one saw", start(unlisted(100), others(unseen)), "DIRTY", "no one saw its end"},
		{"a live job with another GPU", start(unlisted(100), others(elsewhere)), "DIRTY", "-"},

		// Between jobs: a look at a GPU that nobody has.
		{"in the ended job's cgroup", between(on(200, in(9, early))), "ORPHAN 9 cgroup", ""},
		{"seen there by a health check", with(between(on(200, early)), func(s *Input) {
			s.Book.Self.Seen = []record.Sighting{{PID: 70, Start: at(60), Owner: slurm.Owner{ID: 9}}}
		}),
			"ORPHAN 9 sighting", ""},
		{"started while the job had the GPU", between(on(200, early)), "ORPHAN 9 exclusive", ""},
		{"a login", between(on(200, orphan)), "STRAY", ""},
		{"a server of MPS that waits", between(having(200, 66*mib, mps)), "", ""},
		{"a site's own at a job's end", with(ending(having(200, 66*mib, by(993, mps))), site), "", ""},
		{"a site's own, of a job's environment", with(ending(having(200, 66*mib, by(993, environed(mps)))), site), "", ""},
		{"another user's then", with(ending(having(200, 66*mib, by(1002, mps))), site), "STRAY", ""},
		{"much under the site's", with(ending(having(200, 129*mib, by(993, mps))), site), "STRAY", ""},
		{"the site's user, another program", with(ending(having(200, 66*mib, by(993, record.Process{PID: 70, Start: at(150), Name: "nvidia-cuda-mps", Exe: "/usr/bin/python3"}))), site), "STRAY", ""},
		{"the site's user in a container", with(ending(having(200, 66*mib, inContainer(by(993, mps)))), site), "STRAY", ""},
		{"much under its name", between(having(200, 129*mib, mps)), "STRAY", ""},
		{"as much as it likes under its name", between(on(200, mps)), "STRAY", ""},
		{"under its name, an unknown amount", between(side(at(200), record.Flat,
			reading(70*gib, gpu.Process{PID: 70, Memory: gpu.Unknown("not available")}), mps)), "STRAY RESIDUE", ""},
		{"under a dead PID, on record", with(between(on(200, gone)), left(leftBy(9, catalog.Phantom, 20*gib))),
			"PHANTOM 9 exclusive", ""},
		{"no one's memory, on record", with(between(unlisted(200)), left(leftBy(9, catalog.Residue, 20*gib))),
			"RESIDUE 9 exclusive", ""},
		{"on its way back", between(side(at(200), record.Moving, reading(2*gib))), "MOVING", ""},
		{"clean between jobs", between(side(at(200), record.Clean, reading(0))), "", ""},
	} {
		found := Compare(tt.scene)
		if got := inWords(t, found, tt.scene); got != tt.want {
			t.Errorf("%s: got %q, want %q: %+v", tt.name, got, tt.want, found)
		}
		if stayed := tt.scene.Now.Stayed[card]; len(found) > 1 && stayed != nil && found[0].Bytes != stayed[0].Memory {
			t.Errorf("%s: %+v, want the least, %+v", tt.name, found[0].Bytes, stayed[0].Memory)
		}
		for i, f := range found {
			if f.Code == catalog.Moving && i > 0 {
				continue
			}
			doubts := strings.Join(append(f.Doubts, f.Unknown), "; ")
			certain := len(f.Doubts) == 0 && f.Unknown == ""
			if tt.doubt != "" && (certain != (tt.doubt == "-") || i == 0 && !certain && !strings.Contains(doubts, tt.doubt)) {
				t.Errorf("%s: %s: doubts %q, want %q", tt.name, f.Code, doubts, tt.doubt)
			}
		}
	}
}

// inWords is what was found: codes, whose it is and by which evidence, and who may hold it.
func inWords(t *testing.T, found []record.Finding, s Input) string {
	t.Helper()
	var words []string
	for _, f := range found {
		words = append(words, strings.TrimPrefix(string(f.Code), "BKD-"))
		if f.Owner != nil {
			words = append(words, fmt.Sprint(f.Owner.Job), string(f.Owner.Level))
		}
		var pids []int
		for _, c := range f.Candidates {
			pids = append(pids, c.PID)
			exported := f.Holder == nil // by what it has open it holds memory that no one is listed for
			if len(c.Open) == 0 || c.Memory.Known() || slices.Contains(c.Classes, record.Exported) != exported {
				t.Errorf("candidate of %s: %+v", f.Code, c)
			}
		}
		if pids != nil {
			words = append(words, fmt.Sprint(pids))
		}
		search := f.Code == catalog.Residue || f.Code == catalog.Phantom
		if f.GPU != card || f.Index == nil || search && f.Unknown == "" && len(s.Now.Scan.Unread) == 0 && f.Searched != (s.Now.Scan.Partial == "") {
			t.Errorf("%+v", f)
		}
	}
	return strings.Join(words, " ")
}

// A figure that is missing takes nothing from what is certain.
func TestCompareBesideAnUnknownFigure(t *testing.T) {
	r := reading(30*gib, listed(70, 20*gib), gpu.Process{PID: 71, Memory: gpu.Unknown("not available")})
	found := Compare(ending(side(at(200), record.Flat, r, orphan, record.Process{PID: 71, UID: alice, Start: at(150)})))
	if len(found) == 0 || found[0].Code != catalog.Orphan || len(found[0].Doubts) > 0 {
		t.Errorf("20 GiB of an orphan are in doubt: %+v", found)
	}
	found = Compare(ending(side(at(200), record.Flat, reading(30*gib, gpu.Process{PID: 70, Memory: gpu.Unknown("not available")}), orphan)))
	if len(found) == 0 || !slices.Contains(found[0].Doubts, "how much memory is held is unknown: not available") {
		t.Errorf("no figure at all: %+v", found)
	}
}

// The sheet: used = listed + the driver's share of each client + unexplained.
func TestBalance(t *testing.T) {
	l := record.Limits{PerClient: 9 * mib}
	unknownProc := gpu.Process{PID: 3, Memory: gpu.Unknown("not available")}
	for _, tt := range []struct {
		name    string
		r       gpu.Reading
		want    uint64
		unknown string
	}{
		{"one client, 8 MiB beyond its figure", reading(gib+8*mib, listed(1, gib)), 0, ""},
		{"counted twice", reading(gib, listed(1, gib), listed(2, gib)), 0, "twice"},
		{"a process without a figure", reading(gib, unknownProc), 0, "PID 3"},
		{"memory unknown", gpu.Reading{Memory: gpu.Memory{Used: gpu.Unknown("lost")}}, 0, "lost"},
	} {
		got := record.Unexplained(tt.r, l, record.Baseline{})
		if got.Bytes != tt.want || !strings.Contains(got.Unknown, tt.unknown) || got.Known() != (tt.unknown == "") {
			t.Errorf("%s: %+v; want %d, %q", tt.name, got, tt.want, tt.unknown)
		}
	}
}

var epoch = gpu.Epoch{Boot: "b", Driver: "580", Module: "m"}

// A baseline grows by services that have a name, and by nothing else: memory whose holder nobody knows would be a leak
// learned away.
func TestLearn(t *testing.T) {
	dcgm := record.Process{PID: 60, Start: at(5), Service: "dcgm.service"}
	resident60 := []record.Resident{{PID: 60, Start: at(5), Bytes: 40 * mib, Service: "dcgm.service"}}
	opener := onCard(dcgm, 3)
	unlisted := reading(48 * mib)
	listing := reading(49*mib, listed(60, 40*mib))
	known := record.Baseline{GPU: card, Bytes: 48 * mib, Holder: "dcgm.service"}
	for _, tt := range []struct {
		name  string
		now   record.Side
		found []record.Holding
		old   record.Baseline
		edit  func(*Input)
		bytes uint64
		who   []record.Resident
		news  bool
	}{
		{"a service that is listed", side(at(100), record.Flat, listing, dcgm), nil, record.Baseline{}, nil, 0, resident60, true},
		{"a service that is not listed but has the GPU open", side(at(100), record.Flat, unlisted), []record.Holding{opener}, record.Baseline{}, nil, 48 * mib, nil, true},
		{"memory without a holder", side(at(100), record.Flat, unlisted), nil, record.Baseline{}, nil, 0, nil, false},
		{"shared memory counted twice", side(at(100), record.Flat, reading(10*mib, listed(60, 40*mib)), dcgm), nil, known, nil, 48 * mib, nil, false},
		{"as much as a baseline may explain", side(at(100), record.Flat, reading(64*mib)), []record.Holding{opener}, record.Baseline{}, nil, 64 * mib, nil, true},
		{"a byte more", side(at(100), record.Flat, reading(64*mib+1)), []record.Holding{opener}, known, nil, 48 * mib, nil, false},
		{"listed, where another live job has the GPU", side(at(100), record.Flat, listing, dcgm), nil, record.Baseline{}, others(attribution.Allocation{Job: 11, GPUs: []gpu.ID{card}, Start: at(90)}), 0, nil, false},
		{"a user's process has the driver open too", side(at(100), record.Flat, unlisted), []record.Holding{opener, onDriver(record.Process{PID: 9, UID: alice})}, record.Baseline{}, nil, 0, nil, false},
		{"a user's process is listed", side(at(100), record.Flat, listing, record.Process{PID: 60, UID: alice}), nil, known, nil, 48 * mib, nil, false},
		{"known, and gone since", side(at(100), record.Clean, reading(0)), nil, known, nil, 0, nil, true},
		{"more than known without a search", side(at(100), record.Clean, reading(52*mib+1)), nil, known, nil, 0, nil, true},
		{"accepted by an admin", side(at(100), record.Clean, reading(0)), nil, record.Baseline{GPU: card, Bytes: 50 * mib, Accepted: true}, nil, 50 * mib, nil, false},
		{"a job had the GPU before: it may have left it", side(at(100), record.Flat, unlisted), []record.Holding{opener}, record.Baseline{}, func(s *Input) {
			s.Book.Others = []attribution.Allocation{{Job: 9, GPUs: []gpu.ID{card}, Start: at(50), End: at(60)}}
		}, 0, nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := searched(tt.now, tt.found...)
			s.Before, s.Job.Context = nil, "prolog_slurmd"
			s.Baselines = map[gpu.ID]record.Baseline{card: tt.old}
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

// What a start called dirty is not clean by hindsight: a baseline counts if the start had it.
func TestBaselineLearnedTooLate(t *testing.T) {
	before := side(at(100), record.Flat, reading(48*mib))
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
		s := ending(side(at(200), record.Flat, reading(20*gib+57*mib, listed(70, 20*gib)), orphan))
		s.Before = &before
		s.Baselines = map[gpu.ID]record.Baseline{card: {GPU: card, Bytes: 48 * mib, Holder: "dcgm.service", At: tt.learned}}
		found := Compare(s)
		if len(found) != 1 || found[0].Holder.PID != 70 || (len(found[0].Doubts) == 0) != tt.clean {
			t.Errorf("%s: %+v", name, found)
		}
	}
}

// An end expects what the start left on the GPU or what its baseline explains, whichever is more, each process once.
func TestExpectations(t *testing.T) {
	dcgm := record.Process{PID: 60, Start: at(5), Service: "dcgm.service"}
	base := record.Baseline{GPU: card, Bytes: 48 * mib, Residents: []record.Resident{{PID: 60, Start: at(5), Bytes: 40 * mib}}}
	expected60 := gpu.ExpectedProcess{PID: 60, Bytes: 40 * mib, Share: 9 * mib}
	known60 := map[int]time.Duration{60: at(5)}
	for _, tt := range []struct {
		name   string
		before record.Side
		want   gpu.Expected
		known  map[int]time.Duration
	}{
		{"less than the baseline", side(at(100), record.Clean, reading(0)), gpu.Expected{Bytes: 48 * mib, Processes: []gpu.ExpectedProcess{expected60}}, known60},
		{"more than the baseline", side(at(100), record.Flat, reading(149*mib, listed(60, 40*mib)), dcgm),
			gpu.Expected{Bytes: 100 * mib, Processes: []gpu.ExpectedProcess{expected60}}, known60},
		{"shared memory counted twice", side(at(100), record.Flat, reading(70*mib, listed(70, 70*mib), listed(71, 70*mib)), orphan),
			gpu.Expected{Bytes: 48 * mib, Processes: []gpu.ExpectedProcess{{PID: 70, Bytes: 70 * mib}, expected60}}, map[int]time.Duration{60: at(5), 70: at(150)}},
		{"memory unknown", side(at(100), record.Flat, gpu.Reading{Device: gpu.Device{ID: card}, Memory: gpu.Memory{Used: gpu.Unknown("lost")}}),
			gpu.Expected{Bytes: 48 * mib, Processes: []gpu.ExpectedProcess{expected60}}, known60},
	} {
		expect, known := Expectations(&tt.before, map[gpu.ID]record.Baseline{card: base}, record.Limits{PerClient: 9 * mib})
		if got := expect[card]; !reflect.DeepEqual(got, tt.want) || !maps.Equal(known, tt.known) {
			t.Errorf("%s: %+v, %v; want %+v, %v", tt.name, got, known, tt.want, tt.known)
		}
	}
}

// A GPU that still moved at the start takes nothing from what is known of the next one.
func TestExpectationsOfTheNextGPU(t *testing.T) {
	before := side(at(100), record.Moving, reading(100*mib))
	next := reading(40 * mib)
	next.Device.ID = "GPU-1"
	before.Snapshot.Readings = append(before.Snapshot.Readings, next)
	before.Curves["GPU-1"] = record.Curve{State: record.Flat}
	expect, _ := Expectations(&before, nil, record.Limits{})
	if len(expect) != 1 || expect["GPU-1"].Bytes != 40*mib {
		t.Errorf("%+v", expect)
	}
}

// A second look adds what it found, and takes back no more than what it proves gone.
func TestAgain(t *testing.T) {
	held := record.Finding{Code: catalog.Orphan, GPU: card, Bytes: gpu.Bytes(gib), Holder: &record.Holder{Process: orphan}}
	residue := record.Finding{Code: catalog.Residue, GPU: card, Bytes: gpu.Bytes(gib)}
	trespass := record.Finding{Code: catalog.Trespass, GPU: "GPU-1", Holder: &record.Holder{Process: record.Process{PID: 80}}}
	untraced := record.Finding{Code: catalog.Untraced, Unknown: "one process hung"}
	moving, unread := record.Finding{Code: catalog.Moving, GPU: card, Unknown: "after 2.0 s"}, record.Finding{Code: catalog.Unread, GPU: card, Unknown: "no reading"}
	later := held
	later.Bytes = gpu.Bytes(2 * gib)
	clean, flat := side(at(200), record.Clean, reading(0)), side(at(200), record.Flat, reading(gib))
	still := side(at(200), record.Moving, reading(gib, listed(70, gib)), orphan)
	gone := side(at(200), record.Moving, reading(gib))
	young := orphan
	young.Start = at(199)
	reused := side(at(200), record.Moving, reading(gib, listed(70, gib)), young)
	blind := record.Side{Curves: map[gpu.ID]record.Curve{card: {State: record.Unreadable}}}

	for name, tt := range map[string]struct {
		first, second []record.Finding
		now           record.Side
		want          string // codes; "?" marks one with a doubt
	}{
		"it is clean":                   {[]record.Finding{held, residue, untraced}, nil, clean, ""},
		"something else is there":       {[]record.Finding{held}, []record.Finding{residue}, flat, "BKD-RESIDUE "},
		"the process has gone":          {[]record.Finding{held}, []record.Finding{moving}, gone, "BKD-MOVING "},
		"its PID is another's":          {[]record.Finding{held}, []record.Finding{moving}, reused, "BKD-MOVING "},
		"it is there still":             {[]record.Finding{held}, []record.Finding{moving}, still, "BKD-ORPHAN? BKD-MOVING "},
		"named again":                   {[]record.Finding{held, moving}, []record.Finding{later, moving}, still, "BKD-ORPHAN BKD-MOVING "},
		"not read":                      {[]record.Finding{held, residue}, []record.Finding{unread}, blind, "BKD-ORPHAN? BKD-RESIDUE? BKD-UNREAD "},
		"other GPUs are not seen again": {[]record.Finding{trespass}, nil, clean, "BKD-TRESPASS "},
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

// What a driver is known to do stands in the finding that it explains.
func TestKnownBadDriver(t *testing.T) {
	known := reading(20 * gib)
	known.KnownBad = "this driver keeps memory"
	found := Compare(ending(side(at(200), record.Flat, known)))
	if len(found) != 1 || !strings.HasSuffix(found[0].Observed, "; this driver keeps memory") {
		t.Errorf("%+v", found)
	}
}

// The least counts of each model of GPU, under one version of the driver.
func TestClients(t *testing.T) {
	run := func(driver, model string, client uint64) record.Run {
		r := record.Run{Epoch: gpu.Epoch{Boot: "b", Driver: driver, Module: "m"}}
		r.Devices = []record.Assigned{{Device: gpu.Device{ID: "GPU-0", Name: model}}}
		r.Ends = []record.End{{}, {Recording: &record.Recording{GPUs: []record.GPURecording{{ID: "GPU-0", Client: client}}}}}
		return r
	}
	runs := []record.Run{run("600", "A", 20), run("600", "A", 18), run("600", "A", 0), run("580", "A", 9), run("600", "B", 30)}
	if got := fmt.Sprint(Clients(runs, "600")); got != "map[A:18 B:30]" {
		t.Errorf("got %s", got)
	}
	if got := Clients([]record.Run{run("", "A", 20)}, ""); len(got) != 0 {
		t.Errorf("without a version: got %v", got)
	}
}
