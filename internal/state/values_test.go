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
	var dead []int
	alive := func(pid int, _ uint64) bool { return !slices.Contains(dead, pid) }
	of := func(uid uint32) *uint32 { return &uid }
	set := func(user *uint32, pids ...int) {
		for _, pid := range pids {
			must.Do(t, StuckChildren.Add(s, Stuck{PID: pid, StartTicks: 9, Op: "append", User: user}, alive))
		}
	}
	check := func(driver, five, zero int) {
		t.Helper()
		for user, want := range map[*uint32]int{nil: driver, of(5): five, of(0): zero, of(6): 0} {
			got, err := s.Stuck(user, alive)
			must.Not(t, err != nil || (got == nil) != (want == 0) || got != nil && got.PID != want,
				"got %+v, %v, want PID %d", got, err, want)
		}
	}
	check(0, 0, 0)
	set(nil, 7, 8)
	set(of(5), 50, 51)
	set(of(0), 60)
	check(7, 50, 60)
	dead = []int{7, 50}
	check(8, 51, 60)
	set(nil, 9)
	must.Be(t, "those that live", len(must.Have(StuckChildren.file.read(s))(t)), 4)
	dead = []int{7, 50, 8, 9}
	check(0, 51, 60)
}

// A stuck reader is never forgotten for another, and the record of as many as there may be fits.
func TestReadersAreBounded(t *testing.T) {
	s := fresh(t)
	dead := map[int]bool{}
	alive := func(pid int, _ uint64) bool { return !dead[pid] }
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

// A crowded GPU keeps a check's record small, and says that there were more. The caller's own is not cut.
func TestChecksAreBounded(t *testing.T) {
	s := fresh(t)
	crowd := gpu.Reading{Processes: slices.Repeat([]gpu.Process{{PID: 7, Memory: gpu.Bytes(1 << 30)}}, 2000)}
	c := record.Check{Snapshot: gpu.Snapshot{Readings: slices.Repeat([]gpu.Reading{crowd}, 16)}}
	must.Do(t, LastCheck.Save(s, &c))
	r := must.Have(LastCheck.Load(s))(t).Snapshot.Readings[3]
	must.Not(t, len(r.Processes) != 256 || r.ProcessesUnknown == "" || len(c.Snapshot.Readings[3].Processes) != 2000,
		"got %d processes, want 256", len(r.Processes))
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

// Entries are replaced GPU by GPU, and forgotten; those of another epoch hold for nothing in this one.
func TestPerGPU(t *testing.T) {
	s := fresh(t)
	must.Do(t, errors.Join(Baselines.Drop(s, "GPU-1"), Baselines.Put(s)))
	accepted := carries("GPU-2", 60<<20)
	accepted.Accepted = true
	must.Do(t, Baselines.Put(s, carries("GPU-1", 1<<20), accepted))
	must.Do(t, Baselines.Put(s, carries("GPU-0", 0), carries("GPU-1", 3<<20)))
	want := map[gpu.ID]record.Baseline{"GPU-0": carries("GPU-0", 0), "GPU-1": carries("GPU-1", 3<<20), "GPU-2": accepted}
	must.Be(t, "baselines", must.Have(Baselines.Load(s))(t), want)
	must.Do(t, Baselines.Drop(s, "GPU-0", "GPU-9"))
	delete(want, "GPU-0")
	must.Be(t, "baselines left", must.Have(Baselines.Load(s))(t), want)
	bad := tested("GPU-1", 2)
	bad.Probe.Result, bad.Probe.Error = gpu.ProbeBroken, &gpu.CallError{Call: "cuInit", Code: 999}
	must.Do(t, errors.Join(Probes.Put(s, tested("GPU-1", 1), tested("GPU-0", 1)), Probes.Put(s, bad)))
	tests := map[gpu.ID]record.TestRecord{"GPU-0": tested("GPU-0", 1), "GPU-1": bad}
	must.Be(t, "tests", must.Have(Probes.Load(s))(t), tests)
	half, other := tested("GPU-2", 1), tested("GPU-1", 1)
	half.Epoch.Driver, other.Epoch.Module = "", "m@2"
	for name, tests := range map[string][]record.TestRecord{
		"half an epoch": {half}, "two epochs": {other, tested("GPU-0", 1)}, "no GPU": {tested("", 1)},
	} {
		must.Fail(t, name, Probes.Put(s, tests...), ErrEpoch)
	}
	must.Be(t, "tests", must.Have(Probes.Load(s))(t), tests)
	must.Do(t, Probes.Put(s, other))
	must.Be(t, "tests of another epoch", must.Have(Probes.Load(s))(t), map[gpu.ID]record.TestRecord{"GPU-1": other})
	next := carries("GPU-1", 2<<20)
	next.Epoch.Module = "m@2"
	must.Do(t, Baselines.Put(s, next))
	must.Be(t, "baselines", must.Have(Baselines.Load(s))(t), map[gpu.ID]record.Baseline{"GPU-1": next})
}

// MIG instances get new ids each time they are made, and a backend may say much of each: the oldest go, the file stays
// readable.
func TestPerGPUIsBounded(t *testing.T) {
	s := fresh(t)
	var baselines []record.Baseline
	var tests []record.TestRecord
	for i := range maxGPUs + 20 {
		id := gpu.ID(fmt.Sprintf("MIG-%03d", i))
		b, r := carries(id, 1<<20), tested(id, time.Duration(i))
		b.Residents = slices.Repeat(b.Residents, 8)
		long := strings.Repeat("x", 512)
		r.Probe.Why, r.Probe.Error = long, &gpu.CallError{Call: "cuInit", Meaning: long, Remedy: long}
		baselines, tests = append(baselines, b), append(tests, r)
	}
	must.Do(t, errors.Join(Baselines.Put(s, baselines[:100]...), Baselines.Put(s, baselines[100:]...), Probes.Put(s, tests...)))
	must.Be(t, "tests", len(must.Have(Probes.Load(s))(t)), maxGPUs)
	kept := must.Have(Baselines.Load(s))(t)
	_, oldest := kept["MIG-019"]
	_, newest := kept["MIG-147"]
	must.Not(t, len(kept) != maxGPUs || oldest || !newest, "%d baselines, the oldest %v, the newest %v", len(kept), oldest, newest)
}

// A process that looks for MPS in the directory finds nothing, and only root could put a server there.
func TestNoMPS(t *testing.T) {
	s, other := fresh(t), fresh(t)
	must.Be(t, "its path", must.Have(s.Turns.NoMPS())(t), filepath.Join(s.dir, "no-mps"))
	must.Do(t, os.Symlink("/", filepath.Join(other.dir, "no-mps")))
	must.Fail(t, "one that leads elsewhere", must.Err(other.Turns.NoMPS()), safefile.ErrNotOurs)
}

// Runs are noticed when they begin and end, the second one of a requeued job too, whose directory is there.
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
	found, err := s.Find(run.Job)
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
	other, err := s.Find(job(8))
	must.Do(t, err)
	damageFile(t, s, 8, other.Key, []byte("{"))
	must.Do(t, unix.Utimes(s.dir, nil))
	expect("one that is damaged and cannot be set aside", 2)
}

// What one program adds to a report, another that began before it does not undo.
func TestChangeReport(t *testing.T) {
	s, j := fresh(t), slurm.Job(job(7))
	must.Do(t, s.Users.ChangeReport(j, func(r *Report) { r.Running = "x" }))
	_, err := s.Users.Report(j.UID, j.Owner())
	must.Not(t, err == nil, "a report of which there was none")
	must.Do(t, s.Users.PutReport(j, Report{Text: "start"}))
	done := make(chan error)
	must.Do(t, s.Users.ChangeReport(j, func(r *Report) {
		go func() { done <- s.Users.ChangeReport(j, func(r *Report) { r.End = "end" }) }()
		time.Sleep(20 * time.Millisecond)
		r.Running = "running"
	}))
	must.Do(t, <-done)
	must.Be(t, "the report", must.Have(s.Users.Report(j.UID, j.Owner()))(t), (Report{Text: "start", Running: "running", End: "end"}))
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

// A GPU that an earlier inventory of this boot has and this one has not is gone, until it is back or the node boots.
func TestInventorySince(t *testing.T) {
	of := func(boot string, ids ...gpu.ID) Inventory {
		i := Inventory{From: "/proc", Epoch: gpu.Epoch{Boot: boot}}
		for _, id := range ids {
			i.Cards = append(i.Cards, gpu.Physical{Device: gpu.Device{ID: id, BusID: gpu.BusID("bus of " + id)}})
		}
		return i
	}
	without := of("a", "GPU-1").Since(of("a", "GPU-0", "GPU-1"))
	nameless := of("a", "GPU-1", "")
	nameless.Cards[1].Device.BusID = "bus of GPU-0"
	for name, tt := range map[string]struct {
		now, then Inventory
		gone      int
	}{
		"none is gone":         {of("a", "GPU-0"), of("a", "GPU-0"), 0},
		"one is":               {of("a", "GPU-1"), of("a", "GPU-0", "GPU-1"), 1},
		"one still is":         {of("a", "GPU-1"), without, 1},
		"it is back":           {of("a", "GPU-0", "GPU-1"), without, 0},
		"its id is not cached": {nameless, of("a", "GPU-0", "GPU-1"), 0},
		"after a boot":         {of("b", "GPU-1"), without, 0},
		"of no known boot":     {of("", "GPU-1"), of("", "GPU-0"), 0},
		"nothing is known":     {of("a", "GPU-1"), Inventory{}, 0},
	} {
		if got := tt.now.Since(tt.then).Gone; len(got) != tt.gone || tt.gone > 0 && got[0].Device.ID != "GPU-0" {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// Hooks know a job that holds a GPU by root's record. Nothing excuses a user's job that has the number of one, and jobs of
// a command that died are forgotten.
func TestQuarantine(t *testing.T) {
	s := fresh(t)
	at := time.Date(2026, 11, 30, 4, 0, 0, 0, time.UTC)
	must.Do(t, s.Quarantine(Quarantine{GPU: -1, Since: at}, []slurm.JobID{4, 5, 6}))
	must.Do(t, s.Quarantine(Quarantine{GPU: 3, Since: at}, []slurm.JobID{5}))
	must.Do(t, s.Quarantine(Quarantine{GPU: -1, Since: at.Add(2 * time.Hour)}, []slurm.JobID{7}))
	kept := must.Have(Quarantines.Load(s))(t)
	must.Not(t, len(kept) != 2 || kept[0].Job != 5 || kept[0].GPU != 3 || kept[1].Job != 7, "%+v", kept)
	for job, want := range map[slurm.JobID][2]bool{5: {true, false}, 7: {true, false}, 4: {}} {
		for i, uid := range []uint32{0, 1000} {
			is := slices.ContainsFunc(kept, func(q Quarantine) bool { return q.Holds(slurm.Job{ID: job, UID: uid}) })
			must.Not(t, is != want[i], "job %d of user %d: %v", job, uid, is)
		}
	}
}
