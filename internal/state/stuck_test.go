package state

import (
	"errors"
	"os"
	"path/filepath"
	"time"

	"reflect"
	"testing"

	"bookend/internal/code"
	"bookend/internal/drain"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/ledger"
	"bookend/internal/safefile"
	"bookend/test/must"
)

func TestStuck(t *testing.T) {
	s := open(t, folder(t))
	must.Do(t, s.ClearStuck())
	first := Stuck{PID: 7, StartTicks: 123456, Since: time.Minute, Op: "watch"}
	must.Do(t, errors.Join(s.SetStuck(first), s.SetStuck(Stuck{PID: 8, Since: time.Hour})))
	if got, err := s.Stuck(); err != nil || !reflect.DeepEqual(got, &first) {
		t.Errorf("got %+v, %v, want the one that has been stuck for longer", got, err)
	}
	must.Do(t, s.ClearStuck())
	if got, err := s.Stuck(); got != nil || err != nil {
		t.Errorf("after clearing: got %+v, %v", got, err)
	}
}

// One child for each user is on record while it lives.
func TestStuckVisits(t *testing.T) {
	s := open(t, folder(t))
	dead := map[int]bool{}
	alive := func(stuck Stuck) bool { return stuck.PID > 0 && !dead[stuck.PID] }
	check := func(uid uint32, want int) {
		t.Helper()
		got, err := s.StuckVisit(uid, alive)
		if err != nil || (got == nil) != (want == 0) || got != nil && got.PID != want {
			t.Errorf("user %d: got %+v, %v, want PID %d", uid, got, err, want)
		}
	}
	set := func(uid uint32, pid int) {
		t.Helper()
		must.Do(t, s.SetStuckVisit(uid, Stuck{PID: pid, StartTicks: 9, Op: "append"}, alive))
	}
	check(5, 0)
	set(5, 50)
	set(5, 51)
	set(4294967294, 60)
	check(5, 50)
	check(6, 0)
	check(4294967294, 60)
	if driver, err := s.Stuck(); driver != nil || err != nil {
		t.Errorf("stuck in the driver: %+v, %v", driver, err)
	}
	dead[50] = true
	check(5, 0)
	set(5, 51)
	check(5, 51)
	check(4294967294, 60)
}

// The record cannot grow without bounds. Who has ended makes room.
func TestStuckVisitsBounded(t *testing.T) {
	s := open(t, folder(t))
	for uid := range uint32(maxUsers) {
		long := Stuck{PID: int(1<<22 + uid), StartTicks: 1 << 62, Since: 1 << 62, Op: "append"}
		must.Do(t, s.SetStuckVisit(4e9+uid, long, anyone))
	}
	if err := s.SetStuckVisit(7, Stuck{PID: 1}, anyone); err == nil {
		t.Error("one more was recorded")
	}
	if got, err := s.StuckVisit(4e9, anyone); got == nil || err != nil {
		t.Errorf("got %+v, %v", got, err)
	}
	must.Do(t, s.SetStuckVisit(7, Stuck{PID: 1}, func(stuck Stuck) bool { return stuck.PID != 1<<22 }))
}

// A stuck reader is never forgotten for another, and the record of as many as there may be fits.
func TestReadersAreBounded(t *testing.T) {
	s := open(t, folder(t))
	dead := map[int]bool{}
	alive := func(s Stuck) bool { return !dead[s.PID] }
	add := func(pid, places int) error {
		var at []finding.Instance
		for i := range places {
			at = append(at, finding.Instance{PID: 4_000_000 + i, Start: 1e17 + time.Duration(i)})
		}
		return s.AddReader(Reader{Stuck: Stuck{PID: pid, StartTicks: 1e17, Since: 1e17, Op: "processes"}, At: at},
			alive)
	}
	for i := range MaxReaders {
		must.Do(t, add(4_000_000+i, maxPlaces+i%2))
	}
	on := PeekReaders(s.run, node, alive)
	if len(on) != MaxReaders || len(on[0].At) != maxPlaces || len(on[1].At) != 0 {
		t.Errorf("on record: %d, with %d and %d places", len(on), len(on[0].At), len(on[1].At))
	}
	if err := add(7, 1); err == nil || len(s.Readers(alive)) != MaxReaders || s.Readers(alive)[0].PID != 4_000_000 {
		t.Errorf("one too many: %v, first %+v", err, s.Readers(alive)[0])
	}
	dead[4_000_000] = true
	if err := add(7, 1); err != nil || len(s.Readers(alive)) != MaxReaders {
		t.Errorf("once one has ended: %v, %d on record", err, len(s.Readers(alive)))
	}
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
			t.Errorf("%d: %s at %v: got %v, %d, want %v, %d", i, tc.code, tc.now, say, suppressed, tc.say,
				tc.suppressed)
		}
	}
}

// Damage and a lock make no fault silent.
func TestRepeatIsNeverSilent(t *testing.T) {
	s := open(t, folder(t))
	s.Repeat("A", 0)
	for _, text := range []string{`{"A":`, `{"A":{"said_ns":1},"B":3}`, "null", `{"A":{"said_ns":-1}}`,
		`{"A":{"said_ns":9223372036854775807}}`, `{"A":null}`} {
		must.Do(t, os.WriteFile(filepath.Join(s.dir, faultsFile.name), []byte(text), 0o600))
		if say, _ := s.Repeat("A", 1); !say {
			t.Errorf("silent by %s", text)
		}
		if say, _ := s.Repeat("A", 2); say {
			t.Errorf("%s: not repaired", text)
		}
	}
	release := must.Have(safefile.Lock(filepath.Join(s.dir, lockOther), 0, true))(t)
	if say, _ := s.Repeat("A", 3); !say {
		t.Error("locked")
	}
	release()
}

const ourReason = "BKD-ORPHAN gpu=0 2518MiB pid=4711 job=42 epilog; see: bookend show 42"

func aDrain() drain.Memory {
	at := time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)
	return drain.Memory{
		Written: &drain.Written{
			Reason: ourReason, Wall: at, Conf: "/etc/slurm/slurm.conf",
			Epoch: gpu.Epoch{Boot: "b"}, Clean: 2,
			Causes: []drain.Cause{{Code: code.Orphan, GPU: "GPU-a"}},
		},
		Settled: []drain.Ref{{Job: 42, At: time.Hour}}, Last: &drain.Said{Wall: at, Act: drain.Write, Why: "for it"},
	}
}

// Whoever decided on what is not so any more changes nothing; a reason in the words of another release is ours as long
// as it is on record.
func TestDrain(t *testing.T) {
	s := open(t, folder(t))
	must.Do(t, s.SwapDrain(drain.Memory{}, aDrain()))
	other, large := aDrain(), aDrain()
	other.Written.Clean++
	large.Last.Why = string(make([]byte, maxDrain))
	for name, tt := range map[string]struct {
		seen, next drain.Memory
		want       error
	}{
		"nothing seen": {drain.Memory{}, drain.Memory{}, ErrChanged},
		"another seen": {other, drain.Memory{}, ErrChanged},
		"too large":    {aDrain(), large, safefile.ErrTooLarge},
	} {
		if err := s.SwapDrain(tt.seen, tt.next); !errors.Is(err, tt.want) {
			t.Errorf("%s: got %v, want %v", name, err, tt.want)
		}
	}
	if m, err := s.Drain(); err != nil || !reflect.DeepEqual(m, aDrain()) {
		t.Errorf("got %+v, %v, want %+v", m, err, aDrain())
	}
	old := aDrain()
	old.Written.Reason = "BKD-ORPHAN gpu=0 leftover pid=4711 20.5GiB job=42; on node: bookend show 42"
	must.Do(t, s.SwapDrain(aDrain(), old))
	if m, err := s.Drain(); err != nil || !reflect.DeepEqual(m, old) {
		t.Errorf("got %+v, %v, want %+v", m, err, old)
	}
}

// A crowded card keeps a check's record small, and says that there were more. Of samples that could not read any card
// there is no room for all: the newest stay.
func TestChecksAreBounded(t *testing.T) {
	s := open(t, folder(t))
	c := ledger.Check{}
	for range 16 {
		r := gpu.Reading{}
		for pid := range 950 {
			r.Processes = append(r.Processes, gpu.Process{PID: pid, Memory: gpu.Bytes(1 << 30)})
		}
		c.Snapshot.Readings = append(c.Snapshot.Readings, r)
	}
	must.Do(t, s.PutLastCheck(c))
	got := must.Have(s.LastCheck())(t)
	if r := got.Snapshot.Readings[3]; len(r.Processes) != 16 || r.ProcessesUnknown == "" {
		t.Errorf("got %d processes, unknown %q, want 16", len(r.Processes), r.ProcessesUnknown)
	}
	if len(c.Snapshot.Readings[0].Processes) != 950 {
		t.Error("the caller's own was cut")
	}
}
