package state

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"bookend/internal/safefile"
)

func TestStuck(t *testing.T) {
	s := open(t, folder(t))
	if got, err := s.Stuck(); got != nil || err != nil {
		t.Fatalf("%+v, %v", got, err)
	}
	if err := s.ClearStuck(); err != nil {
		t.Errorf("nothing to clear: %v", err)
	}
	first := Stuck{PID: 7, StartTicks: 123456, Since: time.Minute, Op: "watch"}
	for _, stuck := range []Stuck{first, {PID: 8, Since: time.Hour}} {
		if err := s.SetStuck(stuck); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := s.Stuck(); err != nil || !reflect.DeepEqual(got, &first) {
		t.Errorf("%+v, %v; want the one that has been stuck for longer", got, err)
	}
	if err := s.ClearStuck(); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Stuck(); got != nil || err != nil {
		t.Errorf("after clearing: %+v, %v", got, err)
	}
}

// Who only looks sees the stuck child, makes no folder, sets nothing aside, and looks nowhere else.
func TestPeekStuck(t *testing.T) {
	run := folder(t)
	if got := PeekStuck(run, node); got != nil {
		t.Errorf("before there is anything: %+v", got)
	}
	if list, err := os.ReadDir(run); err != nil || len(list) != 0 {
		t.Errorf("it made %v, %v", list, err)
	}
	s := open(t, run)
	want := Stuck{PID: 7, StartTicks: 123456, Since: time.Minute, Op: "watch"}
	if err := s.SetStuck(want); err != nil {
		t.Fatal(err)
	}
	if got := PeekStuck(run, node); !reflect.DeepEqual(got, &want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	for _, name := range []string{"", "../state/" + node, node + "/."} {
		if got := PeekStuck(run, name); got != nil {
			t.Errorf("of node %q: %+v", name, got)
		}
	}
	file := filepath.Join(s.dir, stuckFile)
	if err := os.WriteFile(file, []byte(`{"pid":`), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := PeekStuck(run, node); got != nil {
		t.Errorf("of half a record: %+v", got)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != `{"pid":` {
		t.Errorf("it was changed: %q, %v", text, err)
	}
}

func TestStuckDamaged(t *testing.T) {
	s := open(t, folder(t))
	put := func() {
		if err := os.WriteFile(filepath.Join(s.dir, stuckFile), []byte(`{"pid":`), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put()
	var d Damage
	if got, err := s.Stuck(); got != nil || !errors.As(err, &d) {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := s.Stuck(); got != nil || err != nil {
		t.Errorf("reported again: %+v, %v", got, err)
	}
	put()
	if err := s.SetStuck(Stuck{PID: 9}); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Stuck(); err != nil || got == nil || got.PID != 9 {
		t.Errorf("%+v, %v", got, err)
	}
}

// Whoever holds the lock may be about to write the file anew: a reader that meets it damaged takes nothing away meanwhile.
func TestStuckDamagedBesideAWriter(t *testing.T) {
	s := open(t, folder(t))
	alive := func(Stuck) bool { return true }
	release, err := safefile.Lock(filepath.Join(s.dir, lockOther), 0, true)
	must(t, err)
	for name, read := range map[string]func() (*Stuck, error){
		stuckFile: s.Stuck,
		usersFile: func() (*Stuck, error) { return s.StuckVisit(7, alive) },
	} {
		must(t, os.WriteFile(filepath.Join(s.dir, name), []byte("{"), 0o600))
		if got, err := read(); got != nil || !errors.Is(err, ErrLocked) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if _, err := os.Stat(filepath.Join(s.dir, name)); err != nil {
			t.Errorf("taken away from the writer: %v", err)
		}
	}
	release()
	if got, err := s.Stuck(); got != nil || !errors.As(err, new(Damage)) {
		t.Errorf("%+v, %v", got, err)
	}
}

// One child for each user is on record while it lives, and nothing of those that have ended.
func TestStuckVisits(t *testing.T) {
	s := open(t, folder(t))
	dead := map[int]bool{}
	alive := func(stuck Stuck) bool { return stuck.PID > 0 && !dead[stuck.PID] }
	check := func(uid uint32, want int) {
		t.Helper()
		got, err := s.StuckVisit(uid, alive)
		if err != nil || (got == nil) != (want == 0) || got != nil && got.PID != want {
			t.Errorf("user %d: %+v, %v; want PID %d", uid, got, err, want)
		}
	}
	check(5, 0)
	for _, is := range []struct {
		uid uint32
		pid int
	}{{5, 50}, {5, 51}, {4294967294, 60}} {
		if err := s.SetStuckVisit(is.uid, Stuck{PID: is.pid, StartTicks: 9, Op: "append"}, alive); err != nil {
			t.Fatal(err)
		}
	}
	check(5, 50)
	check(6, 0)
	check(4294967294, 60)
	if driver, err := s.Stuck(); driver != nil || err != nil {
		t.Errorf("stuck in the driver: %+v, %v", driver, err)
	}
	dead[50] = true
	check(6, 0) // whoever looks forgets it
	check(5, 0)
	if data, err := os.ReadFile(filepath.Join(s.dir, usersFile)); err != nil || strings.Contains(string(data), `"5"`) {
		t.Errorf("%s, %v", data, err)
	}
	check(4294967294, 60)
	if err := s.SetStuckVisit(5, Stuck{PID: 51}, alive); err != nil {
		t.Fatal(err)
	}
	check(5, 51)
	dead[51], dead[60] = true, true
	check(5, 0)
	if _, err := os.Lstat(filepath.Join(s.dir, usersFile)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an empty record stays: %v", err)
	}
}

// The record cannot grow without bounds.
func TestStuckVisitsBounded(t *testing.T) {
	s := open(t, folder(t))
	alive := func(Stuck) bool { return true }
	all := map[uint32]Stuck{}
	for uid := range uint32(maxUsers) {
		all[4e9+uid] = Stuck{PID: 1 << 22, StartTicks: 1 << 62, Since: 1 << 62, Op: "append"}
	}
	if err := s.writeShared(usersFile, all); err != nil {
		t.Fatal(err)
	}
	if err := s.SetStuckVisit(7, Stuck{PID: 1}, alive); err == nil {
		t.Error("one more was recorded")
	}
	if got, err := s.StuckVisit(4e9, alive); got == nil || err != nil {
		t.Errorf("%+v, %v", got, err)
	}
}

// Users wait for themselves alone.
func TestVisit(t *testing.T) {
	s := open(t, folder(t))
	leave, err := s.Visit(5, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Visit(5, 0); !errors.Is(err, ErrLocked) {
		t.Errorf("beside another: %v", err)
	}
	other, err := s.Visit(6, 0)
	if err != nil {
		t.Fatal(err)
	}
	other()
	leave()
	if leave, err = s.Visit(5, 0); err != nil {
		t.Fatal(err)
	}
	leave()
}

func TestRepeat(t *testing.T) {
	s := open(t, folder(t))
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
		if say, suppressed := s.Repeat(tc.code, tc.now); say != tc.say || suppressed != tc.suppressed {
			t.Errorf("%d: %s at %v: %v, %d; want %v, %d", i, tc.code, tc.now, say, suppressed, tc.say, tc.suppressed)
		}
	}
}

func TestRepeatIsNeverSilent(t *testing.T) {
	s := open(t, folder(t))
	s.Repeat("A", 0)
	for _, text := range []string{`{"A":`, `{"A":{"said_ns":1},"B":3}`, "null"} {
		if err := os.WriteFile(filepath.Join(s.dir, faultsFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if say, _ := s.Repeat("A", 1); !say {
			t.Errorf("silent by %s", text)
		}
		if say, _ := s.Repeat("A", 2); say {
			t.Errorf("%s: not repaired", text)
		}
	}
	release, err := safefile.Lock(filepath.Join(s.dir, lockOther), 0, true)
	if err != nil {
		t.Fatal(err)
	}
	if say, _ := s.Repeat("A", 3); !say {
		t.Error("locked")
	}
	release()
	for i := range 2 * maxFaults {
		if say, _ := s.Repeat(fmt.Sprint("code", i), 4); !say {
			t.Errorf("code %d was never said", i)
		}
	}
	faults := map[string]fault{}
	if err := s.readShared(faultsFile, &faults); err != nil || len(faults) > maxFaults {
		t.Errorf("%d faults, %v", len(faults), err)
	}
}
