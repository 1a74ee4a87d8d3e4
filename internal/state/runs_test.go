package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/catalog"
	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/safefile"
	"bookend/internal/slurm"
	"bookend/test/must"
)

func TestRoundTrip(t *testing.T) {
	s := fresh(t)
	want := full(7)
	must.Do(t, s.Begin(want))
	got := must.Have(finds(s, want.Job, "open"))(t)
	want.Version, want.Key, want.Start = Version, string(sluidA), recorded(want.Start)
	must.Be(t, "the record", got, want)
	end := *full(7).Start
	must.Do(t, s.Close(got, end))
	runs, damage := s.Runs()
	want.Ends = []record.End{*recorded(&end)}
	must.Not(t, len(damage) != 0 || !reflect.DeepEqual(runs, []record.Run{want}),
		"got  %+v, %v\nwant %+v", runs, damage, want)
}

func recorded(e *record.End) *record.End {
	as := kept(*e)
	return &as
}

// encode is a run as a record of it.
func encode(r record.Run) ([]byte, error) {
	r.Version, r.Ends = Version, slices.Clone(r.Ends)
	if r.Start != nil {
		r.Start = recorded(r.Start)
	}
	for i := range r.Ends {
		r.Ends[i] = kept(r.Ends[i])
	}
	return File[record.Run]{}.encode(r)
}

func TestEncodingIsOne(t *testing.T) {
	first := must.Have(encode(full(7)))(t)
	for n := range first {
		must.Fail(t, fmt.Sprint("cut at ", n), must.Err(decode[record.Run](first[:n], nil)), errRecord)
	}
	for range 50 { // the order of a map must not show
		r := full(7)
		r.Start.Processes[0], r.Start.Processes[1] = r.Start.Processes[1], r.Start.Processes[0]
		r.Start.Wall = r.Start.Wall.In(time.FixedZone("x", 3600))
		must.Be(t, "encoded", string(must.Have(encode(r))(t)), string(first))
	}
}

// A run is found by what its record says; which of several it is, package ledger decides. A key that does not fit its
// file's name is another's record.
func TestFind(t *testing.T) {
	s := fresh(t)
	must.Be(t, "none", must.Err(finds(s, job(1), "none")), nil)
	begin(t, s, job(1), 1)
	second := job(1)
	second.SLUID = sluidA
	begin(t, s, second, 3)
	must.Be(t, "the latest", must.Have(finds(s, job(1), "open"))(t).First().At, at(3).At)
	must.Be(t, "another job", must.Err(finds(s, job(2), "none")), nil)
	for _, name := range []string{"x", "..", "t", "T5"} {
		damageFile(t, s, 7, name, must.Have(encode(record.Run{Key: name, Job: job(7)}))(t))
	}
	must.Be(t, "runs and damage", sizes(s.Runs()), [2]int{2, 4})
}

// finds is the run of a job that an epilog takes, which must be so.
func finds(s *Store, j slurm.Job, want string) (record.Run, error) {
	r, err := s.Find(j)
	if which := kindOf(r); err == nil && which != want {
		err = fmt.Errorf("%s, not %s: %+v", which, want, r)
	}
	return r, err
}

// kindOf says whether a run is on record, and whether an epilog has closed it.
func kindOf(r record.Run) string {
	switch {
	case r.Key == "":
		return "none"
	case r.Epilog() != nil:
		return "closed"
	}
	return "open"
}

func TestBeginKeepsTheFirst(t *testing.T) {
	s := fresh(t)
	j := job(1)
	j.SLUID = sluidA
	begin(t, s, j, 10)
	must.Fail(t, "a second prolog", s.Begin(record.Run{Job: j, Start: at(20)}), ErrExists)
	must.Be(t, "its start", must.Have(finds(s, j, "open"))(t).Start.At, at(10).At)
	damageFile(t, s, j.ID, string(sluidA), []byte("garbage"))
	begin(t, s, j, 30)
	must.Be(t, "in the place of a damaged one", must.Have(finds(s, j, "open"))(t).Start.At, at(30).At)
}

// What was seen of a run is its record's, not the caller's; of too many epilogs the first and the last count.
func TestManyEpilogs(t *testing.T) {
	s := fresh(t)
	must.Do(t, s.Close(record.Run{Job: job(2)}, *at(10)))
	r := must.Have(finds(s, job(2), "closed"))(t)
	must.Be(t, "one without a start", r.Start == nil && len(r.Ends) == 1, true)
	begin(t, s, job(1), 10)
	for i := range maxEnds + 2 {
		r, err := s.Find(job(1))
		must.Do(t, err)
		r.Start, r.Ends = nil, nil
		must.Do(t, s.Close(r, *at(20 + i)))
	}
	r = must.Have(finds(s, job(1), "closed"))(t)
	must.Be(t, "the list that the end has compared", r.Start.SharedMemory, nil)
	first, last := r.Ends[0].At, r.Ends[len(r.Ends)-1].At
	must.Not(t, r.Start == nil || len(r.Ends) != maxEnds || first != at(20).At || last != at(20+maxEnds+1).At, "%+v", r)
}

// Whatever the hooks of a run saw, its record stays below what is read: evidence is left out, never a verdict.
func TestHugeRunKeepsItsVerdicts(t *testing.T) {
	s := fresh(t)
	text := string(bytes.Repeat([]byte{1}, 1<<10)) // which JSON makes six times as long
	huge := func(n int) record.End {
		e := *at(n)
		e.Verdict = record.Verdict{Action: "drain", Code: catalog.Orphan, Exit: 10}
		for range 100 {
			e.Findings = append(e.Findings, record.Finding{Code: catalog.Orphan, GPU: "GPU-1", Observed: text, Candidates: make([]record.Holder, 100)})
			e.Verdict.Judged = append(e.Verdict.Judged, record.Judged{Action: "drain", Why: text})
		}
		return e
	}
	start := huge(1)
	must.Do(t, s.Begin(record.Run{Job: job(1), Start: &start}))
	for i := range maxEnds + 1 {
		r := must.Have(finds(s, job(1), map[bool]string{true: "open", false: "closed"}[i == 0]))(t)
		must.Do(t, s.Close(r, huge(2+i)))
	}
	r := must.Have(finds(s, job(1), "closed"))(t)
	must.Be(t, "ends", len(r.Ends), maxEnds)
	for _, e := range append(r.Ends, *r.Start) {
		must.Not(t, e.Verdict.Exit != 10 || !e.Verdict.Drains(0) || e.Findings[0].Code != catalog.Orphan || e.Rest["evidence"] != 1, "%+v", e)
	}
}

// A record of an earlier version, whose lists may be longer, is read and closed as it is.
func TestLongerListsOfEarlierVersions(t *testing.T) {
	s := fresh(t)
	r := record.Run{Version: Version, Key: "t5", Job: job(7), Start: at(1)}
	r.Start.Snapshot.Readings = []gpu.Reading{{Processes: make([]gpu.Process, 1024)}}
	r.Start.Rest = map[string]int{"kills": 3}
	damageFile(t, s, 7, r.Key, must.Have(json.Marshal(r))(t))
	found := must.Have(finds(s, r.Job, "open"))(t)
	must.Be(t, "as it was found", found, r)
	must.Do(t, s.Close(found, *at(2)))
	must.Be(t, "its start", must.Have(finds(s, r.Job, "closed"))(t).Start, r.Start)
}

// damageFile overwrites a record behind the store's back.
func damageFile(t *testing.T, s *Store, id slurm.JobID, key string, data []byte) {
	t.Helper()
	path := filepath.Join(s.dir, dirName(id))
	must.Do(t, os.MkdirAll(path, 0o700))
	must.Do(t, os.WriteFile(filepath.Join(path, key+suffix), data, 0o600))
}

func TestGarbage(t *testing.T) {
	const key = "t5"
	valid := func(change func(*record.Run)) []byte {
		r := record.Run{Key: key, Job: job(7)}
		change(&r)
		return must.Have(encode(r))(t)
	}
	write := func(data []byte) func(string) error {
		return func(path string) error { return os.WriteFile(path, data, 0o600) }
	}
	good := valid(func(*record.Run) {})
	for name, plant := range map[string]func(string) error{
		"empty":         write(nil),
		"cut":           write(good[:len(good)-1]),
		"zeros":         write(make([]byte, 4096)),
		"noise":         write(bytes.Repeat([]byte{0xff, '{', '"'}, 100)),
		"null":          write([]byte("null")),
		"array":         write([]byte("[]")),
		"two records":   write(append(append([]byte{}, good...), good...)),
		"other version": write(bytes.Replace(good, []byte(`"version":1`), []byte(`"version":2`), 1)),
		"no version":    write(bytes.Replace(good, []byte(`"version":1,`), nil, 1)),
		"other job":     write(valid(func(r *record.Run) { r.Job.ID = 8 })),
		"other node":    write(valid(func(r *record.Run) { r.Job.Node = "n2" })),
		"other key":     write(valid(func(r *record.Run) { r.Key = "t6" })),
		"bad sluid":     write(valid(func(r *record.Run) { r.Job.SLUID = "../x" })),
		"too large":     write(append(bytes.Clone(good), bytes.Repeat([]byte(" "), maxRecord)...)),
		"named pipe":    func(p string) error { return unix.Mkfifo(p, 0o600) },
		"link": func(p string) error {
			return errors.Join(os.WriteFile(p+".real", good, 0o600), os.Symlink(p+".real", p))
		},
	} {
		s := fresh(t)
		begin(t, s, job(1), 10)
		must.Do(t, errors.Join(os.Mkdir(filepath.Join(s.dir, "7"), 0o700), plant(filepath.Join(s.dir, "7", key+suffix))))
		runs, damage := s.Runs()
		must.Not(t, len(runs) != 1 || runs[0].Job.ID != 1 || len(damage) != 1 || damage[0].Why == "",
			"%s: %d runs, damage %v", name, len(runs), damage)
		must.Be(t, name, sizes(s.Runs()), [2]int{1, 0})
		aside, err := os.ReadDir(filepath.Join(s.dir, damagedName))
		must.Not(t, err != nil || len(aside) != 1, "%s: %d set aside, %v", name, len(aside), err)
	}
	s := fresh(t)
	damageFile(t, s, 7, key, good)
	must.Be(t, "the record all these were made from", sizes(s.Runs()), [2]int{1, 0})
}

// A record of version 1.0.0 has the driver's accounting of processes, which nothing reads any more.
func TestEarlierRecord(t *testing.T) {
	const processes = `[{"pid":9,"peak":{"bytes":5},"began":"2026-11-21T08:10:00Z","ran_ns":7}]`
	s := fresh(t)
	damageFile(t, s, 7, "t5", []byte(`{"version":1,"key":"t5","job":{"id":7,"node":"n1"},"ends":[{"at_ns":5,`+
		`"health":[{"device":"GPU-1","facts":[{"code":"persistence","value":"on","source":"nvml"}],`+
		`"accounting":{"mode":"on","processes":`+processes+`}}],`+
		`"diagnosis":{"reason":"failure","headline":"It failed","peaks":`+processes+`}}]}`))
	runs, damage := s.Runs()
	must.Not(t, len(runs) != 1 || len(damage) != 0, "%d runs, damage %v", len(runs), damage)
	end := runs[0].Ends[0]
	must.Be(t, "the condition", end.Health[0].Facts[0].Value, "on")
	must.Be(t, "the diagnosis", end.Diagnosis.Headline, "It failed")
}

func TestLockedIsUnknown(t *testing.T) {
	s := fresh(t)
	begin(t, s, job(1), 10)
	damageFile(t, s, 1, "t5", []byte("garbage"))
	release := must.Have(safefile.Lock(filepath.Join(s.dir, lockOf(1)), 0, true))(t)
	for name, err := range map[string]error{"Begin": s.Begin(record.Run{Job: job(1), Start: at(20)}),
		"Close": s.Close(record.Run{Job: job(1)}, *at(1))} {
		must.Fail(t, name, err, ErrLocked)
	}
	r, err := s.Find(job(1))
	must.Not(t, kindOf(r) != "open" || r.Start.At != at(10).At || err == nil,
		"reading needs no lock: %+v, %v", r, err)
	must.Be(t, "another job's", s.Begin(record.Run{Job: job(2), Start: at(20)}), nil)
	release()
	must.Do(t, s.Begin(record.Run{Job: job(1), Start: at(20)}))
}
