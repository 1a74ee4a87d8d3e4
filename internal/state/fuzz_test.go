package state

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/slurm"
)

// A record is whole, of this node, job and run, and says the same when written anew; a part of one is none.
func FuzzRecord(f *testing.F) {
	r := full(7)
	r.Key = string(sluidA)
	data, err := encode(r)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add(data[:len(data)/2])
	f.Add([]byte(`{"version":1,"key":"t5","job":{"id":7,"node":"n1"},"ends":[{}],"start":null}`))
	f.Add([]byte(`{"version":1,"key":"` + string(sluidA) + `","job":{"id":7,"node":"` + node + `"},"ends":[{"snapshot":{"readings":[{"processes":[{"pid":1}]}]}}]}`))
	f.Add([]byte(`{"version":1,"key":"` + string(sluidA) + `","job":{"id":7,"node":"` + node + `","sluid":"../x"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := decode(data, node, 7, string(sluidA))
		if err != nil {
			if !errors.Is(err, errRecord) {
				t.Errorf("%v is no errRecord", err)
			}
			return
		}
		if r.Job.ID != 7 || r.Job.Node != node || r.Key != string(sluidA) || r.Job.SLUID != "" && !slurm.ValidSLUID(string(r.Job.SLUID)) {
			t.Errorf("job %d of %q, run %q, SLUID %q", r.Job.ID, r.Job.Node, r.Key, r.Job.SLUID)
		}
		if o, err := outlined(data); err != nil || said(o) != said(r) {
			t.Errorf("its outline, %v: %s, want %s", err, said(o), said(r))
		}
		if marked, err := mark(data); err == nil {
			if m, err := parse(marked); err != nil || !m.Archived || len(m.Ends) != len(r.Ends) || len(marked) >= maxRecord {
				t.Errorf("marked, %v: %+v", err, m)
			}
		}
		for _, other := range []struct {
			node, key string
			id        slurm.JobID
		}{{"n2", string(sluidA), 7}, {node, string(sluidA), 8}, {node, "t5", 7}} {
			if r, err := decode(data, other.node, other.id, other.key); err == nil {
				t.Errorf("the record of %v is taken for that of another: %+v", other, r.Job)
			}
		}
		if whole := bytes.TrimSpace(data); len(whole) > 0 {
			if r, err := decode(whole[:len(whole)-1], node, 7, string(sluidA)); err == nil {
				t.Errorf("a record that was cut is taken for one: %+v", r.Job)
			}
		}
		once, err := encode(r)
		if err != nil {
			return // a time that JSON cannot write
		}
		again, err := decode(once, node, 7, string(sluidA))
		if err != nil {
			t.Fatalf("what was written cannot be read: %v\n%s", err, once)
		}
		if twice, err := encode(again); err != nil || !bytes.Equal(once, twice) {
			t.Errorf("%v\n%s\n%s", err, once, twice)
		}
	})
}

// fuzzed is a store whose shared files a fuzz target fills, one store for all its inputs.
func fuzzed(f *testing.F) *Store {
	f.Helper()
	run := filepath.Join(f.TempDir(), "run")
	s, err := Open(run, node)
	if err != nil {
		f.Fatal(err)
	}
	return s
}

// put writes a file as a hook that was killed, or a disk, may have left it, and forgets what was set aside before.
func put(t *testing.T, s *Store, name string, data []byte) {
	t.Helper()
	if err := errors.Join(os.RemoveAll(filepath.Join(s.dir, damagedName)), os.WriteFile(filepath.Join(s.dir, name), data, 0o600)); err != nil {
		t.Fatal(err)
	}
}

// wasSetAside reports whether a file was set aside.
func wasSetAside(s *Store) bool {
	entries, err := os.ReadDir(filepath.Join(s.dir, damagedName))
	return err == nil && len(entries) == 1
}

// What cannot be a stuck child is a damage, once, and set aside; after that none is stuck. What can be one stays.
func FuzzStuck(f *testing.F) {
	for _, seed := range []string{`{"pid":7,"start_ticks":5,"since_ns":9,"op":"backend"}`, ``, `{`, `null`, `{"pid":-1}`, `{"pid":"7"}`, `[]`, `{"pid":7}{"pid":8}`, `{"op":"\u001b"}`} {
		f.Add([]byte(seed))
	}
	s := fuzzed(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		put(t, s, stuckFile, data)
		stuck, err := s.Stuck()
		var damage Damage
		switch {
		case err != nil && (!errors.As(err, &damage) || stuck != nil || !wasSetAside(s)):
			t.Fatalf("%q: %+v, %v, set aside %v", data, stuck, err, wasSetAside(s))
		case err == nil && (stuck == nil || wasSetAside(s)):
			t.Fatalf("%q: %+v, set aside %v", data, stuck, wasSetAside(s))
		}
		again, secondly := s.Stuck()
		if secondly != nil || (again == nil) != (err != nil) || again != nil && *again != *stuck {
			t.Fatalf("%q: %+v, then %+v, %v", data, stuck, again, secondly)
		}
		if s.ClearStuck() != nil || s.SetStuck(Stuck{PID: 3, StartTicks: 4}) != nil {
			t.Fatal("no new one can be recorded")
		}
		if now, err := s.Stuck(); err != nil || now == nil || now.PID != 3 {
			t.Fatalf("%+v, %v", now, err)
		}
	})
}

// What cannot be users' stuck children is a damage, once, and set aside; who is not alive is forgotten, and a new one is
// recorded in any case.
func FuzzStuckVisits(f *testing.F) {
	for _, seed := range []string{`{"5":{"pid":7,"start_ticks":5,"since_ns":9,"op":"tail"}}`, ``, `{`, `null`, `{"5":null}`, `{"-1":{}}`, `{"4294967296":{}}`, `[]`, `{"5":{"pid":"7"}}`} {
		f.Add([]byte(seed))
	}
	s := fuzzed(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		put(t, s, usersFile, data)
		alive := func(stuck Stuck) bool { return stuck.PID%2 == 1 }
		stuck, err := s.StuckVisit(5, alive)
		var damage Damage
		if err != nil && (!errors.As(err, &damage) || stuck != nil || !wasSetAside(s)) || stuck != nil && !alive(*stuck) {
			t.Fatalf("%q: %+v, %v, set aside %v", data, stuck, err, wasSetAside(s))
		}
		none := func(stuck Stuck) bool { return stuck.PID == 3 && stuck.StartTicks == 4 }
		if err := s.SetStuckVisit(5, Stuck{PID: 3, StartTicks: 4}, none); err != nil {
			t.Fatalf("%q: no new one can be recorded: %v", data, err)
		}
		if now, err := s.StuckVisit(5, none); err != nil || now == nil || now.PID != 3 {
			t.Fatalf("%+v, %v", now, err)
		}
	})
}

// A fault is said when its count cannot be read, and never silent for longer than an hour.
func FuzzFaults(f *testing.F) {
	for _, seed := range []string{`{"BKD-X":{"said_ns":5,"suppressed":3}}`, ``, `{`, `null`, `{"BKD-X":{"said_ns":-1}}`, `{"BKD-X":null}`, `{"BKD-X":{"said_ns":9223372036854775807}}`,
		`{"BKD-X":{"said_ns":-9223372036854775808}}`, `[1]`} {
		f.Add([]byte(seed), int64(7))
	}
	f.Add([]byte(`{"BKD-X":{"said_ns":5}}`), int64(time.Hour)+5)
	s := fuzzed(f)
	f.Fuzz(func(t *testing.T, data []byte, now int64) {
		if now < 1 {
			return
		}
		put(t, s, faultsFile, data)
		at := time.Duration(now)
		said, _ := s.Repeat("BKD-X", at)
		known := bytes.Contains(data, []byte("said_ns"))
		if !said && !known {
			t.Fatalf("%q: silent, and nothing was said before", data)
		}
		if again, suppressed := s.Repeat("BKD-X", at); again && said || said && suppressed != 0 {
			t.Fatalf("%q: said %v, then %v, suppressed %d", data, said, again, suppressed)
		}
		if later, _ := s.Repeat("BKD-X", at+sayAgain); at+sayAgain > at && !later {
			t.Fatalf("%q: silent for an hour", data)
		}
	})
}

// Baselines and tests of cards are entries that could be so, or a damage; after one they can be recorded anew.
func FuzzPerCard(f *testing.F) {
	for _, seed := range []string{
		`{"version":1,"cards":[{"gpu":"GPU-1","bytes":5,"epoch":{"boot":"b","driver":"580","module":"m@1"},"at_ns":3}]}`,
		`{"version":1,"cards":[{"gpu":"GPU-1","bytes":99999999999}]}`, `{"version":1,"cards":[{"gpu":"b"},{"gpu":"a"}]}`, `{"version":1,"cards":[{"gpu":"a"},{"gpu":"a"}]}`,
		`{"version":2}`, `{"version":1,"cards":[{}]}`, `{"version":1}`, ``, `{`, `null`,
		`{"version":1,"cards":[{"probe":{"device":"GPU-1","result":"ok","at_ns":5},"epoch":{"boot":"b"},"wall":"2026-11-21T07:00:00Z"}]}`,
	} {
		f.Add([]byte(seed))
	}
	s := fuzzed(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		put(t, s, baselineFile.file, data)
		baselines, err := s.Baselines()
		damageOrNone(t, s, err, len(baselines))
		for id, b := range baselines {
			if id == "" || id != b.GPU || b.Bytes > finding.MaxBaseline {
				t.Fatalf("%q: %+v", id, b)
			}
		}
		if err := s.PutBaseline(carries("GPU-new", 7)); err != nil {
			t.Fatalf("after %q: %v", data, err)
		}
		if now, err := s.Baselines(); err != nil || now["GPU-new"].Bytes != 7 {
			t.Fatalf("after %q: %+v, %v", data, now, err)
		}
		put(t, s, probesFile.file, data)
		tests, err := s.Probes()
		damageOrNone(t, s, err, len(tests))
		for id, r := range tests {
			if id == "" || id != r.Probe.Device {
				t.Fatalf("%q: %+v", id, r)
			}
		}
		if err := s.PutProbes(tested("GPU-new", time.Second)); err != nil {
			t.Fatalf("after %q: %v", data, err)
		}
		if now, err := s.Probes(); err != nil || len(now) == 0 || len(now) > maxCards {
			t.Fatalf("after %q: %d tests, %v", data, len(now), err)
		}
	})
}

// damageOrNone: an error is a damage that was set aside, and nothing is known then.
func damageOrNone(t *testing.T, s *Store, err error, known int) {
	t.Helper()
	if err != nil && (!errors.As(err, new(Damage)) || known > 0 || !wasSetAside(s)) || err == nil && wasSetAside(s) || known > maxCards+1<<14 {
		t.Fatalf("%d known, %v, set aside %v", known, err, wasSetAside(s))
	}
}

// A report in a user's hands is read as a report, or not at all.
func FuzzReport(f *testing.F) {
	f.Add([]byte(`{"clean":true,"text":"bookend: GPU 0 of n1 clean\n"}`))
	f.Add([]byte(`{"clean":1}`))
	f.Add([]byte(`{"text":"export X=1\u0000"} {}`))
	f.Add([]byte(``))
	s := fuzzed(f)
	name := filepath.Join(s.run, "report", node+"_7")
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(name, data, 0o400); err != nil {
			t.Fatal(err)
		}
		report, err := GetReport(s.run, node, slurm.Owner{ID: 7})
		if err != nil && report != (StartReport{}) || len(data) > maxReport && err == nil {
			t.Fatalf("%d bytes: %+v, %v", len(data), report, err)
		}
	})
}

// A file of the history is the record of the run that its name says, or damage.
func FuzzArchivedName(f *testing.F) {
	for _, seed := range []string{"7-" + string(sluidA) + ".json", "7-t5.json", "07-t5.json", "7-.json", "7.json", "-.json", "7-" + string(sluidA), "8-" + string(sluidA) + ".json", "7-..-x.json"} {
		f.Add(seed)
	}
	varDir := f.TempDir()
	folder := historyFolder(varDir, node)
	r := full(7)
	r.Key = string(sluidA)
	data, err := encode(r)
	if err = errors.Join(err, os.MkdirAll(folder, 0o700)); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if name == "" || len(name) > 255 || strings.ContainsAny(name, "/\x00") || name == "." || name == ".." {
			return
		}
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		defer os.Remove(path)
		got, err := archived(folder, name, node)
		if whole := fmt.Sprintf("7-%s.json", sluidA); (err == nil) != (name == whole) || err == nil && (got.Job.ID != 7 || got.Key != string(sluidA)) {
			t.Fatalf("%q: %+v, %v", name, got.Job, err)
		}
		runs, damage := History(varDir, node)
		if want := !strings.HasPrefix(name, ".tmp-"); want && len(runs)+len(damage) != 1 {
			t.Fatalf("%q: %d runs, %d damaged", name, len(runs), len(damage))
		}
	})
}

// Names of files and folders stay in their folder, and no two jobs of a node have one in common.
func FuzzNames(f *testing.F) {
	f.Add("n1", uint32(7), string(sluidA), "GPU-11111111-2222-3333-4444-555555555555")
	f.Add("../x", uint32(0), "../../etc", "../GPU-1")
	f.Add("n1_7", uint32(8), "", "MIG-GPU-1/2/3")
	f.Add("a/b", uint32(1), "s\x00", "")
	f.Fuzz(func(t *testing.T, node string, id uint32, sluid, card string) {
		owner := slurm.Owner{ID: slurm.JobID(id), SLUID: slurm.SLUID(sluid)}
		for _, name := range userNames(node, owner) {
			i := strings.LastIndexByte(name, '_')
			said := name[i+1:]
			if name != filepath.Base(name) || name == ".." || name == "." || name[:i] != node || said != sluid && said != fmt.Sprint(id) || said == "0" {
				t.Errorf("node %q, job %d, SLUID %q: %q", node, id, sluid, name)
			}
		}
		if dir := DropDir("/run/bookend", node, owner); dir != "" && filepath.Dir(dir) != "/run/bookend/drop" {
			t.Errorf("drop folder %q", dir)
		}
		name := lockName(gpu.ID(card))
		if name != filepath.Base(name) || len(name) > 64 || strings.HasPrefix(name, ".") || name != card && lockName(gpu.ID(name)) == name {
			t.Errorf("lock of %q: %q", card, name)
		}
		if key := sluid; validKey(key) && (strings.ContainsAny(key, "/.\x00") || len(key) > 20) {
			t.Errorf("key %q", key)
		}
	})
}

// Whatever a file of sightings or of a health check says, it is whole and of use, or set aside; what is made of it stays
// within its bounds.
func FuzzCheckFiles(f *testing.F) {
	f.Add([]byte(`{"version":1,"value":{"epoch":{"boot":"b","driver":"d","module":"m"},"looks":[{"at_ns":5}],"processes":[{"gpu":"GPU-0","pid":7,"start_ns":3,"owner":{"id":100},"first_ns":4,"last_ns":5,"bytes":{"bytes":9},"most":9,"most_at_ns":5}]}}`))
	f.Add([]byte(`{"version":1,"value":{"at_ns":5,"cards":[{"index":-1}],"kernel":{"seq":9},"boot":"b","findings":[{"code":"BKD-ORPHAN"}]}}`))
	f.Add([]byte(`{"version":1,"value":{"key":{"boot":"b","files":[{"path":"/x"}]},"list":{"source":"slurmd","gpus":[["/dev/nvidia0"],[]]},"in_force":null}}`))
	f.Add([]byte(`{"version":2,"value":{}}`))
	f.Add([]byte(`{"version":1,"value":null}`))
	f.Add([]byte(`{"version":1,"value":{"looks":[{"at_ns":-1,"unread":[""]}],"processes":[{"pid":-1,"last_ns":-9223372036854775808}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s := open(t, t.TempDir())
		for _, name := range []string{sightedFile, checkFile, numberingFile} {
			if err := os.WriteFile(filepath.Join(s.dir, name), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.LastCheck(); err != nil && !errors.As(err, new(Damage)) {
			t.Errorf("last check: %v", err)
		}
		if k, err := s.Numbering(); err != nil && !errors.As(err, new(Damage)) || err == nil && k == nil {
			t.Errorf("numbering: %+v, %v", k, err)
		}
		seen, err := s.Sighted()
		if err != nil && !errors.As(err, new(Damage)) {
			t.Errorf("sightings: %v", err)
		}
		epoch := gpu.Epoch{Boot: "b", Driver: "d", Module: "m"}
		next := seen.With(epoch, gpu.Snapshot{At: time.Minute, Readings: []gpu.Reading{{Device: gpu.Device{ID: "GPU-0"}}}}, nil)
		if len(next.Looks) > 512 || len(next.Processes) > 512 || next.Epoch != epoch {
			t.Errorf("%d looks, %d processes of %+v", len(next.Looks), len(next.Processes), next.Epoch)
		}
		next.During(full(1), 0, time.Hour)
	})
}
