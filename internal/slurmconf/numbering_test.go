package slurmconf

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bookend/test/golden"
	"bookend/test/must"
)

// second is a moment of the wall clock, in the seconds of these tables.
func second(n int) time.Time { return time.Unix(int64(1000+n), 0) }

// keyOf has one file, changed at a moment.
func keyOf(changed int) Key {
	at := second(changed).UnixNano()
	return Key{
		Boot: "b", Node: "n1", Conf: "/etc/slurm/slurm.conf", Daemon: Daemon{PID: 7, Ticks: 70},
		Slurmd: FileID{Path: "/usr/sbin/slurmd", Inode: 1, Changed: second(-900).UnixNano()},
		Files: []FileID{
			{Path: "/etc/slurm/slurm.conf", Inode: 2, Changed: at},
			{Path: "/etc/slurm/gres.conf"},
		},
	}
}

func list(files ...string) List {
	l := List{Source: BySlurmd}
	for _, f := range files {
		l.GPUs = append(l.GPUs, GPU{f})
	}
	return l
}

const unknown = -1

// asking is an answer about files that changed at one moment, for a slurmd that began at another.
func asking(changed int, l List, began int) Asked {
	a := Asked{Key: keyOf(changed), List: l, Began: second(began)}
	if began == unknown {
		a.Key.Daemon = Daemon{}
	}
	return a
}

// own is an answer from slurmd's own copies of the files.
func own(a Asked) Asked {
	a.Own = true
	return a
}

// restarted is an answer for the next daemon.
func restarted(a Asked) Asked {
	a.Key.Daemon = Daemon{PID: 8, Ticks: 80}
	return a
}

// A difference from what was in force counts only for a slurmd that started after the change.
func TestSettle(t *testing.T) {
	one, other := list("nvidia0", "nvidia1"), list("nvidia1", "nvidia0")
	kept := Kept{Key: keyOf(0), List: one, InForce: &one}
	pending := asking(5, other, 1).Settle(&kept)
	earlier, elsewhere := kept, kept
	earlier.Key.Daemon = Daemon{PID: 6, Ticks: 60}
	elsewhere.Key.Boot = "a"
	upgraded := asking(0, one, 1)
	upgraded.Key.Slurmd.Changed = second(2).UnixNano()
	silent := asking(8, Unclear("no answer"), 1).Settle(&pending)
	const restart = "changed since slurmd started: restart slurmd"
	for name, tt := range map[string]struct {
		kept  *Kept
		asked Asked
		why   string // of an answer that does not hold
	}{
		"the first answer":                        {nil, asking(0, one, 1), ""},
		"changed since, nothing known before":     {nil, asking(2, one, 1), restart},
		"changed, the same answer":                {&kept, asking(5, one, 1), ""},
		"changed, another answer":                 {&kept, asking(5, other, 1), restart},
		"changed, slurmd restarted":               {&kept, restarted(asking(5, other, 6)), ""},
		"changed, which slurmd is not known":      {&kept, asking(5, other, unknown), "slurmd is running is not known"},
		"changed, slurmd's own copies":            {&kept, own(asking(5, other, 1)), ""},
		"older files, another answer":             {&kept, asking(0, other, 1), restart},
		"not known, then the same":                {&silent, asking(0, one, 1), restart},
		"changed twice, and restarted in between": {&earlier, asking(5, one, 1), restart},
		"another boot":                            {&elsewhere, asking(2, one, 1), restart},
		"slurmd upgraded, still the old one":      {nil, upgraded, `"/usr/sbin/slurmd" has changed`},
		"not known":                               {&kept, asking(0, Unclear("no answer"), 1), "no answer"},
	} {
		got, want := tt.asked.Settle(tt.kept), tt.asked.List
		switch {
		case tt.why != "" && (got.List.Source.Settled() || !strings.Contains(got.List.Why, tt.why)):
			t.Errorf("%s: %+v, want %q", name, got.List, tt.why)
		case tt.why == "" && (got.List.Source != want.Source || !got.List.equal(want)):
			t.Errorf("%s: %+v, want %+v", name, got.List, want)
		case tt.why == "" && (got.InForce == nil || !got.InForce.equal(want)):
			t.Errorf("%s: in force is %+v, want %+v", name, got.InForce, want)
		case name == "not known" && !got.InForce.equal(one):
			t.Errorf("%s: nothing is in force: %+v", name, got)
		}
	}
}

func TestSame(t *testing.T) {
	for name, spoil := range map[string]func(*Key){
		"another boot":   func(k *Key) { k.Boot = "c" },
		"restarted":      func(k *Key) { k.Daemon.Ticks++ },
		"gres.conf made": func(k *Key) { k.Files[1].Inode++ },
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
		"failed a while ago":  {tried: time.Minute, now: time.Minute + retry, want: true},
		"failed, for a check": {tried: time.Minute, now: time.Minute + 1, check: true, want: true},
		"of another boot":     {tried: time.Hour, now: time.Minute, want: true},
	} {
		if got := (Kept{Tried: tt.tried}).Due(tt.now, tt.check); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// What slurmd of three versions printed for several configurations, and what testdata/listed.txt says of each text: of
// 22.05 the parts do not agree with the count in slurm.conf; 24.11 was made without the library that it was built with.
func TestParseListed(t *testing.T) {
	said := ""
	for _, file := range must.Have(filepath.Glob("testdata/slurmd/*"))(t) {
		gpus, err := ParseListed(string(must.Have(os.ReadFile(file))(t)))
		said += fmt.Sprintf("%s: %v %v\n", filepath.Base(file), gpus, err)
	}
	golden.File(t, *update, "testdata/listed.txt", said)
}

// One record or message after the other, with " | " between lines. A slurmd that could not ask the driver lists the
// order of gres.conf, which is not the running daemon's; one that was built without the library counts as the daemon
// does. Behind "count" a node's Gres: how many GPUs.
func TestParseListedOneByOne(t *testing.T) {
	golden.Lines(t, *update, "testdata/records.txt", func(given string) string {
		if list, is := strings.CutPrefix(given, "count "); is {
			return fmt.Sprint(Count(list))
		}
		gpus, err := ParseListed(strings.ReplaceAll(given, " | ", "\n"))
		if err != nil && gpus == nil {
			return "error"
		}
		return fmt.Sprint(gpus)
	})
}
