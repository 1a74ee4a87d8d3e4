package numbering

import (
	"strings"
	"testing"
	"time"

	"bookend/internal/slurmconf"
)

// second is a moment of the wall clock, in the seconds of these tables.
func second(n int) time.Time { return time.Unix(int64(1000+n), 0) }

// keyOf has one file, changed at a moment.
func keyOf(changed int) Key {
	at := second(changed).UnixNano()
	return Key{
		Boot: "b", Node: "n1", Conf: "/etc/slurm/slurm.conf", Daemon: Daemon{PID: 7, Ticks: 70},
		Slurmd: FileID{Path: "/usr/sbin/slurmd", Inode: 1, Changed: second(-900).UnixNano()},
		Files:  []FileID{{Path: "/etc/slurm/slurm.conf", Inode: 2, Size: 9, Written: at, Changed: at}, {Path: "/etc/slurm/gres.conf"}},
	}
}

func list(files ...string) List {
	l := List{Source: BySlurmd}
	for _, f := range files {
		l.GPUs = append(l.GPUs, slurmconf.GPU{f})
	}
	return l
}

// restarted is an answer for the next daemon.
func restarted(a Asked) Asked {
	a.Key.Daemon = Daemon{PID: 8, Ticks: 80}
	return a
}

// A difference from what was in force counts only for a slurmd that started after the change.
func TestSettle(t *testing.T) {
	one, other := list("nvidia0", "nvidia1"), list("nvidia1", "nvidia0")
	counted := list("nvidia0", "nvidia1")
	counted.Source = ByCount
	kept := Kept{Key: keyOf(0), List: one, InForce: &one, For: keyOf(0).Daemon}
	pending := Asked{Key: keyOf(5), List: other, Began: second(1)}.Settle(&kept)
	detected := kept
	detected.InForce = &List{Source: ByCount, Detect: "nvml", Count: 2}
	earlier := Kept{Key: keyOf(0), List: one, InForce: &one, For: Daemon{PID: 6, Ticks: 60}}
	elsewhere := kept
	elsewhere.Key.Boot = "a"
	for name, tt := range map[string]struct {
		kept  *Kept
		asked Asked
		want  List
		why   string
	}{
		"the first answer":                    {nil, Asked{Key: keyOf(0), List: one, Began: second(1)}, one, ""},
		"changed since, nothing known before": {nil, Asked{Key: keyOf(2), List: one, Began: second(1)}, List{}, "changed since slurmd started: restart slurmd"},
		"the same tick":                       {nil, Asked{Key: keyOf(1), List: one, Began: second(1)}, one, ""},
		"no slurmd known, nothing before":     {nil, Asked{Key: keyOf(2), List: one}, one, ""},
		"changed, the same answer":            {&kept, Asked{Key: keyOf(5), List: one, Began: second(1)}, one, ""},
		"changed, counted to the same":        {&kept, Asked{Key: keyOf(5), List: counted, Began: second(1)}, counted, ""},
		"changed, another answer":             {&kept, Asked{Key: keyOf(5), List: other, Began: second(1)}, List{}, "restart slurmd"},
		"changed, slurmd restarted":           {&kept, restarted(Asked{Key: keyOf(5), List: other, Began: second(6)}), other, ""},
		"changed, which slurmd is not known":  {&kept, Asked{Key: keyOf(5), List: other}, List{}, "which slurmd is running is not known"},
		"changed, slurmd's own copies":        {&kept, Asked{Key: keyOf(5), List: other, Began: second(1), Own: true}, other, ""},
		"older files, another answer":         {&kept, Asked{Key: keyOf(0), List: other, Began: second(1)}, List{}, "restart slurmd"},
		"older files, restarted":              {&earlier, Asked{Key: keyOf(0), List: other, Began: second(1)}, other, ""},
		"older files, slurmd's own copies":    {&kept, Asked{Key: keyOf(0), List: other, Began: second(1), Own: true}, other, ""},
		"counted, then listed":                {&detected, Asked{Key: keyOf(0), List: one, Began: second(1)}, one, ""},
		// slurmd may have read what the files said in between, at a reconfiguration.
		"changed back":             {&pending, Asked{Key: keyOf(8), List: one, Began: second(1)}, List{}, "restart slurmd"},
		"changed back, old files":  {&pending, Asked{Key: keyOf(0), List: one, Began: second(1)}, List{}, "restart slurmd"},
		"changed back, restarted":  {&pending, restarted(Asked{Key: keyOf(5), List: one, Began: second(6)}), one, ""},
		"not known, then the same": {new(Asked{Key: keyOf(8), List: Unclear("no answer"), Began: second(1)}.Settle(&pending)), Asked{Key: keyOf(0), List: one, Began: second(1)}, List{}, "restart slurmd"},
		"changed again":            {&pending, Asked{Key: keyOf(8), List: other, Began: second(1)}, List{}, "restart slurmd"},
		// It may have read what the files said in between.
		"changed twice, and restarted in between": {&earlier, Asked{Key: keyOf(5), List: one, Began: second(1)}, List{}, "restart slurmd"},
		"another boot": {&elsewhere, Asked{Key: keyOf(2), List: one, Began: second(1)}, List{}, "restart slurmd"},
		"slurmd upgraded and still the old one": {nil, func() Asked {
			a := Asked{Key: keyOf(0), List: one, Began: second(1)}
			a.Key.Slurmd.Changed = second(2).UnixNano()
			return a
		}(), List{}, `"/usr/sbin/slurmd" has changed`},
		"not known": {&kept, Asked{Key: keyOf(0), List: Unclear("no answer"), Began: second(1), Failed: true}, List{}, "no answer"},
	} {
		got := tt.asked.Settle(tt.kept)
		if tt.why != "" {
			if got.List.Known() || !strings.Contains(got.List.Why, tt.why) {
				t.Errorf("%s: %+v, want %q", name, got.List, tt.why)
			}
		} else if got.List.Source != tt.want.Source || !got.List.equal(tt.want) || got.InForce == nil || !got.InForce.equal(tt.want) {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
		if inForce := got.InForce != nil; tt.why != "" && inForce == (got.Uncertain != "") && tt.kept == &kept {
			t.Errorf("%s: neither in force nor uncertain, or both: %+v", name, got)
		}
	}
}

func TestSame(t *testing.T) {
	for name, spoil := range map[string]func(*Key){
		"another boot":          func(k *Key) { k.Boot = "c" },
		"another node":          func(k *Key) { k.Node = "n2" },
		"another configuration": func(k *Key) { k.Conf = "/x" },
		"restarted":             func(k *Key) { k.Daemon.Ticks++ },
		"upgraded":              func(k *Key) { k.Slurmd.Inode++ },
		"gres.conf made":        func(k *Key) { k.Files[1].Inode++ },
		"written in place":      func(k *Key) { k.Files[0].Changed++ },
	} {
		key := keyOf(0)
		if spoil(&key); key.Same(keyOf(0)) {
			t.Errorf("%s: the same", name)
		}
	}
	if !keyOf(0).Same(keyOf(0)) {
		t.Error("equal keys are not the same")
	}
	nowhere := Key{}
	if nowhere.Same(nowhere) {
		t.Error("a boot that is not known is the same as itself")
	}
}

func TestDue(t *testing.T) {
	for name, tt := range map[string]struct {
		tried, now time.Duration
		check      bool
		want       bool
	}{
		"never failed":        {now: 2 * time.Minute, check: true},
		"failed just now":     {tried: time.Minute, now: time.Minute + retry - 1},
		"failed a while ago":  {tried: time.Minute, now: time.Minute + retry, want: true},
		"failed, for a check": {tried: time.Minute, now: time.Minute + 1, check: true, want: true},
		"of another boot":     {tried: time.Hour, now: time.Minute, want: true},
	} {
		if got := (Kept{Tried: tt.tried}).Due(tt.now, tt.check); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
