package state

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/drain"
	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/safefile"
	"bookend/internal/slurm"
	"bookend/internal/slurmconf"
	"bookend/test/must"
)

// numbers is a file that another package defines.
var numbers = Value[*slurmconf.Kept]("numbering.json", 128<<10)

// kind is one of the files in the node's directory.
type kind struct {
	name  string
	value any // what is got of what is put
	put   func(*Store) error
	get   func(*Store) (any, error)
	blind bool     // put does not read what is there
	quiet bool     // its loss costs nothing: it is no damage and takes no lock
	wrong []string // contents that only this kind refuses
}

func load[T any](from func(*Store) (T, error)) func(*Store) (any, error) {
	return func(s *Store) (any, error) { return from(s) }
}

func anyone(int, uint64) bool { return true }

func kinds() []kind {
	child := Stuck{PID: 7, StartTicks: 123456, Since: time.Minute, Op: "watch"}
	check, numbering := shipped[*record.Check]("check.json"), shipped[*slurmconf.Kept]("numbering.json")
	return []kind{
		{name: "baseline.json", value: map[gpu.ID]record.Baseline{"GPU-0": carries("GPU-0", 5)},
			put: func(s *Store) error { return Baselines.Put(s, carries("GPU-0", 5)) }, get: load(Baselines.Load)},
		{name: "probes.json", value: map[gpu.ID]record.TestRecord{"GPU-0": tested("GPU-0", 1)},
			put: func(s *Store) error { return Probes.Put(s, tested("GPU-0", 1)) }, get: load(Probes.Load)},
		{name: "drain.json", value: aDrain(), wrong: wrongDrains(),
			put: func(s *Store) error { return s.SwapDrain(drain.Remembered{}, aDrain()) }, get: load((*Store).Drain)},
		{name: "check.json", value: check, blind: true,
			put: func(s *Store) error { return LastCheck.Save(s, check) }, get: load(LastCheck.Load)},
		{name: "numbering.json", value: numbering, blind: true,
			put: func(s *Store) error { return numbers.Save(s, numbering) }, get: load(numbers.Load)},
		{name: "stuck-children.json", value: &child,
			put: func(s *Store) error { return StuckChildren.Add(s, child, anyone) },
			get: load(func(s *Store) (*Stuck, error) { return s.Stuck(nil, anyone) })},
		{name: "stuck-readers.json", value: 1, quiet: true,
			put: func(s *Store) error { return StuckReaders.Add(s, child, anyone) },
			get: func(s *Store) (any, error) { return len(StuckReaders.PeekNode(s.Users.Run, node, anyone)), nil }},
	}
}

// shipped is the value in a versioned file of testdata.
func shipped[T any](name string) T {
	var content versioned[T]
	data, err := os.ReadFile(filepath.Join("testdata/files", name))
	if err = errors.Join(err, json.Unmarshal(data, &content)); err != nil {
		panic(err)
	}
	return content.Value
}

// kept is a store with one file of a kind, and its path.
func (k kind) kept(t *testing.T) (s *Store, file string) {
	t.Helper()
	s = fresh(t)
	must.Do(t, k.put(s))
	return s, filepath.Join(s.dir, k.name)
}

// What is kept is read again as it was, by root alone; before it there is nothing. Files of earlier versions are read
// too, and what is written today is what they have.
func TestFiles(t *testing.T) {
	for _, k := range kinds() {
		none := must.Have(k.get(fresh(t)))(t)
		must.Not(t, reflect.DeepEqual(none, k.value), "%s: there is %+v without it", k.name, none)
		s, file := k.kept(t)
		text, was := must.Read(t, file), must.Read(t, "testdata/files/"+k.name)
		must.Be(t, k.name, must.Have(k.get(s))(t), k.value)
		must.Be(t, k.name+"'s mode", must.Have(os.Stat(file))(t).Mode(), 0o600)
		must.Do(t, os.WriteFile(file, []byte(was), 0o600))
		must.Be(t, k.name+" of an earlier version", must.Have(k.get(s))(t), k.value)
		must.Not(t, k.name != "drain.json" && text != was, "%s: got %s, want %s", k.name, text, was) // which had more once
	}
}

// A lock that others hold costs a writer its write, and a reader nothing: but a damaged file is not taken away from
// whoever may be about to write it again.
func TestFilesLocked(t *testing.T) {
	for _, k := range kinds() {
		if k.quiet {
			continue
		}
		s, file := k.kept(t)
		text := must.Read(t, file)
		release := must.Have(safefile.Lock(filepath.Join(s.dir, lockOther), 0, true))(t)
		must.Fail(t, "put "+k.name, k.put(s), ErrLocked)
		must.Be(t, k.name, must.Have(k.get(s))(t), k.value)
		must.Do(t, os.WriteFile(file, []byte("{"), 0o600))
		must.Fail(t, "damaged "+k.name, must.Err(k.get(s)), ErrLocked)
		must.Do(t, os.WriteFile(file, []byte(text), 0o600)) // the writer has
		release()
		must.Be(t, k.name, must.Have(k.get(s))(t), k.value)
	}
}

// What cannot be read now is not written over: it may be whole.
func TestUnreadFilesAreKept(t *testing.T) {
	for _, k := range kinds() {
		if k.blind {
			continue
		}
		s, _ := k.kept(t)
		must.Fail(t, "put "+k.name, refused(t, reading(unix.EIO), func() error { return k.put(s) }), unix.EIO)
		must.Be(t, k.name, must.Have(k.get(s))(t), k.value)
	}
}

// Whoever only looks sees what there is, makes and sets aside nothing, and looks nowhere else.
func TestPeek(t *testing.T) {
	peeks := map[string]func(run, node string) bool{
		"stuck-children.json": func(run, node string) bool { return PeekStuck(run, node, anyone) != nil },
		"stuck-readers.json":  func(run, node string) bool { return len(StuckReaders.PeekNode(run, node, anyone)) > 0 },
		"numbering.json":      func(run, node string) bool { return numbers.PeekNode(run, node) != nil },
	}
	for _, k := range kinds() {
		sees := peeks[k.name]
		if sees == nil {
			continue
		}
		run := newDir(t)
		must.Be(t, k.name+" where there is none", sees(run, node) || len(must.Have(os.ReadDir(run))(t)) > 0, false)
		s, file := k.kept(t)
		must.Be(t, k.name, sees(s.Users.Run, node), true)
		for _, name := range []string{"", "../state/" + node, node + "/."} {
			must.Be(t, k.name+" of node "+name, sees(s.Users.Run, name), false)
		}
		must.Do(t, os.WriteFile(file, []byte(`{"pid":`), 0o600))
		must.Be(t, "damaged "+k.name, sees(s.Users.Run, node), false)
		must.Be(t, "what is left of "+k.name, must.Read(t, file), `{"pid":`)
	}
}

// Whatever a file says, it is whole and of use, or a damage that is set aside and reported once, after which a new one can
// be kept. Files whose loss costs nothing are only written over.
func FuzzFiles(f *testing.F) {
	all := kinds()
	for _, k := range all { // what each kind holds, and what is none of its own
		good := must.Read(f, "testdata/files/"+k.name)
		for _, text := range append(k.wrong, good, good[:len(good)/2], good+strings.Repeat(" ", 1<<20),
			strings.Replace(good, `"version":1`, `"version":2`, 1), strings.Replace(good, `"version":1,`, "", 1)) {
			f.Add([]byte(text))
		}
	}
	for _, seed := range []string{``, `{`, `null`, `[]`, `7`, `{"version":1,"value":null}`, `{"pid":7}{"pid":8}`, `{"5":null}`,
		`{"-1":{}}`, `{"4294967296":{}}`, `{"version":1,"value":{"looks":[{"at_ns":-1,"unread":[""]}]}}`} {
		f.Add([]byte(seed))
	}
	s := must.Have(Open(filepath.Join(f.TempDir(), "run"), node))(f)
	aside := filepath.Join(s.dir, damagedName)
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, k := range all {
			file := filepath.Join(s.dir, k.name)
			_ = os.Remove(file)
			none := must.Have(k.get(s))(t)
			must.Do(t, errors.Join(os.RemoveAll(aside), os.WriteFile(file, data, 0o600)))
			got, damage := k.get(s)
			must.Not(t, damage != nil && !errors.As(damage, new(Damage)) || (damage != nil) != there(aside) ||
				damage != nil && !reflect.DeepEqual(got, none), "%s of %q: %+v, %v", k.name, data, got, damage)
			again, err := k.get(s)
			must.Not(t, err != nil || !reflect.DeepEqual(again, got), "%s of %q, again: %+v, %v", k.name, data, again, err)
			trusted(t, s)
			err = k.put(s)
			must.Not(t, err != nil && !errors.Is(err, ErrChanged), "%s of %q: no new one can be kept: %v", k.name, data, err)
			if kept := must.Have(k.get(s))(t); damage != nil {
				must.Be(t, k.name+" begun again", kept, k.value)
			}
		}
	})
}

// trusted checks that what is read of files can be acted on.
func trusted(t *testing.T, s *Store) {
	t.Helper()
	m, err := s.Drain()
	if m.Written != nil {
		must.Be(t, m.Written.Reason+" is ours", drain.IsOurReason(m.Written.Reason), true)
	}
	if err := errors.Join(err, s.SwapDrain(m, m)); err != nil {
		t.Fatalf("what was read cannot be written: %v", err)
	}
	must.Do(t, os.Remove(filepath.Join(s.dir, drainFile.name)))
}

// wrongDrains are memories of a drain that Bookend cannot have written.
func wrongDrains() (texts []string) {
	for _, edit := range []func(*drain.Remembered){
		func(m *drain.Remembered) { m.Written.Reason = "disk swap" },
		func(m *drain.Remembered) { m.Written.Reason = slurm.EpilogError },
		func(m *drain.Remembered) { m.Written.Reason = "" },
		func(m *drain.Remembered) { m.Written.Causes = nil },
		func(m *drain.Remembered) { m.Written.Wall = time.Time{} },
	} {
		m := aDrain()
		edit(&m)
		text, _ := json.Marshal(drainContent{fileVersion, m})
		texts = append(texts, string(text))
	}
	return texts
}
