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

	"bookend/internal/gpu"
	"bookend/internal/slurm"
)

// A record is whole, of this node, job and run, and says the same when written anew; a part of one is none.
func FuzzRecord(f *testing.F) {
	r := full(7)
	r.Key = string(sluidA)
	data, err := encode(r)
	must(f, err)
	f.Add(data)
	f.Add(data[:len(data)/2])
	f.Add([]byte(`{"version":1,"key":"t5","job":{"id":7,"node":"n1"},"ends":[{}],"start":null}`))
	f.Add([]byte(`{"version":1,"key":"` + string(sluidA) + `","job":{"id":7,"node":"` + node + `"},` +
		`"ends":[{"snapshot":{"readings":[{"processes":[{"pid":1}]}]}}]}`))
	f.Add([]byte(`{"version":1,"key":"` + string(sluidA) + `","job":{"id":7,"node":"` + node + `","sluid":"../x"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := decode(data, node, 7, string(sluidA))
		if err != nil {
			if !errors.Is(err, errRecord) {
				t.Errorf("%v is no errRecord", err)
			}
			return
		}
		if r.Job.ID != 7 || r.Job.Node != node || r.Key != string(sluidA) || r.Job.SLUID != "" &&
			!slurm.ValidSLUID(string(r.Job.SLUID)) {
			t.Errorf("job %d of %q, run %q, SLUID %q", r.Job.ID, r.Job.Node, r.Key, r.Job.SLUID)
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
	must(f, err)
	return s
}

// put writes a file as a hook that was killed, or a disk, may have left it, and forgets what was set aside before.
func put(t *testing.T, s *Store, name string, data []byte) {
	t.Helper()
	must(t, os.RemoveAll(filepath.Join(s.dir, damagedName)))
	must(t, os.WriteFile(filepath.Join(s.dir, name), data, 0o600))
}

// wasSetAside reports whether a file was set aside.
func wasSetAside(s *Store) bool {
	entries, err := os.ReadDir(filepath.Join(s.dir, damagedName))
	return err == nil && len(entries) == 1
}

// A fault is said when its count cannot be read, and never silent for longer than an hour.
func FuzzFaults(f *testing.F) {
	for _, seed := range []string{`{"BKD-X":{"said_ns":5,"suppressed":3}}`, ``, `{`, `null`,
		`{"BKD-X":{"said_ns":-1}}`, `{"BKD-X":null}`, `{"BKD-X":{"said_ns":9223372036854775807}}`,
		`{"BKD-X":{"said_ns":-9223372036854775808}}`, `[1]`} {
		f.Add([]byte(seed), int64(7))
	}
	f.Add([]byte(`{"BKD-X":{"said_ns":5}}`), int64(time.Hour)+5)
	s := fuzzed(f)
	f.Fuzz(func(t *testing.T, data []byte, now int64) {
		if now < 1 {
			return
		}
		put(t, s, faultsFile.name, data)
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

// A report in a user's hands is read as a report, or not at all.
func FuzzReport(f *testing.F) {
	f.Add([]byte(`{"clean":true,"text":"bookend: GPU 0 of n1 clean\n"}`))
	f.Add([]byte(`{"clean":1}`))
	f.Add([]byte(`{"text":"export X=1\u0000"} {}`))
	f.Add([]byte(``))
	s := fuzzed(f)
	name := filepath.Join(s.run, "report", node+"_7")
	f.Fuzz(func(t *testing.T, data []byte) {
		must(t, os.WriteFile(name, data, 0o400))
		report, err := GetReport(s.run, node, slurm.Owner{ID: 7})
		if err != nil && report != (StartReport{}) || len(data) > maxReport && err == nil {
			t.Fatalf("%d bytes: %+v, %v", len(data), report, err)
		}
	})
}

// A file of the history is the record of the run that its name says, or damage.
func FuzzArchivedName(f *testing.F) {
	for _, seed := range []string{"7-" + string(sluidA) + ".json", "7-t5.json", "07-t5.json", "7-.json", "7.json",
		"-.json", "7-" + string(sluidA), "8-" + string(sluidA) + ".json", "7-..-x.json"} {
		f.Add(seed)
	}
	varDir := f.TempDir()
	folder := historyFolder(varDir, node)
	r := full(7)
	r.Key = string(sluidA)
	data, err := encode(r)
	must(f, errors.Join(err, os.MkdirAll(folder, 0o700)))
	f.Fuzz(func(t *testing.T, name string) {
		if name == "" || len(name) > 255 || strings.ContainsAny(name, "/\x00") || name == "." || name == ".." {
			return
		}
		path := filepath.Join(folder, name)
		must(t, os.WriteFile(path, data, 0o600))
		defer os.Remove(path)
		got, err := archived(folder, name, node)
		if whole := fmt.Sprintf("7-%s.json", sluidA); (err == nil) != (name == whole) || err == nil &&
			(got.Job.ID != 7 || got.Key != string(sluidA)) {
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
			if name != filepath.Base(name) || name == ".." || name == "." || name[:i] != node || said != sluid &&
				said != fmt.Sprint(id) || said == "0" {
				t.Errorf("node %q, job %d, SLUID %q: %q", node, id, sluid, name)
			}
		}
		if dir := DropDir("/run/bookend", node, owner); dir != "" && filepath.Dir(dir) != "/run/bookend/drop" {
			t.Errorf("drop folder %q", dir)
		}
		name := lockName(gpu.ID(card))
		if name != filepath.Base(name) || len(name) > 64 || strings.HasPrefix(name, ".") || name != card &&
			lockName(gpu.ID(name)) == name {
			t.Errorf("lock of %q: %q", card, name)
		}
		if key := sluid; validKey(key) && (strings.ContainsAny(key, "/.\x00") || len(key) > 20) {
			t.Errorf("key %q", key)
		}
	})
}
