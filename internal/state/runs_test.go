package state

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/ledger"
	"bookend/internal/safefile"
	"bookend/internal/slurm"
	"bookend/test/must"
)

func TestRoundTrip(t *testing.T) {
	s := open(t, folder(t))
	want := full(7)
	must.Do(t, s.Begin(want))
	got, which, err := s.Find(want.Job)
	if err != nil || which != ledger.OpenRun {
		t.Fatalf("%s, %v", which, err)
	}
	want.Version, want.Key, want.Start = Version, string(sluidA), ordered(want.Start)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	end := *full(7).Start
	must.Do(t, s.Close(got, end))
	runs, damage := s.Runs()
	want.Ends = []ledger.End{*ordered(&end)}
	if len(damage) != 0 || !reflect.DeepEqual(runs, []ledger.Run{want}) {
		t.Errorf("got  %+v, %v\nwant %+v", runs, damage, want)
	}
}

func TestEncodingIsOne(t *testing.T) {
	first := must.Have(encode(full(7)))(t)
	for range 50 { // the order of a map must not show
		r := full(7)
		r.Start.Processes[0], r.Start.Processes[1] = r.Start.Processes[1], r.Start.Processes[0]
		r.Start.Wall = r.Start.Wall.In(time.FixedZone("x", 3600))
		if again, err := encode(r); err != nil || !bytes.Equal(first, again) {
			t.Fatalf("%v\n%s\n%s", err, first, again)
		}
	}
}

// A run is found by what its record says; which of several it is, package ledger decides.
func TestFind(t *testing.T) {
	s := open(t, folder(t))
	second := job(1)
	second.SLUID = sluidA
	for i, step := range []struct {
		do    func()
		ask   slurm.Job
		which ledger.Which
		began int
	}{
		{func() {}, job(1), ledger.NoRun, 0},
		{func() { begin(t, s, job(1), 1) }, job(1), ledger.OpenRun, 1},
		{func() { begin(t, s, job(2), 2) }, job(1), ledger.OpenRun, 1},
		{func() { begin(t, s, second, 3) }, job(1), ledger.OpenRun, 3},
		{func() {}, second, ledger.OpenRun, 3},
		{func() { must.Do(t, s.Close(ledger.Run{Job: second, Key: string(sluidA)}, *at(4))) }, second, ledger.ClosedRun,
			3},
	} {
		step.do()
		got, which, err := s.Find(step.ask)
		if err != nil || which != step.which || which != ledger.NoRun && got.First().At != at(step.began).At {
			t.Errorf("%d: got %s of %v, %v, want %s of %d s", i, which, got.First().At, err, step.which, step.began)
		}
	}
	for _, name := range []string{"x", "..", "t", "T5"} { // a key that does not fit its file's name is another's record
		data := must.Have(encode(ledger.Run{Key: name, Job: job(7)}))(t)
		damageFile(t, s, 7, name, data)
	}
	if runs, damage := s.Runs(); len(runs) != 3 || len(damage) != 4 {
		t.Errorf("got %d runs, %v, want 3 and 4", len(runs), damage)
	}
}

func TestBeginKeepsTheFirst(t *testing.T) {
	s := open(t, folder(t))
	j := job(1)
	j.SLUID = sluidA
	begin(t, s, j, 10)
	if err := s.Begin(ledger.Run{Job: j, Start: at(20)}); !errors.Is(err, ErrExists) {
		t.Errorf("a second prolog: %v", err)
	}
	if r, _, _ := s.Find(j); r.Start.At != at(10).At {
		t.Errorf("started at %v", r.Start.At)
	}
	damageFile(t, s, j.ID, string(sluidA), []byte("garbage"))
	begin(t, s, j, 30)
	if r, which, _ := s.Find(j); which != ledger.OpenRun || r.Start.At != at(30).At {
		t.Errorf("in the place of a damaged record: %s, %+v", which, r)
	}
}

func TestCloseWithoutARecord(t *testing.T) {
	s := open(t, folder(t))
	r, which, err := s.Find(job(1))
	if which != ledger.NoRun || err != nil {
		t.Fatal(which, err)
	}
	r.Job = job(1)
	must.Do(t, s.Close(r, *at(10)))
	got, which, err := s.Find(job(1))
	if which != ledger.ClosedRun || err != nil || got.Start != nil || len(got.Ends) != 1 {
		t.Errorf("%s, %v, %+v", which, err, got)
	}
}

func TestManyEpilogs(t *testing.T) {
	s := open(t, folder(t))
	begin(t, s, job(1), 10)
	for i := range maxEnds + 2 {
		r, _, err := s.Find(job(1))
		must.Do(t, err)
		r.Start, r.Ends = nil, nil // what was seen is the record's, not the caller's
		must.Do(t, s.Close(r, *at(20 + i)))
	}
	r, _, _ := s.Find(job(1))
	if r.Start == nil || len(r.Ends) != maxEnds || r.Ends[0].At != at(20).At ||
		r.Ends[maxEnds-1].At != at(20+maxEnds+1).At {
		t.Errorf("%+v", r)
	}
}

func TestLargeRunIsShortened(t *testing.T) {
	s := open(t, folder(t))
	r := full(7)
	for pid := range 20_000 {
		r.Start.Processes = append(r.Start.Processes, finding.Process{PID: pid + 10, Name: "a process of some name"})
		r.Start.Snapshot.Readings[0].Processes = append(r.Start.Snapshot.Readings[0].Processes,
			gpu.Process{PID: pid + 10})
	}
	must.Do(t, s.Begin(r))
	got, which, err := s.Find(r.Job)
	if which != ledger.OpenRun || err != nil {
		t.Fatal(which, err)
	}
	reading := got.Start.Snapshot.Readings[0]
	if n := len(got.Start.Processes); n == 0 || got.Start.Rest["processes"] != 20_002-n ||
		reading.ProcessesUnknown == "" {
		t.Errorf("%d processes, left out %v, unknown %q", n, got.Start.Rest, reading.ProcessesUnknown)
	}
	if len(r.Start.Snapshot.Readings[0].Processes) < 20_000 {
		t.Error("the caller's run was changed")
	}
	r.Key, r.Start.Report = "t1", string(bytes.Repeat([]byte("x"), maxRecord))
	if err := s.Begin(r); err != nil {
		t.Errorf("with a report of %d bytes: %v", maxRecord, err)
	}
}

// damageFile overwrites a record behind the store's back.
func damageFile(t *testing.T, s *Store, id slurm.JobID, key string, data []byte) {
	t.Helper()
	path := filepath.Join(s.dir, folderName(id))
	must.Do(t, os.MkdirAll(path, 0o700))
	must.Do(t, os.WriteFile(filepath.Join(path, key+suffix), data, 0o600))
}

func TestCutAnywhere(t *testing.T) {
	s := open(t, folder(t))
	r := full(7)
	r.Key = string(sluidA)
	data := must.Have(encode(r))(t)
	for n := range data {
		damageFile(t, s, 7, r.Key, data[:n])
		if _, which, err := s.Find(r.Job); which != ledger.NoRun || !errors.As(err, new(Damage)) {
			t.Errorf("cut at %d of %d: %s, %v", n, len(data), which, err)
		}
	}
	if aside, err := os.ReadDir(filepath.Join(s.dir, damagedName)); err != nil || len(aside) != maxDamaged {
		t.Errorf("%d files set aside, %v; want %d", len(aside), err, maxDamaged)
	}
	damageFile(t, s, 7, r.Key, data)
	if runs, damage := s.Runs(); len(runs) != 1 || len(damage) != 0 {
		t.Errorf("whole: %d runs, %v", len(runs), damage)
	}
}

func TestGarbage(t *testing.T) {
	const key = "t5"
	valid := func(change func(*ledger.Run)) []byte {
		r := ledger.Run{Key: key, Job: job(7)}
		change(&r)
		return must.Have(encode(r))(t)
	}
	write := func(data []byte) func(string) error {
		return func(path string) error { return os.WriteFile(path, data, 0o600) }
	}
	good := valid(func(*ledger.Run) {})
	for name, plant := range map[string]func(string) error{
		"zeros":         write(make([]byte, 4096)),
		"noise":         write(bytes.Repeat([]byte{0xff, '{', '"'}, 100)),
		"null":          write([]byte("null")),
		"array":         write([]byte("[]")),
		"two records":   write(append(append([]byte{}, good...), good...)),
		"other version": write(bytes.Replace(good, []byte(`"version":1`), []byte(`"version":2`), 1)),
		"no version":    write(bytes.Replace(good, []byte(`"version":1,`), nil, 1)),
		"other job":     write(valid(func(r *ledger.Run) { r.Job.ID = 8 })),
		"other node":    write(valid(func(r *ledger.Run) { r.Job.Node = "n2" })),
		"other key":     write(valid(func(r *ledger.Run) { r.Key = "t6" })),
		"bad sluid":     write(valid(func(r *ledger.Run) { r.Job.SLUID = "../x" })),
		"too large":     write(append(bytes.Clone(good), bytes.Repeat([]byte(" "), maxRecord)...)),
		"named pipe":    func(p string) error { return unix.Mkfifo(p, 0o600) },
		"link": func(p string) error {
			return errors.Join(os.WriteFile(p+".real", good, 0o600), os.Symlink(p+".real", p))
		},
	} {
		s := open(t, folder(t))
		begin(t, s, job(1), 10)
		if err := errors.Join(os.Mkdir(filepath.Join(s.dir, "7"), 0o700), plant(filepath.Join(s.dir, "7",
			key+suffix))); err != nil {
			t.Fatal(name, err)
		}
		runs, damage := s.Runs()
		if len(runs) != 1 || runs[0].Job.ID != 1 || len(damage) != 1 || damage[0].Why == "" {
			t.Errorf("%s: %d runs, damage %v", name, len(runs), damage)
		}
		if runs, damage = s.Runs(); len(runs) != 1 || len(damage) != 0 {
			t.Errorf("%s: reported again: %v", name, damage)
		}
		if aside, err := os.ReadDir(filepath.Join(s.dir, damagedName)); err != nil || len(aside) != 1 {
			t.Errorf("%s: %d set aside, %v", name, len(aside), err)
		}
	}
	s := open(t, folder(t))
	damageFile(t, s, 7, key, good)
	if runs, damage := s.Runs(); len(runs) != 1 || len(damage) != 0 {
		t.Errorf("the record all these were made from: %v", damage)
	}
}

func TestLockedIsUnknown(t *testing.T) {
	run := folder(t)
	s := open(t, run)
	begin(t, s, job(1), 10)
	damageFile(t, s, 1, "t5", []byte("garbage"))
	release := must.Have(safefile.Lock(filepath.Join(s.dir, lockOf(1)), 0, true))(t)
	for name, err := range map[string]error{"Begin": s.Begin(ledger.Run{Job: job(1), Start: at(20)}),
		"Close": s.Close(ledger.Run{Job: job(1)}, *at(1))} {
		if !errors.Is(err, ErrLocked) {
			t.Errorf("%s: %v", name, err)
		}
	}
	r, which, err := s.Find(job(1))
	if which != ledger.OpenRun || r.Start.At != at(10).At || err == nil {
		t.Errorf("reading needs no lock: %s, %v", which, err)
	}
	if err := s.Begin(ledger.Run{Job: job(2), Start: at(20)}); err != nil {
		t.Errorf("another job's: %v", err)
	}
	release()
	if err := s.Begin(ledger.Run{Job: job(1), Start: at(20)}); err != nil {
		t.Error(err)
	}
}

func TestTwoPrologsAtOnce(t *testing.T) {
	run := folder(t)
	j := job(1)
	j.SLUID = sluidA
	errs := make([]error, 8)
	var wg sync.WaitGroup
	for i := range errs {
		s := open(t, run)
		wg.Go(func() { errs[i] = s.Begin(ledger.Run{Job: j, Start: at(i + 1)}) })
	}
	wg.Wait()
	won := -1
	for i, err := range errs {
		switch {
		case err == nil && won < 0:
			won = i
		case !errors.Is(err, ErrExists) && !errors.Is(err, ErrLocked):
			t.Errorf("prolog %d: %v, after %d", i, err, won)
		}
	}
	if r, which, err := open(t, run).Find(j); won < 0 || which != ledger.OpenRun || err != nil ||
		r.Start.At != at(won+1).At {
		t.Errorf("prolog %d won; found %s, %v, %+v", won, which, err, r)
	}
}
