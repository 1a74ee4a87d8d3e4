package state

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"bookend/internal/code"
	"bookend/internal/drain"
	"bookend/internal/gpu"
)

const ourReason = "BKD-ORPHAN gpu=0 2518MiB pid=4711 job=42 epilog; see: bookend show 42"

func aDrain() drain.Memory {
	at := time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)
	return drain.Memory{
		Written: &drain.Written{
			Reason: ourReason, Wall: at, By: drain.ByCheck, Conf: "/etc/slurm/slurm.conf", Epoch: gpu.Epoch{Boot: "b"}, Clean: 2,
			Causes: []drain.Cause{{Code: code.Orphan, GPU: "GPU-a"}},
		},
		Settled: []drain.Ref{{Job: 42, At: time.Hour}}, Last: &drain.Said{Wall: at, Act: drain.Write, Why: "for it"},
	}
}

func TestDrainIsRemembered(t *testing.T) {
	s := open(t, t.TempDir())
	if m, err := s.Drain(); err != nil || !reflect.DeepEqual(m, drain.Memory{}) {
		t.Fatalf("before anything was written: %+v, %v", m, err)
	}
	if err := s.SwapDrain(drain.Memory{}, aDrain()); err != nil {
		t.Fatal(err)
	}
	if m, err := s.Drain(); err != nil || !reflect.DeepEqual(m, aDrain()) {
		t.Errorf("%+v, %v", m, err)
	}
	info, err := os.Lstat(filepath.Join(s.dir, drainFile))
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

// Whoever decided on what is not so any more changes nothing.
func TestDrainOfAnother(t *testing.T) {
	s := open(t, t.TempDir())
	if err := s.SwapDrain(drain.Memory{}, aDrain()); err != nil {
		t.Fatal(err)
	}
	if err := s.SwapDrain(drain.Memory{}, drain.Memory{}); !errors.Is(err, ErrChanged) {
		t.Errorf("SwapDrain = %v, want %v", err, ErrChanged)
	}
	other := aDrain()
	other.Written.Clean++
	if err := s.SwapDrain(other, drain.Memory{}); !errors.Is(err, ErrChanged) {
		t.Errorf("SwapDrain = %v, want %v", err, ErrChanged)
	}
	if m, err := s.Drain(); err != nil || !reflect.DeepEqual(m, aDrain()) {
		t.Errorf("%+v, %v", m, err)
	}
}

// Damage makes no reason ours: it is set aside and told, and the next write begins anew.
func TestDamagedDrain(t *testing.T) {
	whole := func(edit func(*drain.Memory)) string {
		s := open(t, t.TempDir())
		m := aDrain()
		edit(&m)
		if err := s.writeJSON(drainFile, maxDrain, drainContent{drainVersion, m}); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(s.dir, drainFile))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	good := whole(func(*drain.Memory) {})
	for name, text := range map[string]string{
		"empty": "", "cut": good[:len(good)/2], "null": "null", "another version": strings.Replace(good, `"version":1`, `"version":2`, 1), "a list": "[]",
		"an admin's reason":   whole(func(m *drain.Memory) { m.Written.Reason = "disk swap" }),
		"Slurm's own":         whole(func(m *drain.Memory) { m.Written.Reason = drain.EpilogError }),
		"no reason":           whole(func(m *drain.Memory) { m.Written.Reason = "" }),
		"an admin's, kept":    whole(func(m *drain.Memory) { m.Over = &drain.Over{Reason: "disk swap"} }),
		"no cause":            whole(func(m *drain.Memory) { m.Written.Causes = nil }),
		"many causes":         whole(func(m *drain.Memory) { m.Written.Causes = make([]drain.Cause, drain.MaxCauses+1) }),
		"less than clean":     whole(func(m *drain.Memory) { m.Written.Clean = -1 }),
		"no time":             whole(func(m *drain.Memory) { m.Written.Wall = time.Time{} }),
		"many settled":        whole(func(m *drain.Memory) { m.Settled = make([]drain.Ref, drain.MaxSettled+1) }),
		"a long way to Slurm": whole(func(m *drain.Memory) { m.Written.Conf = strings.Repeat("/x", maxDrainText) }),
		"too large":           good + strings.Repeat(" ", maxDrain),
	} {
		s := open(t, t.TempDir())
		file := filepath.Join(s.dir, drainFile)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		m, err := s.Drain()
		if !errors.As(err, new(Damage)) || !reflect.DeepEqual(m, drain.Memory{}) {
			t.Errorf("%s: %+v, %v", name, m, err)
		}
		if aside, _ := filepath.Glob(filepath.Join(s.dir, damagedName, drainFile+"*")); len(aside) != 1 {
			t.Errorf("%s: set aside are %q", name, aside)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := s.SwapDrain(drain.Memory{}, aDrain()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A reason in the words of another release is ours as long as it is on record.
func TestDrainOfAnotherRelease(t *testing.T) {
	s := open(t, t.TempDir())
	m := aDrain()
	m.Written.Reason = "BKD-ORPHAN gpu=0 leftover pid=4711 20.5GiB job=42; on node: bookend show 42"
	if err := s.SwapDrain(drain.Memory{}, m); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Drain(); err != nil || !reflect.DeepEqual(got, m) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestLargeDrainIsRefused(t *testing.T) {
	s := open(t, t.TempDir())
	m := aDrain()
	m.Last.Why = strings.Repeat("x", maxDrain)
	if err := s.SwapDrain(drain.Memory{}, m); err == nil {
		t.Error("no error")
	}
}

func FuzzDrain(f *testing.F) {
	f.Add([]byte(`{"version":1}`))
	f.Add([]byte(`{"version":1,"written":{"reason":"` + ourReason + `","wall":"2026-11-21T09:00:00Z","by":"hook","epoch":{},"causes":[{"code":"BKD-ORPHAN"}],"clean":1}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s := open(t, t.TempDir())
		if err := os.WriteFile(filepath.Join(s.dir, drainFile), data, 0o600); err != nil {
			t.Fatal(err)
		}
		m, err := s.Drain()
		if err != nil && !reflect.DeepEqual(m, drain.Memory{}) {
			t.Errorf("%v, and yet %+v", err, m)
		}
		if m.Written != nil {
			if !drain.Recorded(m.Written.Reason) {
				t.Errorf("%q is taken for ours", m.Written.Reason)
			}
		}
		if err == nil {
			if err := s.SwapDrain(m, m); err != nil {
				t.Errorf("what was read cannot be written: %v", err)
			}
		}
	})
}
