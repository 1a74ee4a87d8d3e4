package diagnosis

import (
	"cmp"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/gpu"
	"bookend/internal/oomlog"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/test/golden"
	"bookend/test/must"
)

const (
	mebi = 1 << 20
	gibi = 1 << 30
	gpu0 = gpu.ID("GPU-0")
	gpu1 = gpu.ID("GPU-1")
)

func gib(n float64) gpu.Figure { return gpu.Bytes(uint64(n * gibi)) }

var ends = time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)

// well is a job on so many H200s with which everything was well and of which all is known, that ended with an error.
func well(cards int) Input {
	side := func(at time.Duration) *record.Side {
		return &record.Side{Snapshot: gpu.Snapshot{At: at}, Curves: map[gpu.ID]record.Curve{}}
	}
	in := Input{
		Job:   slurm.Job{ID: 42, UID: 1001, Node: "n1", Exit: slurm.ExitStatus{Known: true, Raw: 1 << 8}},
		Start: side(100 * time.Second), End: side(1000 * time.Second), Kernel: &gpu.KernelLog{}, AddressSpace: gpu.Bytes(record.Unlimited),
		WallStart: ends.Add(-900 * time.Second),
	}
	for i, id := range []gpu.ID{gpu0, gpu1}[:cards] {
		device := gpu.Device{ID: id}
		in.Cards = append(in.Cards, record.Assigned{Index: i, Device: device})
		for _, s := range []*record.Side{in.Start, in.End} {
			s.Curves[id] = record.Curve{State: record.Clean}
			s.Snapshot.Readings = append(s.Snapshot.Readings, gpu.Reading{Device: device, Memory: gpu.Memory{Total: gpu.Bytes(143771 * mebi), Reserved: gpu.Bytes(615 * mebi)}})
		}
		in.Probes = append(in.Probes, gpu.Probe{Device: id, Result: gpu.ProbeOK, Free: gpu.Bytes(143155 * mebi), Largest: gpu.Bytes(143153 * mebi)})
		in.Health = append(in.Health, gpu.Health{Device: id, Facts: []gpu.Fact{{Code: gpu.ECCUncorrected, Value: "0"}}})
	}
	return in
}

func unsaid() gpu.Figure { return gpu.Unknown("not said") }

func says(k record.MessageKind, f record.Framework) record.Message {
	return record.Message{
		Kind: k, Framework: f, Count: 1, Line: "out of memory", Asked: unsaid(), Total: unsaid(), Free: unsaid(), InUse: unsaid(),
		Allocated: unsaid(), Idle: unsaid(),
	}
}

// torch is PyTorch's message on an H200 (139.8 GiB), in GiB: asked, free, in use by the process, idle in its pool.
func torch(asked, free, mine, idle float64) record.Message {
	m := says(record.KindDevice, record.FromPyTorch)
	m.Asked, m.Free, m.InUse, m.Allocated, m.Idle = gib(asked), gib(free), gib(mine), gib(mine-idle-0.5), gib(idle)
	m.Total, m.Setting = gpu.Bytes(143156*mebi), "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
	return m
}

// oldTorch does not say what it had in all, but for its allocator, in GiB.
func oldTorch(allocated float64) record.Message {
	m := torch(20, 1, 0, 0)
	m.InUse, m.Allocated, m.Idle = unsaid(), gib(allocated), gib(1)
	return m
}

// older is oldTorch that asks for so much with so much free, in GiB.
func older(allocated, asked, free float64) record.Message {
	m := oldTorch(allocated)
	m.Asked, m.Free = gib(asked), gib(free)
	return m
}

// cupy asks for so much and has so much in its pool, in GiB.
func cupy(asked, allocated float64) record.Message {
	m := says(record.KindDevice, record.FromCuPy)
	m.Asked, m.Allocated = gib(asked), gib(allocated)
	return m
}

// capped had 120 GiB free, but may use 14.
func capped() record.Message {
	m := torch(2, 120, 13.5, 0)
	m.Cap = 14 * gibi
	return m
}

func absurd() record.Message {
	m := says(record.KindDevice, record.FromPyTorch)
	m.Asked = gpu.Unknown(gpu.ImpossibleSize)
	return m
}

// listing would fit but for a process that it names, of so many GiB.
func listing(pid int, bytes float64) record.Message {
	m := beside
	m.Others = []gpu.Process{{PID: pid, Memory: gib(bytes)}}
	return m
}

// failing is a line about an error of the GPU that is not about memory.
func failing(line string) record.Message {
	m := says(record.KindFault, record.FromCUDA)
	m.Line = line
	return m
}

func jax(asked float64) record.Message {
	m := says(record.KindDevice, "JAX")
	m.Asked = gib(asked)
	return m
}

func there(c catalog.Code, bytes float64, pid int, o *record.Owner) record.Finding {
	index := 0
	f := record.Finding{Code: c, GPU: gpu0, Index: &index, Bytes: gib(bytes), Owner: o}
	if pid != 0 {
		f.Holder = &record.Holder{Process: record.Process{PID: pid, UID: 1002, Name: "secret", Start: 50 * time.Second}}
	}
	return f
}

func dead(f record.Finding) record.Finding {
	f.Holder.Gone = true
	return f
}

func unsure(f record.Finding) record.Finding {
	f.Unknown = "not looked up"
	return f
}

func seen(at int, pid int, bytes float64, own bool) Sighting {
	return Sighting{At: time.Duration(at) * time.Second, Device: gpu0, PID: pid, Bytes: gib(bytes), Own: own, Foreign: !own}
}

func (in *Input) dirtyStart(f ...record.Finding) {
	in.Start.Curves[gpu0] = record.Curve{State: record.Flat}
	in.StartFindings = f
}

// What can be so of a job.
func both(all ...func(*Input)) func(*Input) {
	return func(in *Input) {
		for _, change := range all {
			change(in)
		}
	}
}

func saying(m ...record.Message) func(*Input) {
	return func(in *Input) { in.Messages = append(slices.Clone(in.Messages), m...) }
}

func dirty(f ...record.Finding) func(*Input) { return func(in *Input) { in.dirtyStart(f...) } }
func endedWell(in *Input)                    { in.Job.Exit = slurm.ExitStatus{Known: true} }
func finds(f ...record.Finding) func(*Input) { return func(in *Input) { in.Findings = f } }
func seeing(s ...Sighting) func(*Input) {
	return func(in *Input) { in.Seen, in.Every = s, time.Second }
}
func recording(r ...record.GPURecording) func(*Input) { return func(in *Input) { in.Recorded = r } }
func limited(gibibytes float64) func(*Input) {
	return func(in *Input) { in.AddressSpace = gib(gibibytes) }
}

var (
	itself     = torch(20, 0.9, 138.8, 0.4) // needs more than the card has
	pooled     = torch(12, 1.1, 138.6, 45)  // would fit but for its pool
	beside     = torch(40, 15.8, 23.5, 0.4) // would fit but for the 100.5 GiB of somebody else
	nobody     = torch(40, 60, 79.7, 0.4)   // would fit as it is
	before     = &record.Owner{Job: 41, UID: 1002, Level: record.ByCgroup}
	ownResidue = finds(there(catalog.Residue, 100.5, 0, &record.Owner{Job: 42, UID: 1001, Level: record.ByExclusive}))
	xid94      = record.Finding{Code: catalog.Xid, GPU: gpu0, Xid: 94}
	mine41     = &record.Owner{Job: 41, UID: 1001, Level: record.ByExclusive}
)

// A node's clock is rarely UTC's, in which a record keeps its moments.
func init() { time.Local = time.FixedZone("UTC-5", -5*3600) }

// row is one world and what is to be said of one cause in it.
type row struct {
	name   string
	change func(*Input)
	cause  record.CauseName
	want   record.Answer
	says   string // part of the evidence
}

func judged(t *testing.T, rows []row) {
	t.Helper()
	for _, tt := range rows {
		t.Run(string(tt.cause)+" "+tt.name, func(t *testing.T) {
			in := well(1)
			if tt.change != nil {
				tt.change(&in)
			}
			d := Why(in)
			if c := d.Cause(tt.cause); c.Answer != tt.want || !strings.Contains(c.Evidence, tt.says) {
				t.Errorf("%s: %q, want %s: %q\nall: %+v", c.Answer, c.Evidence, tt.want, tt.says, d.Causes)
			}
			whole(t, d)
			neverWithoutEvidence(t, in)
		})
	}
}

func whole(t *testing.T, d record.Diagnosis) {
	t.Helper()
	if len(slices.Compact(slices.Sorted(slices.Values(d.Try)))) != len(d.Try) {
		t.Errorf("twice the same: %q", d.Try)
	}
	if len(d.Causes) != len(causes) || len(d.Try) > record.MaxTry || (d.Reason == "") != (d.Headline == "") {
		t.Errorf("not whole: %+v", d)
	}
	for _, c := range d.Causes {
		private := strings.Contains(c.Evidence, "secret") || strings.Contains(c.Evidence, "5150") || strings.Contains(c.Evidence, "77")
		if c.Evidence == "" || c.Answer == "" || private || c.Name.Title() == "" {
			t.Errorf("cause %+v", c)
		}
	}
}

// failedOnOne is a job on two GPUs of which its own process filled the first.
func failedOnOne(in *Input) {
	*in = well(2)
	failed := itself
	failed.PID = 900
	in.Seen, in.Messages = []Sighting{seen(500, 900, 138, true)}, []record.Message{failed}
}

func onOther(f record.Finding) record.Finding {
	index := 1
	f.GPU, f.Index = gpu1, &index
	return f
}

// suspended is another job's process that is on the GPU by right, as of a job that Slurm suspended: it has no finding.
func suspended(at func(*Input) *record.Side, of slurm.Owner, bytes float64) func(*Input) {
	return func(in *Input) {
		s := at(in)
		s.Curves[gpu0] = record.Curve{State: record.Flat}
		s.Snapshot.Readings[0].Processes = []gpu.Process{{PID: 5150, Memory: gib(bytes)}}
		s.Processes = map[int]record.Process{5150: {PID: 5150, UID: 1002, State: "T", Cgroup: of}}
	}
}

func TestOthers(t *testing.T) {
	start, end := func(in *Input) *record.Side { return in.Start }, func(in *Input) *record.Side { return in.End }
	judged(t, []row{
		{"nobody", nil, record.CauseOthers, record.CannotTell, "none at start or end; what was there in between is not known"},
		{"none by the message either", saying(itself), record.CauseOthers, record.No, "none when it failed"},
		{"before the job", dirty(there(catalog.Dirty, 100.5, 5150, nil)), record.CauseOthers, record.Yes, "100.5 GiB when your job began"},
		{"gone when it failed", both(dirty(there(catalog.Dirty, 100.5, 5150, nil)), saying(itself)), record.CauseOthers, record.No, "not decisive"},
		{"a trifle", dirty(there(catalog.Dirty, 0.3, 5150, nil)), record.CauseOthers, record.CannotTell, "307 MiB when your job began only, as far as was seen"},
		{"of unknown size", func(in *Input) {
			f := there(catalog.Dirty, 0, 5150, nil)
			f.Bytes = gpu.Unknown("not available")
			in.dirtyStart(f)
		}, record.CauseOthers, record.CannotTell, "at least 0 MiB when your job began; whether that mattered"},
		{"another live job's", finds(there(catalog.Foreign, 9, 5150, before)), record.CauseOthers, record.Yes, "9.0 GiB at the end"},
		{"another live job's that the recorder alone saw", finds(there(catalog.Foreign, 9, 5150, &record.Owner{Job: 41, Level: record.ByRecorder})), record.CauseOthers, record.CannotTell, "none at start or end"},
		{"another on the job's other GPU, where none failed", both(failedOnOne, func(in *Input) {
			beside := seen(500, 5150, 30, false)
			beside.Device = gpu1
			in.Seen = append(in.Seen, beside)
		}), record.CauseOthers, record.CannotTell, "30.0 GiB while your job ran, seen at 03:51:40; whether that mattered"},
		{"another's on it at the end", both(failedOnOne, finds(onOther(there(catalog.Foreign, 9, 5150, before)))), record.CauseOthers, record.CannotTell, "9.0 GiB at the end of your job; whether that mattered"},
		{"a stray", finds(there(catalog.Stray, 9, 5150, nil)), record.CauseOthers, record.Yes, "9.0 GiB at the end"},
		{"a stray that could be the job's", finds(unsure(there(catalog.Stray, 9, 5150, nil))), record.CauseOthers, record.CannotTell, "owner could not be told"},
		{"seen meanwhile", seeing(seen(500, 5150, 30, false)), record.CauseOthers, record.Yes, "30.0 GiB while your job ran"},
		{"seen meanwhile, gone when it failed", both(seeing(seen(500, 5150, 30, false)), saying(itself)), record.CauseOthers, record.No, "none when it failed"},
		{"a sighting that proves nothing", func(in *Input) { in.Seen = []Sighting{{At: time.Second, Device: gpu0, PID: 5150, Bytes: gib(30)}} }, record.CauseOthers, record.CannotTell, "owner could not be told"},
		{"something no one knows", saying(beside), record.CauseOthers, record.CannotTell, "100.5 GiB held by something when it failed"},
		{"PyTorch names one that is not the job's", both(seeing(seen(500, 5150, 0.1, false)), saying(listing(5150, 100.4))), record.CauseOthers, record.Yes, "100.4 GiB when it failed"},
		{"PyTorch names one of the job's", both(seeing(seen(500, 900, 1, true)), saying(listing(900, 100.4))), record.CauseOthers, record.No, "none at start or end"},
		{"shared by intent", func(in *Input) { in.Shared = "shards" }, record.CauseOthers, record.CannotTell, "others may use"},
		{"no one looked at the start", func(in *Input) { in.Start = nil }, record.CauseOthers, record.CannotTell, "had not settled, at its start"},
		{"an earlier job's that lives", dirty(there(catalog.Dirty, 30, 5150, before)), record.CauseOthers, record.Yes, "left by an earlier job"},
		{"a suspended job's", suspended(start, slurm.Owner{ID: 41}, 70), record.CauseOthers, record.Yes, "70.0 GiB when your job began"},
		{"a suspended job's, which the message contradicts", both(suspended(start, slurm.Owner{ID: 41}, 70), saying(itself)), record.CauseOthers, record.No, "not decisive"},
		{"a suspended job's at the end", suspended(end, slurm.Owner{ID: 41}, 70), record.CauseOthers, record.Yes, "70.0 GiB at the end of your job"},
		{"a trifle of a suspended job's", suspended(end, slurm.Owner{ID: 41}, 0.1), record.CauseOthers, record.CannotTell, "what was there in between is not known"},
		{"a list that tells nothing", both(suspended(start, slurm.Owner{ID: 41}, 70), func(in *Input) { in.Start.Snapshot.Readings[0].ProcessesUnknown = "of all MIG instances" }), record.CauseOthers, record.CannotTell, "what was there in between is not known"},
		{"the job's own, in its cgroup still", suspended(end, slurm.Owner{ID: 42}, 70), record.CauseOthers, record.CannotTell, "what was there in between is not known"},
		{"the job's own orphan", finds(there(catalog.Orphan, 30, 900, nil)), record.CauseOthers, record.CannotTell, "what was there in between is not known"},
	})
}

func TestLeftAndUnlisted(t *testing.T) {
	in := well(1)
	in.dirtyStart(there(catalog.Dirty, 20, 0, &record.Owner{Job: 42, UID: 1002, Level: record.ByExclusive}))
	d := Why(in)
	said := d.Cause(record.CauseLeftover).Evidence
	must.Not(t, said != "20.0 GiB when your job began", "another user's job of the same id, which came around: %q", said)
	judged(t, []row{
		{"clean", nil, record.CauseLeftover, record.No, "none on record"},
		{"another's", dirty(there(catalog.Dirty, 20, 0, before)), record.CauseLeftover, record.Yes, "20.0 GiB when your job began"},
		{"an earlier run's", dirty(there(catalog.Dirty, 20, 0, &record.Owner{Job: 42, UID: 1001, Level: record.ByExclusive})), record.CauseLeftover, record.Yes, "probably by an earlier run of this job"},
		{"the user's own", dirty(there(catalog.Dirty, 20, 0, mine41)), record.CauseLeftover, record.Yes, "probably by your job 41"},
		{"of a dead process no one knows", dirty(dead(there(catalog.Dirty, 20, 5150, nil))), record.CauseLeftover, record.CannotTell, "no record whose"},
		{"a process of no known job", dirty(there(catalog.Dirty, 20, 5150, nil)), record.CauseLeftover, record.No, "none on record"},
		{"on record at the end alone", finds(there(catalog.Dirty, 20, 0, before)), record.CauseLeftover, record.Yes, "20.0 GiB"},
		{"the start could not be read", func(in *Input) { in.Start.Curves[gpu0] = record.Curve{State: record.Unreadable} }, record.CauseLeftover, record.CannotTell, "had not settled, at its start"},
		{"a trifle", dirty(there(catalog.Dirty, 0.3, 5150, before)), record.CauseLeftover, record.No, "307 MiB when your job began"},
		{"of a process whose owner was not looked up", dirty(unsure(there(catalog.Dirty, 20, 5150, nil))), record.CauseLeftover, record.CannotTell, "no record whose"},
		{"on a GPU of many", func(in *Input) { in.Shared = "shards" }, record.CauseLeftover, record.CannotTell, "others may use"},
		{"left by an earlier job", dirty(there(catalog.Dirty, 20, 0, before)), record.CauseUnlisted, record.Yes, "left by an earlier job"},
		{"of unknown origin", dirty(there(catalog.Dirty, 20, 0, nil)), record.CauseUnlisted, record.Yes, "20.0 GiB when your job began"},
		{"found at both ends", both(dirty(there(catalog.Dirty, 20, 0, nil)), finds(there(catalog.Dirty, 20, 0, nil))), record.CauseUnlisted, record.Yes, "20.0 GiB when your job began"},
		{"after the job only", finds(there(catalog.Residue, 20, 0, nil)), record.CauseUnlisted, record.CannotTell, "whether that mattered"},
		{"after the job, and when it failed", both(finds(there(catalog.Residue, 100.5, 0, nil)), saying(beside)), record.CauseUnlisted, record.Yes, "100.5 GiB at the end"},
		{"left by the job itself", both(ownResidue, saying(beside)), record.CauseUnlisted, record.Yes, "left by your job"},
		{"balance unknown", finds(unsure(there(catalog.Residue, 20, 0, nil))), record.CauseUnlisted, record.CannotTell, "could not be told"},
	})
}

func TestPiecesAndPool(t *testing.T) {
	gap := func(largest float64) func(*Input) {
		return func(in *Input) {
			in.Probes[0].Result, in.Probes[0].Largest = gpu.ProbeGap, gib(largest)
		}
	}
	judged(t, []row{
		{"tested", nil, record.CausePieces, record.No, "in one block"},
		{"a gap", gap(100), record.CausePieces, record.Yes, "139.8 GiB free, largest block 100.0 GiB"},
		{"a small gap", gap(139.7), record.CausePieces, record.No, "in one block"},
		{"a gap that the allocation did not need", both(gap(100), saying(jax(20))), record.CausePieces, record.No, "in one block"},
		{"a gap, but less was free than asked", both(gap(100), saying(itself)), record.CausePieces, record.No, "only 921 MiB free, 20.0 GiB asked"},
		{"enough was free", saying(nobody), record.CausePieces, record.CannotTell, "60.0 GiB was free, yet 40.0 GiB could not be had"},
		{"not tested", func(in *Input) { in.Probes = nil }, record.CausePieces, record.CannotTell, "not tested"},
		{"blocked", func(in *Input) { in.Probes[0] = gpu.Probe{Device: gpu0, Result: gpu.ProbeBlocked, Why: "busy"} }, record.CausePieces, record.CannotTell, "not tested"},
		{"no message", nil, record.CausePool, record.CannotTell, "no message"},
		{"output not searched", func(in *Input) { in.MessagesUnknown = "no output file" }, record.CausePool, record.CannotTell, "no output file"},
		{"much idle", saying(pooled), record.CausePool, record.Yes, "45.0 GiB reserved but unallocated"},
		{"much idle, and not enough", saying(torch(60, 1.1, 138.6, 45)), record.CausePool, record.No, "45.0 GiB unused"},
		{"idle and free together", saying(torch(12, 6, 133.6, 7)), record.CausePool, record.Yes, "7.0 GiB reserved but unallocated"},
		{"JAX says nothing of it", saying(jax(20)), record.CausePool, record.CannotTell, "a message does not say"},
	})
}

func TestFault(t *testing.T) {
	fault := func(c catalog.Code) func(*Input) {
		return func(in *Input) { in.Findings = []record.Finding{there(c, 0, 0, nil)} }
	}
	xid := func(number int) func(*Input) {
		return func(in *Input) { fault(catalog.Xid)(in); in.Findings[0].Xid = number }
	}
	judged(t, []row{
		{"well", nil, record.CauseFault, record.No, "none in driver and kernel log"},
		{"lost", fault(catalog.Lost), record.CauseFault, record.Yes, "fell off"},
		{"an Xid of the GPU", fault(catalog.XidFatal), record.CauseFault, record.Yes, "reported a fault"},
		{"an Xid of the program", xid(31), record.CauseFault, record.No, "program's error"},
		{"an Xid without a number", xid(0), record.CauseFault, record.CannotTell, "not known to be a program's"},
		{"an Xid that is in no table", xid(184), record.CauseFault, record.CannotTell, "not known to be a program's (Xid 184)"},
		{"a driver's Xid that ends nothing", xid(63), record.CauseFault, record.CannotTell, "an error that is no program's (Xid 63): bad memory was remapped or retired"},
		{"an Xid of a program or the driver", xid(69), record.CauseFault, record.CannotTell, "not known to be a program's (Xid 69)"},
		{"a contained memory error", xid(94), record.CauseFault, record.Yes, "a memory error that ended a program (Xid 94)"},
		{"many corrected errors", xid(92), record.CauseFault, record.CannotTell, "Xid 92"},
		{"throttled", fault(catalog.Throttle), record.CauseFault, record.No, "none"},
		{"CUDA broken", fault(catalog.Broken), record.CauseFault, record.Yes, "did not work"},
		{"a test that is doubted", func(in *Input) {
			fault(catalog.Broken)(in)
			in.Findings[0].Doubts = []string{"seen once"}
		}, record.CauseFault, record.CannotTell, "may be the test's own"},
		{"versions differ", func(in *Input) { in.Kernel.Mismatch = "NVRM: API mismatch" }, record.CauseFault, record.CannotTell, "a program on this node"},
		{"versions differ, as the driver says", fault(catalog.Mismatch), record.CauseFault, record.Yes, "different versions"},
		{"health read in part", func(in *Input) { in.HealthUnknown = "ECC counters" }, record.CauseFault, record.CannotTell, "ECC counters"},
		{"health not read", func(in *Input) { in.Health, in.HealthUnknown = nil, "no time" }, record.CauseFault, record.CannotTell, "no time"},
		{"log not read", func(in *Input) { in.Kernel = nil }, record.CauseFault, record.CannotTell, "kernel log was not read"},
		{"log overwritten", func(in *Input) { in.Kernel.Lost = true }, record.CauseFault, record.CannotTell, "not read in full"},
		{"a program's error, nothing read", both(saying(failing("an illegal memory access was encountered")), func(in *Input) { in.Kernel = nil }), record.CauseFault, record.CannotTell, "kernel log was not read"},
		{"the output of several nodes says so", both(saying(failing("CUDA error: uncorrectable ECC error encountered")), func(in *Input) { in.Job.NodeList = "n[1-2]" }), record.CauseFault, record.CannotTell, "uncorrectable memory error"},
	})
}

func TestOwn(t *testing.T) {
	judged(t, []row{
		{"nothing known", nil, record.CauseOwn, record.CannotTell, "not measured"},
		{"more than the GPU", saying(itself), record.CauseOwn, record.Yes, "used 138.8 of 139.8 GiB, then requested 20.0 GiB more"},
		{"would fit but for the pool", saying(pooled), record.CauseOwn, record.No, "93.6 + 12.0 GiB asked fit in 139.8 GiB"},
		{"would fit but for another", saying(beside), record.CauseOwn, record.No, "23.5 + 40.0 GiB asked fit"},
		{"enough was free", saying(nobody), record.CauseOwn, record.No, "60.0 GiB was free"},
		{"one absurd allocation", saying(jax(500)), record.CauseOwn, record.Yes, "asked 500.0 GiB at once"},
		{"a size that no GPU has", saying(jax(2000)), record.CauseOwn, record.Yes, "an overflow, or a wrong build"},
		{"a size that cannot be", saying(absurd()), record.CauseOwn, record.Yes, "an overflow, or a wrong build"},
		{"CuPy with all of the GPU", saying(cupy(4, 136)), record.CauseOwn, record.Yes, "used 136.0 of 139.8 GiB, then requested 4.0 GiB more"},
		{"CuPy, perhaps on another node", both(saying(cupy(4, 136)), func(in *Input) { in.Job.NodeList = "n[1-2]" }), record.CauseOwn, record.CannotTell, "other nodes"},
		{"CuPy with a part of it", saying(cupy(4, 30)), record.CauseOwn, record.CannotTell, "not measured"},
		{"a limit of its own", saying(capped()), record.CauseOwn, record.No, "a limit that your program set"},
		{"a limit of its own, a share", saying(capped()), record.CauseShare, record.Yes, "14.0 GiB, by a limit that it set"},
		{"perhaps a limit of its own", saying(jax(70)), record.CauseShare, record.CannotTell, "whether its program set a limit"},
		{"no limit of its own", saying(itself), record.CauseShare, record.No, "the whole GPU"},
		{"a limit of its own, no gaps", saying(capped()), record.CausePieces, record.No, "a limit that your program set"},
		{"HIP beside others", saying(older(56, 2, 0.8)), record.CauseOwn, record.CannotTell, "does not say"},
		{"an old PyTorch", saying(oldTorch(135)), record.CauseOwn, record.Yes, "used 136.0 of 139.8 GiB"},
		{"an old PyTorch, and another process's 23.5 GiB", saying(older(114, 2, 0.2)), record.CauseOwn, record.CannotTell, "does not say"},
		{"an old PyTorch that asks for more than the rest", saying(older(114, 30, 0.2)), record.CauseOwn, record.Yes, "used 115.0 of 139.8 GiB, then requested 30.0 GiB more"},
		{"an uncorrectable error before it", saying(failing("uncorrectable ECC error encountered"), itself), record.CauseOwn, record.CannotTell, "but the GPU or its driver had an error"},
		{"an old PyTorch with little", saying(oldTorch(30)), record.CauseOwn, record.CannotTell, "does not say"},
		{"seen", seeing(seen(500, 900, 133, true)), record.CauseOwn, record.Yes, "at least 133.0 of 139.8 GiB in one process"},
		{"seen, little", seeing(seen(500, 900, 13, true)), record.CauseOwn, record.CannotTell, "at least 13.0 of 139.8 GiB in one process, sampled every 1s"},
		{"sampled, and none of it seen", seeing(), record.CauseOwn, record.CannotTell, "no sample saw any"},
		{"CUDA did not start", saying(says(record.KindInit, record.FromCUDA)), record.CauseOwn, record.CannotTell, "not measured"},
		{"CUDA did not start, under a limit", both(limited(4), saying(says(record.KindInit, record.FromCUDA))), record.CauseOwn, record.No, "did not even start"},
		{"host memory", saying(says(record.KindHost, record.FromSlurm)), record.CauseOwn, record.No, "host memory"},
	})
}

func TestProcesses(t *testing.T) {
	three := []Sighting{seen(500, 900, 1, true), seen(500, 901, 1, true), seen(500, 902, 1, true)}
	crowd := recording(record.GPURecording{ID: gpu0, Own: record.Most{Bytes: 3 * gibi}, Together: 3})
	judged(t, []row{
		{"not sampled", nil, record.CauseProcesses, record.CannotTell, "no two were seen"},
		{"three at once, with little", crowd, record.CauseProcesses, record.CannotTell, "3 processes with 3.0 GiB; whether that mattered"},
		{"two with 600 MiB together", both(recording(record.GPURecording{ID: gpu0, Own: record.Most{Bytes: 600 * mebi}, Together: 2}), saying(jax(20))), record.CauseProcesses, record.CannotTell, "2 processes with 600 MiB; whether that mattered"},
		{"three that fill it", recording(record.GPURecording{ID: gpu0, Own: record.Most{Bytes: 130 * gibi}, Together: 3}), record.CauseProcesses, record.Yes, "3 processes with 130.0 GiB"},
		{"one that fills it, and a small one", both(recording(record.GPURecording{ID: gpu0, Own: record.Most{Bytes: 134 * gibi}, Together: 2}), seeing(seen(500, 900, 133, true), seen(500, 901, 1, true))), record.CauseProcesses, record.CannotTell, "whether that mattered"},
		{"two on a GPU of unknown size", both(recording(record.GPURecording{ID: gpu1, Own: record.Most{Bytes: 130 * gibi}, Together: 2})), record.CauseProcesses, record.CannotTell, "whether that mattered"},
		{"one alone when it failed", both(crowd, saying(itself)), record.CauseProcesses, record.No, "one alone"},
		{"PyTorch names one of the job's", both(seeing(three...), saying(listing(901, 100.4))), record.CauseProcesses, record.Yes, "100.4 GiB of it when it failed"},
		{"two ranks that name each other", func(in *Input) {
			a, b := torch(40, 15.8, 23.5, 0.4), torch(40, 15.8, 100.5, 0.4)
			a.PID, a.Others = 900, []gpu.Process{{PID: 901, Memory: gib(100.4)}}
			b.PID, b.Others = 901, []gpu.Process{{PID: 900, Memory: gib(23.4)}}
			in.Messages = []record.Message{a, b}
		}, record.CauseProcesses, record.Yes, "100.4 GiB"},
		{"an unknown one", saying(listing(901, 100.4)), record.CauseProcesses, record.CannotTell, "it may be your job's own"},
		{"somebody else", both(dirty(there(catalog.Dirty, 100.5, 5150, nil)), saying(beside)), record.CauseProcesses, record.No, "not your job's"},
		{"HIP beside others", saying(older(56, 2, 0.8)), record.CauseProcesses, record.CannotTell, "something else held 81.0 GiB"},
	})
}

func TestRecorded(t *testing.T) {
	without := record.GPURecording{ID: gpu0, Unlisted: record.Most{Bytes: 20 * gibi}}
	crowd := record.GPURecording{ID: gpu0, Own: record.Most{Bytes: 130 * gibi}, Together: 4}
	full := seeing(seen(500, 900, 138, true))
	whole := func(in *Input) { full(in); in.Whole = true }
	judged(t, []row{
		{"four at once, of which a message knows nothing", both(recording(crowd), saying(beside)), record.CauseProcesses, record.Yes, "100.5 GiB of it when it failed"},
		{"what four have together is no one's own", recording(crowd), record.CauseOwn, record.CannotTell, "not measured"},
		{"of unknown owner in a sample", func(in *Input) {
			whole(in)
			in.Seen = append(in.Seen, Sighting{At: 500 * time.Second, Device: gpu0, PID: 5150, Bytes: gib(1)})
		}, record.CauseOthers, record.CannotTell, "owner could not be told"},
		{"a trifle of unknown owner", func(in *Input) {
			whole(in)
			in.Seen = append(in.Seen, Sighting{At: 500 * time.Second, Device: gpu0, PID: 5150, Bytes: gib(0.2)})
		}, record.CauseOthers, record.No, "nor in any sample"},
		{"no process for it in a sample, and the job's own use explains it", both(whole, recording(without)), record.CauseUnlisted, record.CannotTell,
			"20.0 GiB while your job ran; whether that mattered"},
		{"no process for it on one of two GPUs, and on which it failed is not known", both(recording(without), saying(jax(30)), func(in *Input) {
			in.Cards = append(in.Cards, record.Assigned{Index: 1, Device: gpu.Device{ID: gpu1}})
		}), record.CauseUnlisted, record.CannotTell, "whether that mattered"},
		{"another's on one of two GPUs, and on which it failed is not known", both(seeing(seen(500, 5150, 30, false)), saying(jax(30)), func(in *Input) {
			in.Cards = append(in.Cards, record.Assigned{Index: 1, Device: gpu.Device{ID: gpu1}})
		}), record.CauseOthers, record.CannotTell, "30.0 GiB while your job ran, seen at 03:51:40; whether that mattered"},
		{"idle ones", func(in *Input) {
			in.Cards = append(in.Cards, record.Assigned{Index: 1, Device: gpu.Device{ID: gpu1}})
			in.Recorded, in.Idle = []record.GPURecording{crowd}, []gpu.ID{gpu1}
		}, record.CauseProcesses, record.Yes, "4 processes with 130.0 GiB; idle: GPU 1"},
		{"one alone, as far as was seen", recording(record.GPURecording{ID: gpu0, Together: 1}), record.CauseProcesses, record.CannotTell, "no two were seen"},
		{"nobody in any sample, and the job's own use explains it", whole, record.CauseOthers, record.No, "nor in any sample between"},
		{"nobody in any sample, and nothing explains it", func(in *Input) { in.Whole = true }, record.CauseOthers, record.CannotTell, "what was there in between is not known"},
		{"nobody in those samples that there are", full, record.CauseOthers, record.CannotTell, "what was there in between is not known"},
		{"memory without a process", both(recording(without), saying(jax(30))), record.CauseUnlisted, record.Yes, "20.0 GiB while your job ran"},
		{"managed memory of its own, perhaps", both(recording(record.GPURecording{ID: gpu0, Own: record.Most{Bytes: gibi}, Together: 1, Unlisted: record.Most{Bytes: 20 * gibi}}), saying(jax(30))), record.CauseUnlisted, record.CannotTell,
			"20.0 GiB while your job ran; it may be managed memory of your job"},
	})
}

// What the node was short of before the job is evidence if the node's memory ran out, never if a limit of the job's did.
func TestShortBefore(t *testing.T) {
	kill := func(whole bool, limit uint64) func(*Input) {
		return func(in *Input) {
			const cgroup = "/system.slice/slurmstepd.scope/job_42/step_0/user/task_0"
			in.Kernel.Kills = []gpu.HostKill{{PID: 900, Cgroup: cgroup, Whole: whole, Limit: limit}}
		}
	}
	for name, tt := range map[string]struct {
		change func(*Input)
		want   bool
	}{
		"the kernel ended it for the node's memory": {kill(true, 0), true},
		"for its own limit":                         {kill(false, 16<<30), false},
		"for a limit that is not known":             {kill(false, 0), false},
		"a program was refused memory":              {saying(says(record.KindHost, record.FromOther)), true},
		"by ulimit -v":                              {both(limited(4), saying(says(record.KindHost, record.FromPyTorch))), false},
		"Slurm ended it":                            {saying(says(record.KindHost, record.FromSlurm)), false},
		"Slurm says so":                             {func(in *Input) { in.Job.Exit.Raw = 125 }, false},
		"it met no shortage":                        {func(*Input) {}, false},
	} {
		in := well(1)
		in.StartFindings = append(in.StartFindings, record.Saw(catalog.HostMemory, "9.0 GiB were taken", ""))
		tt.change(&in)
		got := Why(in).Cause(record.CauseLimits)
		must.Not(t, strings.Contains(got.Evidence, "; before your job, 9.0 GiB were taken") != tt.want, "%s: %+v", name, got)
	}
}

func TestLimitsAndShare(t *testing.T) {
	kill := func(cgroup string) func(*Input) {
		return func(in *Input) { in.Kernel.Kills = []gpu.HostKill{{PID: 900, Cgroup: cgroup}} }
	}
	judged(t, []row{
		{"none", nil, record.CauseLimits, record.No, "no ulimit -v, nothing killed"},
		{"a failure without a size", saying(says(record.KindDevice, record.FromCUDA)), record.CauseLimits, record.CannotTell, "its ulimit -v when it failed"},
		{"its claim is unknown", func(in *Input) { in.AddressSpace = gpu.Unknown("no task hook") }, record.CauseLimits, record.CannotTell, "its ulimit -v when it failed"},
		{"killed in this job", kill("/system.slice/slurmstepd.scope/job_42/step_0/user/task_0"), record.CauseLimits, record.Yes, "ended your process 900"},
		{"killed in another job", kill("/system.slice/slurmstepd.scope/job_77/step_0"), record.CauseLimits, record.No, "nothing killed"},
		{"Slurm says so", saying(says(record.KindHost, record.FromSlurm)), record.CauseLimits, record.Yes, "not the GPU's"},
		{"a program is refused memory", saying(says(record.KindHost, record.FromOther)), record.CauseLimits, record.Yes, "refused host memory, not the GPU's"},
		{"a program is refused memory under a limit", both(limited(4), saying(says(record.KindHost, record.FromPyTorch))), record.CauseLimits, record.Yes, "ulimit -v is 4.0 GiB"},
		{"Slurm's state says so", func(in *Input) { in.Job.Exit.Raw = 125 }, record.CauseLimits, record.Yes, "not the GPU's"},
		{"signal 9, no kill", func(in *Input) { in.Job.Exit.Raw = 9 }, record.CauseLimits, record.No, "nothing killed"},
		{"ulimit -v, no start", both(limited(4), saying(says(record.KindInit, record.FromPyTorch))), record.CauseLimits, record.Yes, "ulimit -v is 4.0 GiB"},
		{"no start, and no limit was seen", saying(says(record.KindInit, record.FromPyTorch)), record.CauseLimits, record.CannotTell, "no limit was seen"},
		{"no start, every interval recorded", both(saying(says(record.KindInit, record.FromPyTorch)), func(in *Input) { in.Whole = true }), record.CauseLimits, record.CannotTell, "no limit was seen"},
		{"no start on a GPU that was not clean", both(dirty(there(catalog.Dirty, 100, 5150, nil)), saying(says(record.KindInit, record.FromPyTorch))), record.CauseLimits, record.CannotTell, "no limit was seen"},
		{"no start on a GPU that its own filled", both(seeing(seen(500, 900, 139, true)), saying(says(record.KindInit, record.FromPyTorch))), record.CauseLimits, record.CannotTell, "no limit was seen"},
		{"ulimit -v, output not read", both(limited(4), func(in *Input) { in.MessagesUnknown = "no output file" }), record.CauseLimits, record.CannotTell, "ulimit -v is 4.0 GiB"},
		{"ulimit -v and a message", both(limited(4), saying(says(record.KindDevice, record.FromCUDA))), record.CauseLimits, record.Yes, "4.0 GiB"},
		{"ulimit -v and a message, but CUDA was seen at work", both(limited(100), saying(says(record.KindDevice, record.FromCUDA)), seeing(seen(500, 900, 20, true))), record.CauseLimits, record.CannotTell, "ulimit -v is 100.0 GiB"},
		{"ulimit -v, but the GPU was full", both(limited(4), saying(itself)), record.CauseLimits, record.No, "GPU's memory ran out"},
		{"alone", nil, record.CauseShare, record.No, "the whole GPU"},
		{"MIG", func(in *Input) {
			in.Cards[0].Device.Parent = "GPU-p"
			in.End.Snapshot.Readings[0].Memory = gpu.Memory{Total: gib(17.6), Reserved: gib(0.1)}
		}, record.CauseShare, record.Yes, "partition) with 17.5 GiB"},
		{"shards", func(in *Input) { in.Shared = "it is given out in shards" }, record.CauseShare, record.Yes, "in shards"},
		{"MPS", func(in *Input) { in.Job.MPSPercent = "50" }, record.CauseShare, record.Yes, "MPS"},
		{"unknown", func(in *Input) { in.SharedUnknown = "gres.conf not read" }, record.CauseShare, record.CannotTell, "gres.conf"},
	})
}

// Who asks, and what he is told first.
func TestAsked(t *testing.T) {
	for _, tt := range []struct {
		name     string
		change   func(*Input)
		reason   record.Reason
		headline string
		try      string // the first
	}{
		{"ended well", endedWell, "", "", ""},
		{"ended well, full GPU", func(in *Input) {
			in.Job.Exit = slurm.ExitStatus{Known: true}
			in.Seen = []Sighting{seen(500, 900, 139, true), seen(500, 901, 1, true)}
			in.Job.MPSPercent = "50"
		}, "", "", ""},
		{"no one knows how it ended", func(in *Input) { in.Job.Exit = slurm.ExitStatus{} }, "", "", ""},
		{"failed", func(*Input) {}, record.ByFailure, "Your job failed (exit code 1); no message about memory in its output", ""},
		{"failed, output not read", func(in *Input) { in.MessagesUnknown = "goes to srun's own terminal" }, record.ByFailure,
			"Your job failed (exit code 1); its output was not read (goes to srun's own terminal)", ""},
		{"failed, output not read, but recorded", both(seeing(seen(500, 900, 20, true)), func(in *Input) { in.MessagesUnknown = "no file" }), record.ByFailure,
			"Your job failed (exit code 1); no sample of its GPUs shows why", ""},
		{"failed, output read in part", func(in *Input) { in.MessagesPart = "only its last 64 KiB" }, record.ByFailure,
			"Your job failed (exit code 1); its output was read in part (only its last 64 KiB)", ""},
		{"failed by an error of its own", saying(failing("an illegal memory access was encountered")), record.ByFailure,
			"Your job failed (exit code 1); its output reports that a kernel used a wrong address or instruction", ""},
		{"cancelled after an error of the GPU", both(endedWell, saying(failing("uncorrectable NVLink error detected")), func(in *Input) { in.Cancelled = true }), record.ByFailure,
			"Your job was cancelled or met its time limit. Found: GPU or driver had a fault", ""},
		{"failed by an error that is no program's", saying(failing("all CUDA-capable devices are busy or unavailable")), record.ByFailure,
			"Your job failed (exit code 1); its output reports that the GPU was refused as busy", ""},
		{"killed for host memory, output not read", func(in *Input) { in.Job.Exit.Raw, in.MessagesUnknown = 125, "no output file" }, record.ByFailure,
			"Your job was ended by signal 125. Found: host memory ran out", "more host memory: sbatch --mem, or fewer workers"},
		{"a step failed", func(in *Input) { in.Job.Exit = slurm.ExitStatus{Known: true, Derived: 9} }, record.ByFailure,
			"A step of your job was ended by signal 9; no message about memory in its output", ""},
		{"failed on a GPU that was not clean", dirty(there(catalog.Dirty, 20, 0, before)), record.ByFailure,
			"Your job failed (exit code 1). Found: an earlier job left GPU memory in use", "another node: sbatch --exclude=n1"},
		{"ended well on a GPU that was not clean", both(endedWell, dirty(there(catalog.Dirty, 20, 5150, nil))), record.ByCause, "Seen while your job ran: another process held memory of your GPU", ""},
		{"a message in a job that was cancelled", both(endedWell, saying(itself), func(in *Input) { in.Cancelled = true }), record.ByMessage, "Why out of memory: your job needed more than the GPU has", "smaller batch, lower precision, more GPUs; gradient checkpointing if it trains"},
		{"a message in a job that ended well", both(endedWell, saying(itself)), record.ByMessage, "It ran out of memory, but ended without an error: your job needed more than the GPU has", "smaller batch, lower precision, more GPUs; gradient checkpointing if it trains"},
		{"another process's and the pool's", both(dirty(there(catalog.Dirty, 10, 5150, nil)), saying(torch(16, 1, 128.8, 9))), record.ByMessage, "Why out of memory: another process held memory of your GPU; fragmentation inside PyTorch", "another node: sbatch --exclude=n1"},
		{"something unknown", saying(beside), record.ByMessage, "Why out of memory: something unknown held 100.5 GiB of the GPU", "nvidia-smi in your job: is the other process yours?"},
		{"nothing on the node", saying(jax(100)), record.ByMessage,
			"Why out of memory: nothing seen on n1 explains it: most likely your job itself", "export XLA_PYTHON_CLIENT_MEM_FRACTION=.95, if it has the GPU alone"},
		{"nothing on the node, its own seen", both(seeing(seen(500, 900, 98, true)), saying(jax(100))), record.ByMessage,
			"Why out of memory: nothing seen on n1 explains it: most likely your job itself (at least 98.0 of 139.8 GiB in one process)", "export XLA_PYTHON_CLIENT_MEM_FRACTION=.95, if it has the GPU alone"},
		{"nothing on the node, not all seen", func(in *Input) { in.Messages, in.Kernel = []record.Message{jax(100)}, nil }, record.ByMessage,
			"Why out of memory: not known; nothing that was looked at on n1 explains it", "export XLA_PYTHON_CLIENT_MEM_FRACTION=.95, if it has the GPU alone"},
		{"another's on one of two GPUs, on which is not known", both(func(in *Input) { *in = well(2) }, seeing(seen(500, 5150, 30, false)), saying(says(record.KindDevice, record.FromCUDA))), record.ByMessage,
			"Why out of memory: not known; perhaps another process held memory of your GPU (30.0 GiB while your job ran, seen at 03:51:40)", "another node: sbatch --exclude=n1"},
		{"somebody's on the GPU", both(seeing(Sighting{At: time.Second, Device: gpu0, PID: 5150, Bytes: gib(30)}), saying(says(record.KindDevice, record.FromCUDA))), record.ByMessage,
			"Why out of memory: not known; perhaps another process held memory of your GPU (a process was there whose owner could not be told)", "another node: sbatch --exclude=n1"},
		{"likely its own, on a node without cgroups", both(seeing(Sighting{At: time.Second, Device: gpu0, PID: 900, Bytes: gib(30), Likely: true}), saying(says(record.KindDevice, record.FromCUDA))), record.ByMessage,
			"Why out of memory: nothing seen on n1 explains it: most likely your job itself", "smaller problem or batch, lower precision, more or larger GPUs"},
		{"without a process on one of two GPUs, on which is not known", both(func(in *Input) { *in = well(2) }, recording(record.GPURecording{ID: gpu0, Unlisted: record.Most{Bytes: 20 * gibi}}), saying(says(record.KindDevice, record.FromCUDA))), record.ByMessage,
			"Why out of memory: not known; perhaps GPU memory was in use without a process (20.0 GiB while your job ran)", "another node: sbatch --exclude=n1"},
		{"left on one of several nodes", both(func(in *Input) { in.Job.HetJobID = 41 }, dirty(there(catalog.Dirty, 20, 0, before)), saying(says(record.KindDevice, record.FromCUDA))), record.ByMessage,
			"Why out of memory: not known; perhaps an earlier job left GPU memory in use (20.0 GiB when your job began)", "smaller problem or batch, lower precision, more or larger GPUs"},
		{"beside a suspended job", both(suspended(func(in *Input) *record.Side { return in.Start }, slurm.Owner{ID: 41}, 70), saying(says(record.KindDevice, record.FromCUDA))), record.ByMessage,
			"Why out of memory: another process held memory of your GPU", "another node: sbatch --exclude=n1"},
		{"no start, no limit seen", saying(says(record.KindInit, record.FromPyTorch)), record.ByMessage,
			"Why CUDA did not start: nothing seen on n1 explains it; a limit such as ulimit -v would", "ulimit -v unlimited; look for ulimit in script and .bashrc"},
		{"an uncorrectable error, then no memory", saying(failing("uncorrectable ECC error encountered"), itself), record.ByMessage,
			"Why out of memory: GPU or driver had a fault", ""},
		{"busy, then no memory", saying(failing("all CUDA-capable devices are busy or unavailable"), says(record.KindDevice, record.FromCUDA)), record.ByMessage,
			"Why out of memory: not known; its output reports that the GPU was refused as busy", ""},
		{"no memory, then an error of its own", saying(jax(100), failing("device-side assert triggered")), record.ByMessage,
			"Why out of memory: nothing seen on n1 explains it: most likely your job itself", "export XLA_PYTHON_CLIENT_MEM_FRACTION=.95, if it has the GPU alone"},
		{"a memory error that ended a program, and no memory", both(finds(xid94), saying(itself)), record.ByMessage,
			"Why out of memory: GPU or driver had a fault", ""},
		{"an error from before the job, and its own need", both(finds(record.Finding{Code: catalog.XidFatal, GPU: gpu0, Xid: 48, Earlier: true}), saying(itself)), record.ByMessage,
			"Why out of memory: your job needed more than the GPU has; GPU or driver had a fault", "smaller batch, lower precision, more GPUs; gradient checkpointing if it trains"},
		{"PyTorch's pool", saying(pooled), record.ByMessage,
			"Why out of memory: fragmentation inside PyTorch", "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"},
		{"CuPy's pool", both(saying(pooled), func(in *Input) { in.Messages[0].Framework = record.FromCuPy }), record.ByMessage, "Why out of memory: fragmentation inside CuPy", "arrays of one size; or at the start: cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)"},
		{"several JAX processes", both(recording(record.GPURecording{ID: gpu0, Own: record.Most{Bytes: 120 * gibi}, Together: 2}), saying(jax(20))), record.ByMessage, "Why out of memory: several processes of your job share one GPU", "export XLA_PYTHON_CLIENT_PREALLOCATE=false, or one process a GPU"},
		{"two causes, one remedy", both(dirty(there(catalog.Dirty, 30, 0, before)), finds(there(catalog.Foreign, 9, 5150, before))), record.ByFailure,
			"Your job failed (exit code 1). Found: an earlier job left GPU memory in use; another process held memory of your GPU",
			"another node: sbatch --exclude=n1"},
		{"others where they may be, and it ended well", both(endedWell, seeing(seen(500, 5150, 20, false)), func(in *Input) { in.Shared = "shards" }), "", "", ""},
		{"a lost GPU", finds(there(catalog.Lost, 0, 0, nil)), record.ByFailure,
			"Your job failed (exit code 1). Found: GPU or driver had a fault", "another node: sbatch --exclude=n1"},
		{"its own without a process", both(ownResidue, saying(beside)), record.ByMessage, "Why out of memory: GPU memory was in use without a process", "end what your job starts in the background, and what it exports"},
		{"host memory", saying(says(record.KindHost, record.FromSlurm)), record.ByMessage,
			"Why out of memory: host memory, not the GPU's", "more host memory: sbatch --mem, or fewer workers"},
		{"host memory under a limit", both(limited(4), saying(says(record.KindHost, record.FromOther))), record.ByMessage,
			"Why out of memory: a limit of your job, not the GPU", "ulimit -v unlimited; look for ulimit in script and .bashrc"},
		{"a kernel's shared memory", saying(says(record.KindShared, "Triton")), record.ByShared,
			"A kernel wanted more shared memory or registers than a GPU has", "smaller tiles (BLOCK sizes), fewer num_stages or num_warps"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := well(1)
			tt.change(&in)
			d := Why(in)
			first := strings.Join(d.Try[:min(1, len(d.Try))], "")
			if d.Reason != tt.reason || d.Headline != tt.headline || first != tt.try {
				t.Errorf("reason %q, headline %q, try %q\nwant %q, %q, %q\n%+v", d.Reason, d.Headline, first, tt.reason, tt.headline, tt.try, d.Causes)
			}
			whole(t, d)
			neverWithoutEvidence(t, in)
		})
	}
}

// With several cards each answer names its own, and none where that is not certain.
func TestCards(t *testing.T) {
	m := itself
	m.PID = 900
	on1 := Sighting{At: time.Second, Device: gpu1, PID: 900, Own: true}
	for name, tt := range map[string]struct {
		said record.Message
		seen []Sighting
		on   int // -1: not known
	}{
		"no process named":         {itself, []Sighting{seen(500, 900, 20, true)}, -1},
		"seen on one":              {m, []Sighting{seen(500, 900, 20, true)}, 0},
		"seen on both":             {m, []Sighting{seen(500, 900, 20, true), on1}, -1},
		"another's of that number": {m, []Sighting{seen(500, 900, 20, false)}, -1},
	} {
		in := well(2)
		in.Messages, in.Seen = []record.Message{tt.said}, tt.seen
		if d := Why(in); (d.Where == " GPU 0") != (tt.on == 0) {
			t.Errorf("%s: %q", name, d.Where)
		}
		if c := Why(in).Cause(record.CauseOwn); c.Answer != record.Yes || (c.Index != nil) != (tt.on == 0) || c.Index != nil && *c.Index != tt.on {
			t.Errorf("%s: %+v", name, c)
		}
	}
}

// The answer names the GPU by the program's own number only if the job's list, or the samples, leave no doubt.
func TestWhere(t *testing.T) {
	says := func(gpus ...int) (all []record.Message) {
		for _, n := range gpus {
			m := itself
			m.GPU, m.PID = &n, 900+n
			all = append(all, m)
		}
		return all
	}
	four := record.GPURecording{ID: gpu0, Own: record.Most{Bytes: 100 * gibi}, Together: 4}
	for name, tt := range map[string]struct {
		messages []record.Message
		change   func(*Input)
		want     string
	}{
		"no number":                        {[]record.Message{itself}, nil, ""},
		"0, perhaps of a task's own list":  {says(0), nil, ", your program's GPU 0"},
		"1, so it sees both":               {says(1), nil, " GPU 5"},
		"both":                             {says(0, 1), nil, " GPUs 4,5"},
		"a number that the job lacks":      {says(2), nil, ", your program's GPU 2"},
		"ranks on the only one in use":     {says(0), recording(four), " GPU 4"},
		"one in use, without a number":     {[]record.Message{itself}, recording(four), " GPU 4"},
		"a number of the one not in use":   {says(1), recording(four), ", your program's GPU 1"},
		"one in use by others":             {says(0), recording(record.GPURecording{ID: gpu0}), ", your program's GPU 0"},
		"Slurm's order is not that of bus": {says(1), func(in *Input) { in.Cards[0].Device.BusID = "9" }, ", your program's GPU 1"},
		"the buses are not known":          {says(1), func(in *Input) { in.Cards[0].Device.BusID, in.Cards[1].Device.BusID = "", "" }, ", your program's GPU 1"},
		"several nodes":                    {says(1), func(in *Input) { in.Job.NodeList = "n[1-2]" }, ""},
	} {
		in := well(2)
		for i := range in.Cards {
			in.Cards[i].Index, in.Cards[i].Device.BusID = 4+i, gpu.BusID("0000:0"+string(rune('1'+i)))
		}
		if in.Messages = tt.messages; tt.change != nil {
			tt.change(&in)
		}
		if len(in.Recorded) > 0 {
			in.Idle = []gpu.ID{gpu1}
		}
		if got := Why(in).Where; got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// Ranks on one GPU read which GPUs were idle, and a line for each launcher; on the job's only GPU none of that helps.
func TestRanksOnOneGPU(t *testing.T) {
	in := well(2)
	beside := beside
	zero := 0
	beside.GPU = &zero
	in.Messages, in.Idle = []record.Message{beside}, []gpu.ID{gpu1}
	in.Recorded = []record.GPURecording{{ID: gpu0, Own: record.Most{Bytes: 124 * gibi}, Together: 4}}
	d := Why(in)
	c := d.Cause(record.CauseProcesses)
	if c.Answer != record.Yes || c.Index == nil || *c.Index != 0 || !strings.HasSuffix(c.Evidence, "; idle: GPU 1") || d.Where != " GPU 0" {
		t.Errorf("%+v, %q", c, d.Where)
	}
	for i, launcher := range []string{"torchrun: ", "srun ", "mpirun "} {
		if len(d.Try) != 3 || !strings.HasPrefix(d.Try[i], launcher) {
			t.Fatalf("%q", d.Try)
		}
	}
	one := well(1)
	one.Messages, one.Recorded = []record.Message{beside}, in.Recorded
	if d := Why(one); d.Cause(record.CauseProcesses).Answer != record.Yes || len(d.Try) != 1 || !strings.HasPrefix(d.Try[0], "fewer processes") {
		t.Errorf("%q, %+v", d.Try, d.Causes)
	}
}

// What a process had of a small GPU is not outdone by more on a larger one.
func TestOwnOnUnequalCards(t *testing.T) {
	in := well(2)
	in.Start.Snapshot.Readings[0].Memory.Total, in.End.Snapshot.Readings[0].Memory.Total = gib(16), gib(16)
	large := seen(500, 901, 30, true)
	large.Device = gpu1
	seeing(seen(500, 900, 15.2, true), large)(&in)
	if c := Why(in).Cause(record.CauseOwn); c.Answer != record.Yes || !strings.Contains(c.Evidence, "15.2 of") {
		t.Errorf("%+v", c)
	}
}

// Nothing known at all is no diagnosis, and no crash.
func TestNothingKnown(t *testing.T) {
	d := Why(Input{})
	whole(t, d)
	for _, c := range d.Causes {
		if c.Answer != record.CannotTell {
			t.Errorf("%+v", c)
		}
	}
}

// trains are the programs that are used to train.
var trains = []string{"FSDP", "HF Accelerate"}

// Advice for a program that no message is ever of would never be given, and neither would more lines than a report has
// room for. Each program has its own advice, and says where that is from.
func TestAdvice(t *testing.T) {
	rows := []string{"left", "host", "shared", "unexplained", "single", "once", "broken", "cap"}
	for head, try := range advice() {
		program, cause, _ := strings.Cut(head, ": ")
		speaks, works := says(record.KindDevice, record.Framework(program)), says(record.KindDevice, record.FromCUDA)
		works.Program = record.Framework(program)
		must.Not(t, program != "any" && !oomlog.Valid(speaks) && !oomlog.Valid(works), "words.txt has no %q", program)
		must.Not(t, record.CauseName(cause).Title() == "" && !slices.Contains(rows, cause), "no cause %q", cause)
		line := strings.NewReplacer("FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION", "SETTING", "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
			"NODE", "a-name-of-a-node-01").Replace(strings.Join(try, "; "))
		must.Not(t, len(try) == 0 || len(try) > record.MaxTry || len(line) > 225, "%s: %d lines of %d bytes", head, len(try), len(line))
		must.Not(t, strings.Contains(strings.ReplaceAll(line, "gradient checkpointing if it trains", ""), "gradient checkpointing") &&
			!slices.Contains(trains, program), "%s does not train", head)
		must.Not(t, strings.Contains(strings.ReplaceAll(strings.Join(try, ""), "=NODE", ""), "NODE"), "%s: a part of a word would become the node", head)
	}
	for line := range strings.Lines(must.Read(t, "../oomlog/words.txt")) {
		if head, begins := strings.CutPrefix(line, "== program: "); begins {
			program, _, _ := strings.Cut(strings.TrimSpace(head), ",")
			must.Not(t, advice()[program+": own"] == nil && advice()[program+": host"] == nil, "no advice for %s", program)
		}
	}
	sourced := map[string]bool{"any": true}
	for p := range strings.SplitSeq(adviceFile, "\n\n") {
		for _, row := range paragraphs(p) {
			program, _, _ := strings.Cut(row[0], ":")
			must.Not(t, !sourced[program] && !strings.HasPrefix(p, "# source: "), "%s has no source", program)
			sourced[program] = true
		}
	}
}

var update = flag.Bool("update", false, "rewrite testdata/answers.txt")

// What each program's own message makes its owner read.
func TestAnswers(t *testing.T) {
	golden.Lines(t, *update, "testdata/answers.txt", func(line string) string {
		in := well(1)
		in.Messages = oomlog.Find([]byte(strings.ReplaceAll(line, "\\n", "\n") + "\n"))
		if len(in.Messages) == 0 {
			return "nothing"
		}
		d, last := Why(in), in.Messages[len(in.Messages)-1]
		whole(t, d)
		return fmt.Sprintf("%s: %s. Try: %s", cmp.Or(last.Program, last.Framework), d.Headline, strings.Join(d.Try, "; "))
	})
}

// The version of PyTorch and JAX, a size that is broken and one that is too large decide what is advised.
func TestAdviceByProgram(t *testing.T) {
	const torch21 = "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 12.00 GiB. GPU 0 has a total capacty of 139.80 GiB of which 1.10 GiB is free. " +
		"Including non-PyTorch memory, this process has 138.60 GiB memory in use. Of the allocated memory 93.10 GiB is allocated by PyTorch, and 45.00 GiB is reserved by PyTorch but unallocated. "
	const torch20 = "RuntimeError: CUDA out of memory. Tried to allocate 12.00 GiB (GPU 0; 139.80 GiB total capacity; 93.10 GiB already allocated; 1.10 GiB free; 138.10 GiB reserved in total by PyTorch) " +
		"If reserved memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation.  See documentation for Memory Management and PYTORCH_CUDA_ALLOC_CONF"
	for name, tt := range map[string]struct{ text, first string }{
		"PyTorch up to 2.0": {torch20, "export PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128"},
		"PyTorch 2.2":       {torch21 + "If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.", "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"},
		"PyTorch 2.10":      {torch21 + "If reserved but unallocated memory is large try setting PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation.", "export PYTORCH_ALLOC_CONF=expandable_segments:True"},
		"PyTorch, ROCm":     {strings.Replace(torch21, "CUDA out", "HIP out", 1) + "If reserved but unallocated memory is large try setting PYTORCH_HIP_ALLOC_CONF=expandable_segments:True", "export PYTORCH_HIP_ALLOC_CONF=max_split_size_mb:128"},
		"JAX, old":          {"jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 21474836480 bytes.", "export XLA_PYTHON_CLIENT_MEM_FRACTION=.95, if it has the GPU alone"},
		"JAX, new":          {"jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 21474836480 bytes.", "export XLA_CLIENT_MEM_FRACTION=.95, if it has the GPU alone"},
		"vLLM":              {`  File "/opt/vllm/v1/worker/gpu_worker.py", line 10, in x` + "\nValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.", "smaller --max-model-len and --max-num-seqs; --enforce-eager"},
		"PyTorch in vLLM":   {`  File "/opt/lib/python3.12/site-packages/vllm/worker.py", line 10, in x` + "\ntorch.OutOfMemoryError: CUDA error: out of memory", "smaller --max-model-len and --max-num-seqs; --enforce-eager"},
		"CUDA":              {"CUDA error: out of memory at main.cu:7", "smaller problem or batch, lower precision, more or larger GPUs"},
		"an overflow":       {"torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 67109892.01 GiB. GPU 0 has a total capacty of 139.80 GiB of which 117.17 GiB is free.", "check shapes and index types for an overflow"},
		"a limit of its own": {"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 139.80 GiB of which 120.00 GiB is free. Including non-PyTorch memory, " +
			"this process has 13.50 GiB memory in use. 14.00 GiB allowed; Of the allocated memory 13.00 GiB is allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated.", "a larger torch.cuda.set_per_process_memory_fraction()"},
		"one large request": {"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 256.00 GiB. GPU 0 has a total capacity of 139.80 GiB of which 125.38 GiB is free.", "split that request: process the data in chunks, at a lower resolution or a shorter length"},
	} {
		in := well(1)
		in.Messages = oomlog.Find([]byte(tt.text + "\n"))
		d := Why(in)
		must.Not(t, len(d.Try) == 0 || d.Try[0] != tt.first, "%s: %q of %+v\n%q", name, d.Try, in.Messages, d.Headline)
		whole(t, d)
	}
}
