package state

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/catalog"
	"bookend/internal/drain"
	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/safefile"
	"bookend/internal/slurm"
	"bookend/test/faultinject"
	"bookend/test/must"
)

// Every child that lives is on record, in the driver and among each user's files: hooks at once may each leave one.
func TestStuck(t *testing.T) {
	s := fresh(t)
	dead := map[int]bool{}
	alive := func(stuck Stuck) bool { return !dead[stuck.PID] }
	of := func(uid uint32) *uint32 { return &uid }
	check := func(user *uint32, want int) {
		t.Helper()
		got, err := s.Stuck(user, alive)
		must.Not(t, err != nil || (got == nil) != (want == 0) || got != nil && got.PID != want,
			"got %+v, %v, want PID %d", got, err, want)
	}
	set := func(user *uint32, pid int) {
		t.Helper()
		must.Do(t, StuckChildren.Add(s, Stuck{PID: pid, StartTicks: 9, Op: "append", User: user}, alive))
	}
	check(nil, 0)
	set(nil, 7)
	set(nil, 8)
	set(of(5), 50)
	set(of(5), 51)
	set(of(0), 60)
	check(nil, 7)
	check(of(5), 50)
	check(of(0), 60)
	check(of(6), 0)
	dead[7], dead[50] = true, true
	check(nil, 8)
	check(of(5), 51)
	set(nil, 9)
	must.Be(t, "those that live", len(must.Have(StuckChildren.file.read(s))(t)), 4)
	dead[8], dead[9] = true, true
	check(nil, 0)
}

// A stuck reader is never forgotten for another, and the record of as many as there may be fits.
func TestReadersAreBounded(t *testing.T) {
	s := fresh(t)
	dead := map[int]bool{}
	alive := func(s Stuck) bool { return !dead[s.PID] }
	add := func(pid, places int) error {
		var at []record.Instance
		for i := range places {
			at = append(at, record.Instance{PID: 4_000_000 + i, Start: 1e17 + time.Duration(i)})
		}
		return StuckReaders.Add(s, Stuck{PID: pid, StartTicks: 1e17, Since: 1e17, Op: "processes", At: at}, alive)
	}
	for i := range MaxReaders {
		must.Do(t, add(4_000_000+i, maxPlaces+i%2))
	}
	on := StuckReaders.PeekNode(s.Users.Run, node, alive)
	must.Not(t, len(on) != MaxReaders || len(on[0].At) != maxPlaces || len(on[1].At) != 0,
		"on record: %d, with %d and %d places", len(on), len(on[0].At), len(on[1].At))
	must.Not(t, add(7, 1) == nil, "one too many was recorded")
	must.Be(t, "on record", StuckReaders.PeekNode(s.Users.Run, node, alive), on)
	dead[4_000_000] = true
	must.Do(t, add(7, 1))
	must.Be(t, "on record once one has ended", len(StuckReaders.PeekNode(s.Users.Run, node, alive)), MaxReaders)
}

func TestRepeat(t *testing.T) {
	s := fresh(t)
	for i, tc := range []struct {
		code       string
		now        time.Duration
		say        bool
		suppressed int
	}{
		{"A", time.Minute, true, 0},
		{"A", 2 * time.Minute, false, 0},
		{"B", 2 * time.Minute, true, 0},
		{"A", time.Minute + sayAgain - 1, false, 0},
		{"A", time.Minute + sayAgain, true, 2},
		{"A", time.Minute + 2*sayAgain, true, 0},
		{"A", time.Second, true, 0}, // the node has booted
		{"A", 2 * time.Second, false, 0},
	} {
		say, n := s.Repeat(tc.code, tc.now)
		must.Not(t, say != tc.say || n != tc.suppressed, "%d: got %v, %d, want %+v", i, say, n, tc)
	}
}

// Damage and a lock make no fault silent.
func TestRepeatIsNeverSilent(t *testing.T) {
	s := fresh(t)
	says := func(now time.Duration) bool { say, _ := s.Repeat("A", now); return say }
	says(0)
	for _, text := range []string{`{"A":`, `{"A":{"said_ns":1},"B":3}`, "null", `{"A":{"said_ns":-1}}`,
		`{"A":{"said_ns":9223372036854775807}}`, `{"A":null}`} {
		must.Do(t, os.WriteFile(filepath.Join(s.dir, faultsFile.name), []byte(text), 0o600))
		must.Be(t, text, says(1), true)
		must.Be(t, text+" repaired", says(2), false)
	}
	release := must.Have(safefile.Lock(filepath.Join(s.dir, lockOther), 0, true))(t)
	must.Be(t, "locked", says(3), true)
	release()
}

const ourReason = "BKD-ORPHAN gpu=0 2518MiB pid=4711 job=42 epilog; see: bookend show 42"

func aDrain() drain.Remembered {
	at := time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)
	return drain.Remembered{
		Written: &drain.Written{
			Reason: ourReason, Wall: at, Conf: "/etc/slurm/slurm.conf",
			Epoch: gpu.Epoch{Boot: "b"}, Clean: 2,
			Causes: []drain.Cause{{Code: catalog.Orphan, GPU: "GPU-a"}},
		},
		Settled: []drain.Ref{{Job: 42, At: time.Hour}}, Last: &drain.Said{Wall: at, Act: drain.Write, Why: "for it"},
	}
}

// Whoever decided on what is not so any more changes nothing; a reason in the words of another release is ours as long
// as it is on record.
func TestDrain(t *testing.T) {
	s := fresh(t)
	must.Do(t, s.SwapDrain(drain.Remembered{}, aDrain()))
	other, large := aDrain(), aDrain()
	other.Written.Clean++
	large.Last.Why = string(make([]byte, drainFile.most))
	for name, tt := range map[string]struct {
		seen, next drain.Remembered
		want       error
	}{
		"nothing seen": {drain.Remembered{}, drain.Remembered{}, ErrChanged},
		"another seen": {other, drain.Remembered{}, ErrChanged},
		"too large":    {aDrain(), large, safefile.ErrTooLarge},
	} {
		must.Fail(t, name, s.SwapDrain(tt.seen, tt.next), tt.want)
	}
	must.Be(t, "unchanged", must.Have(s.Drain())(t), aDrain())
	old := aDrain()
	old.Written.Reason = "BKD-ORPHAN gpu=0 leftover pid=4711 20.5GiB job=42; on node: bookend show 42"
	must.Do(t, s.SwapDrain(aDrain(), old))
	must.Be(t, "in the words of another release", must.Have(s.Drain())(t), old)
}

// A crowded card keeps a check's record small, and says that there were more. Of samples that could not read any card
// there is no room for all: the newest stay.
func TestChecksAreBounded(t *testing.T) {
	s := fresh(t)
	c := record.Check{}
	for range 16 {
		r := gpu.Reading{}
		for pid := range 2000 {
			r.Processes = append(r.Processes, gpu.Process{PID: pid, Memory: gpu.Bytes(1 << 30)})
		}
		c.Snapshot.Readings = append(c.Snapshot.Readings, r)
	}
	must.Do(t, LastCheck.Save(s, &c))
	got := must.Have(LastCheck.Load(s))(t)
	r := got.Snapshot.Readings[3]
	must.Not(t, len(r.Processes) != 256 || r.ProcessesUnknown == "", "got %d processes, want 256", len(r.Processes))
	must.Not(t, len(c.Snapshot.Readings[0].Processes) != 2000, "the caller's own was cut")
}

var epoch = gpu.Epoch{Boot: "b", Driver: "580", Module: "m@1"}

func carries(id gpu.ID, bytes uint64) record.Baseline {
	return record.Baseline{
		GPU: id, Epoch: epoch, Bytes: bytes, Holder: "dcgm.service", At: time.Minute,
		Residents: []record.Resident{{PID: 7, Start: time.Second, Bytes: 5 << 20, Service: "dcgm.service"}},
	}
}

func tested(id gpu.ID, at time.Duration) record.TestRecord {
	return record.TestRecord{
		Probe: gpu.Probe{
			Device: id, Result: gpu.ProbeOK, Free: gpu.Bytes(2 << 30), Largest: gpu.Bytes(2<<30 - 2<<20), Attempts: 2,
			At: at,
		},
		Epoch: epoch, Kernel: gpu.KernelMark{Seq: 7, At: time.Second}, Wall: time.Unix(1800000000, 0).UTC(), Seen: 1,
	}
}

// Entries are replaced card by card, and forgotten.
func TestPerCard(t *testing.T) {
	s := fresh(t)
	must.Do(t, errors.Join(Baselines.Drop(s, "GPU-1"), Probes.Put(s)))
	accepted := carries("GPU-2", 60<<20)
	accepted.Accepted = true
	for _, b := range []record.Baseline{carries("GPU-1", 1<<20), accepted, carries("GPU-0", 0),
		carries("GPU-1", 3<<20)} {
		must.Do(t, Baselines.Put(s, b))
	}
	want := map[gpu.ID]record.Baseline{"GPU-0": carries("GPU-0", 0), "GPU-1": carries("GPU-1", 3<<20),
		"GPU-2": accepted}
	must.Be(t, "baselines", must.Have(Baselines.Load(s))(t), want)
	must.Do(t, Baselines.Drop(s, "GPU-0", "GPU-2", "GPU-9"))
	delete(want, "GPU-0")
	delete(want, "GPU-2")
	must.Be(t, "baselines left", must.Have(Baselines.Load(s))(t), want)
	bad := tested("GPU-1", 2)
	bad.Probe.Result, bad.Probe.Error = gpu.ProbeBroken, &gpu.CallError{Call: "cuInit", Code: 999}
	must.Do(t, errors.Join(Probes.Put(s, tested("GPU-1", 1), tested("GPU-0", 1)), Probes.Put(s, bad)))
	tests := map[gpu.ID]record.TestRecord{"GPU-0": tested("GPU-0", 1), "GPU-1": bad}
	must.Be(t, "tests", must.Have(Probes.Load(s))(t), tests)
}

// What was learned, accepted or tested in another epoch holds for nothing in this one.
func TestOtherEpochsGo(t *testing.T) {
	s := fresh(t)
	old, fresh, test := carries("GPU-0", 1<<20), carries("GPU-1", 2<<20), tested("GPU-1", 1)
	old.Accepted, fresh.Epoch.Module, test.Epoch.Module = true, "m@2", "m@2"
	must.Do(t, errors.Join(Baselines.Put(s, old), Baselines.Put(s, fresh)))
	must.Do(t, errors.Join(Probes.Put(s, tested("GPU-0", 1)), Probes.Put(s, test)))
	must.Be(t, "baselines", must.Have(Baselines.Load(s))(t), map[gpu.ID]record.Baseline{"GPU-1": fresh})
	must.Be(t, "tests", must.Have(Probes.Load(s))(t), map[gpu.ID]record.TestRecord{"GPU-1": test})
}

func TestPerCardRefuses(t *testing.T) {
	s := fresh(t)
	unknown, half, other := carries("GPU-0", 0), tested("GPU-2", 1), tested("GPU-1", 1)
	unknown.Epoch.Driver, half.Epoch.Driver, other.Epoch.Module = "", "", "m@2"
	for name, tt := range map[string]struct{ err, want error }{
		"half an epoch":       {Baselines.Put(s, unknown), ErrEpoch},
		"a test in such one":  {Probes.Put(s, half), ErrEpoch},
		"tests of two epochs": {Probes.Put(s, other, tested("GPU-0", 1)), ErrEpoch},
		"a test of no GPU":    {Probes.Put(s, tested("", 1)), ErrEpoch},
	} {
		must.Fail(t, name, tt.err, tt.want)
	}
	must.Be(t, "baselines", must.Have(Baselines.Load(s))(t), map[gpu.ID]record.Baseline{})
	must.Be(t, "tests", must.Have(Probes.Load(s))(t), map[gpu.ID]record.TestRecord{})
}

// MIG instances get new ids each time they are made, and a backend may say much of each: the oldest go, the file stays
// readable.
func TestPerCardIsBounded(t *testing.T) {
	s := fresh(t)
	for i := range maxCards + 20 {
		id := gpu.ID(fmt.Sprintf("MIG-%03d", i))
		b, r := carries(id, 1<<20), tested(id, time.Duration(i))
		b.At = time.Duration(i) * time.Second
		b.Residents = slices.Repeat(b.Residents, 8)
		long := strings.Repeat("x", 512)
		r.Probe.Why, r.Probe.Error = long, &gpu.CallError{Call: "cuInit", Meaning: long, Remedy: long}
		must.Do(t, errors.Join(Baselines.Put(s, b), Probes.Put(s, r)))
	}
	baselines, tests := must.Have(Baselines.Load(s))(t), must.Have(Probes.Load(s))(t)
	must.Be(t, "baselines and tests", []int{len(baselines), len(tests)}, []int{maxCards, maxCards})
	_, oldest := baselines["MIG-019"]
	_, newest := baselines["MIG-147"]
	_, oldTest := tests["MIG-019"]
	must.Be(t, "the oldest and the newest", []bool{oldest, oldTest, newest}, []bool{false, false, true})
}

// Whoever looks for a multi-process service in the folder finds nothing, and nobody but root could put one there.
func TestNoMPS(t *testing.T) {
	s, other := fresh(t), fresh(t)
	must.Be(t, "its path", must.Have(s.Turns.NoMPS())(t), filepath.Join(s.dir, "no-mps"))
	must.Do(t, os.Symlink("/", filepath.Join(other.dir, "no-mps")))
	must.Fail(t, "one that leads elsewhere", must.Err(other.Turns.NoMPS()), safefile.ErrNotOurs)
}

// Runs are noticed when they begin and end, the second one of a requeued job too, whose folder is there.
func TestOpenings(t *testing.T) {
	s := fresh(t)
	o, late := s.Openings(), time.Now().Add(time.Hour) // when the clock of files surely tells
	expect := func(what string, want int) {
		t.Helper()
		must.Be(t, what, len(o.Runs(late)), want)
	}
	begin := func(restarts int) record.Run {
		j := job(7)
		j.Start, j.Restarts = time.Unix(int64(1000+restarts), 0), restarts
		run := record.Run{Job: j, Start: &record.End{At: time.Duration(1 + restarts), Wall: j.Start}}
		must.Do(t, s.Begin(run))
		time.Sleep(20 * time.Millisecond) // the tick of the clock of files
		return run
	}
	expect("none", 0)
	run := begin(0)
	expect("the first", 1)
	found, _, err := s.Find(run.Job)
	must.Do(t, err)
	must.Do(t, s.Close(found, record.End{At: time.Second}))
	time.Sleep(20 * time.Millisecond)
	expect("its end", 0)
	begin(1)
	expect("the second", 1)
	must.Do(t, unix.Utimes(s.dir, nil))
	for name, c := range map[string]faultinject.Filter{"a directory": listing(unix.EIO), "a record": reading(unix.EIO)} {
		_ = refused(t, c, func() error { expect(name+" that cannot be read now", 1); return nil })
	}
	expect("read again", 1)
	expect("and kept", 1)
	must.Do(t, os.WriteFile(filepath.Join(s.dir, damagedName), nil, 0o600))
	begin(2) // supersedes the one before
	expect("the third", 1)
	must.Do(t, s.Begin(record.Run{Job: job(8), Start: &record.End{At: time.Minute}}))
	time.Sleep(20 * time.Millisecond)
	expect("another job's", 2)
	other, _, err := s.Find(job(8))
	must.Do(t, err)
	damageFile(t, s, 8, other.Key, []byte("{"))
	must.Do(t, unix.Utimes(s.dir, nil))
	expect("one that is damaged and cannot be set aside", 2)
}

// What one program adds to a report, another that began before it does not undo.
func TestChangeReport(t *testing.T) {
	s, j := fresh(t), slurm.Job(job(7))
	must.Do(t, s.Users.ChangeReport(j, func(r *Report) { r.Running = "x" }))
	_, err := s.Users.Report(j.UID, ownerOf(j))
	must.Not(t, err == nil, "a report of which there was none")
	must.Do(t, s.Users.PutReport(j, Report{Text: "start"}))
	done := make(chan error)
	must.Do(t, s.Users.ChangeReport(j, func(r *Report) {
		go func() { done <- s.Users.ChangeReport(j, func(r *Report) { r.End = "end" }) }()
		time.Sleep(20 * time.Millisecond)
		r.Running = "running"
	}))
	must.Do(t, <-done)
	must.Be(t, "the report", must.Have(s.Users.Report(j.UID, ownerOf(j)))(t), (Report{Text: "start", Running: "running", End: "end"}))
}

// A recorder whose lock file was removed is not the only one any more, whether or not another has begun.
func TestOnlyRecorder(t *testing.T) {
	s := fresh(t)
	is, release, err := s.Turns.Recorder()
	must.Do(t, err)
	defer release()
	must.Not(t, !is() || !s.Turns.HasRecorder(), "it is not the recorder")
	must.Do(t, os.Remove(filepath.Join(s.dir, recorderLock)))
	must.Not(t, is(), "its lock was removed")
	next, releaseNext, err := s.Turns.Recorder()
	must.Do(t, err)
	defer releaseNext()
	must.Not(t, is() || !next(), "got %v and %v", is(), next())
}
