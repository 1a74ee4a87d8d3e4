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
	"bookend/internal/slurmconf"
	"bookend/test/must"
)

// kind is one of the files in the node's directory.
type kind struct {
	name  string
	put   func(*Store) error
	get   func(*Store) (any, error)
	blind bool     // put does not read what is there
	quiet bool     // its loss costs nothing: it is no damage and takes no lock
	wrong []string // contents that only this kind refuses
}

func load[T any](from func(*Store) (T, error)) func(*Store) (any, error) {
	return func(s *Store) (any, error) { return from(s) }
}

func anyone(Stuck) bool { return true }

func kinds() []kind {
	child := Stuck{PID: 7, StartTicks: 123456, Since: time.Minute, Op: "watch"}
	return []kind{
		{name: "baseline.json", put: func(s *Store) error { return Baselines.Put(s, carries("GPU-0", 5)) },
			get: load(Baselines.Load)},
		{name: "probes.json", put: func(s *Store) error { return Probes.Put(s, tested("GPU-0", 1)) },
			get: load(Probes.Load)},
		{name: "drain.json", put: func(s *Store) error { return s.SwapDrain(drain.Remembered{}, aDrain()) },
			get: load((*Store).Drain), wrong: wrongDrains()},
		{name: "check.json", put: func(s *Store) error { return LastCheck.Save(s, shipped[*record.Check]("check.json")) },
			get: load(LastCheck.Load), blind: true},
		{name: "numbering.json", put: func(s *Store) error { return Numbering.Save(s, shipped[*slurmconf.Kept]("numbering.json")) },
			get: load(Numbering.Load), blind: true},
		{name: "stuck-children.json", put: func(s *Store) error { return StuckChildren.Add(s, child, anyone) },
			get: load(func(s *Store) (*Stuck, error) { return s.Stuck(nil, anyone) })},
		{name: "stuck-readers.json", put: func(s *Store) error { return StuckReaders.Add(s, child, anyone) },
			get: func(s *Store) (any, error) { return len(StuckReaders.PeekNode(s.Users.Run, node, anyone)), nil }, quiet: true},
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

// kept is a store with one file of a kind, its value, and its text.
func (k kind) kept(t *testing.T) (s *Store, value any, text string) {
	t.Helper()
	s = fresh(t)
	must.Do(t, k.put(s))
	return s, must.Have(k.get(s))(t), must.Read(t, filepath.Join(s.dir, k.name))
}

// missing is what is known where there is no file.
func (k kind) missing(t *testing.T) any {
	t.Helper()
	return must.Have(k.get(fresh(t)))(t)
}

// What is kept is read again as it was, by root alone; before it there is nothing. Files of earlier versions are read
// too, and what is written today is what they have.
func TestFiles(t *testing.T) {
	want := map[string]any{
		"baseline.json": map[gpu.ID]record.Baseline{"GPU-0": carries("GPU-0", 5)}, "drain.json": aDrain(),
		"stuck-readers.json": 1,
	}
	for _, k := range kinds() {
		s, value, text := k.kept(t)
		if w := want[k.name]; w != nil {
			must.Be(t, k.name, value, w)
		}
		must.Not(t, reflect.DeepEqual(value, k.missing(t)), "%s: got nothing from %s", k.name, text)
		file := filepath.Join(s.dir, k.name)
		must.Be(t, k.name+"'s mode", must.Have(os.Stat(file))(t).Mode(), 0o600)
		was := must.Read(t, "testdata/files/"+k.name)
		must.Do(t, os.WriteFile(file, []byte(was), 0o600))
		must.Be(t, k.name+" of an earlier version", must.Have(k.get(s))(t), value)
		must.Not(t, k.name != "drain.json" && text != was, "%s: got %s, want %s", k.name, text, was) // which had more once
	}
}

// What cannot have been written is set aside, reported once, and begun again. Files whose loss costs nothing are only
// written over.
func TestFilesDamaged(t *testing.T) {
	for _, k := range kinds() {
		_, value, good := k.kept(t)
		none := k.missing(t)
		texts := append([]string{
			"", "{", good[:len(good)/2], "null", "7", strings.Replace(good, `"version":1`, `"version":2`, 1),
			strings.Replace(good, `"version":1,`, "", 1), good + strings.Repeat(" ", 1<<20),
		}, k.wrong...)
		for _, text := range texts {
			if text == good { // of a file without a version
				continue
			}
			s := fresh(t)
			spoil := func() { must.Do(t, os.WriteFile(filepath.Join(s.dir, k.name), []byte(text), 0o600)) }
			spoil()
			if is, err := k.get(s); !reflect.DeepEqual(is, none) || errors.As(err, new(Damage)) == k.quiet {
				t.Errorf("%s of %.80q: got %+v, %v, want %+v", k.name, text, is, err, none)
			}
			if is, err := k.get(s); !reflect.DeepEqual(is, none) || err != nil {
				t.Errorf("%s of %.80q, again: got %+v, %v, want %+v", k.name, text, is, err, none)
			}
			spoil()
			must.Do(t, k.put(s))
			if is, err := k.get(s); !reflect.DeepEqual(is, value) || err != nil {
				t.Errorf("%s begun again: got %+v, %v, want %+v", k.name, is, err, value)
			}
			want := 1
			if k.quiet && k.blind {
				want = 0
			}
			aside, _ := os.ReadDir(filepath.Join(s.dir, damagedName))
			must.Not(t, len(aside) != want, "%s of %.80q: got %v set aside, want %d", k.name, text, aside, want)
		}
	}
}

// A lock that others hold costs a writer its write, and a reader nothing: but a damaged file is not taken away from
// whoever may be about to write it again.
func TestFilesLocked(t *testing.T) {
	for _, k := range kinds() {
		if k.quiet {
			continue
		}
		s, value, text := k.kept(t)
		release := must.Have(safefile.Lock(filepath.Join(s.dir, lockOther), 0, true))(t)
		must.Fail(t, "put "+k.name, k.put(s), ErrLocked)
		must.Be(t, k.name, must.Have(k.get(s))(t), value)
		must.Do(t, os.WriteFile(filepath.Join(s.dir, k.name), []byte("{"), 0o600))
		if is, err := k.get(s); !errors.Is(err, ErrLocked) || !reflect.DeepEqual(is, k.missing(t)) {
			t.Errorf("damaged %s: got %+v, %v, want %v", k.name, is, err, ErrLocked)
		}
		must.Do(t, os.WriteFile(filepath.Join(s.dir, k.name), []byte(text), 0o600)) // the writer has
		release()
		must.Be(t, k.name, must.Have(k.get(s))(t), value)
	}
}

// What cannot be read now is not written over: it may be whole.
func TestUnreadFilesAreKept(t *testing.T) {
	for _, k := range kinds() {
		if k.blind {
			continue
		}
		s, value, _ := k.kept(t)
		must.Fail(t, "put "+k.name, refused(t, reading(unix.EIO), func() error { return k.put(s) }), unix.EIO)
		must.Be(t, k.name, must.Have(k.get(s))(t), value)
	}
}

// Whoever only looks sees what there is, makes and sets aside nothing, and looks nowhere else.
func TestPeek(t *testing.T) {
	peeks := map[string]func(run, node string) bool{
		"stuck-children.json": func(run, node string) bool { return PeekStuck(run, node, anyone) != nil },
		"stuck-readers.json":  func(run, node string) bool { return len(StuckReaders.PeekNode(run, node, anyone)) > 0 },
		"numbering.json":      func(run, node string) bool { return Numbering.PeekNode(run, node) != nil },
	}
	for _, k := range kinds() {
		sees := peeks[k.name]
		if sees == nil {
			continue
		}
		run := newDir(t)
		must.Be(t, k.name+" where there is none", sees(run, node) || len(must.Have(os.ReadDir(run))(t)) > 0, false)
		s, _, _ := k.kept(t)
		must.Be(t, k.name, sees(s.Users.Run, node), true)
		for _, name := range []string{"", "../state/" + node, node + "/."} {
			must.Be(t, k.name+" of node "+name, sees(s.Users.Run, name), false)
		}
		file := filepath.Join(s.dir, k.name)
		must.Do(t, os.WriteFile(file, []byte(`{"pid":`), 0o600))
		must.Be(t, "damaged "+k.name, sees(s.Users.Run, node), false)
		must.Be(t, "what is left of "+k.name, must.Read(t, file), `{"pid":`)
	}
}

// Whatever a file says, it is whole and of use, or a damage that is set aside, after which a new one can be kept.
func FuzzFiles(f *testing.F) {
	all := kinds()
	for _, k := range all { // what each kind holds, and what is none of its own
		for _, text := range append(k.wrong, must.Read(f, "testdata/files/"+k.name)) {
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
			must.Do(t, errors.Join(os.RemoveAll(aside), os.WriteFile(filepath.Join(s.dir, k.name), data, 0o600)))
			_, err := k.get(s)
			must.Not(t, err != nil && !errors.As(err, new(Damage)) || (err != nil) != there(aside), "%s of %q: %v", k.name, data, err)
			_, again := k.get(s)
			must.Not(t, again != nil, "%s of %q: reported again: %v", k.name, data, again)
			trusted(t, s)
			if err := k.put(s); err != nil && !errors.Is(err, ErrChanged) {
				t.Fatalf("%s of %q: no new one can be kept: %v", k.name, data, err)
			}
			must.Do(t, os.Remove(filepath.Join(s.dir, k.name)))
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
		func(m *drain.Remembered) { m.Written.Reason = drain.EpilogError },
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
