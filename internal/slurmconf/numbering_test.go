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
			{Path: "/etc/slurm/slurm.conf", Inode: 2, Size: 9, Written: at, Changed: at},
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
	a := Asked{Key: keyOf(changed), List: l}
	if began != unknown {
		a.Began = second(began)
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
	counted := list("nvidia0", "nvidia1")
	counted.Source = ByCount
	kept := Kept{Key: keyOf(0), List: one, InForce: &one, For: keyOf(0).Daemon}
	pending := asking(5, other, 1).Settle(&kept)
	older := kept
	older.InForce = &List{Source: ByCount}
	earlier := Kept{Key: keyOf(0), List: one, InForce: &one, For: Daemon{PID: 6, Ticks: 60}}
	elsewhere := kept
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
		"counted by an earlier version":           {&older, asking(0, one, 1), ""},
		"older files, another answer":             {&kept, asking(0, other, 1), restart},
		"not known, then the same":                {&silent, asking(0, one, 1), restart},
		"changed twice, and restarted in between": {&earlier, asking(5, one, 1), restart},
		"another boot":                            {&elsewhere, asking(2, one, 1), restart},
		"slurmd upgraded, still the old one":      {nil, upgraded, `"/usr/sbin/slurmd" has changed`},
		"not known":                               {&kept, asking(0, Unclear("no answer"), 1), "no answer"},
	} {
		got, want := tt.asked.Settle(tt.kept), tt.asked.List
		switch {
		case tt.why != "" && (got.List.Known() || !strings.Contains(got.List.Why, tt.why)):
			t.Errorf("%s: %+v, want %q", name, got.List, tt.why)
		case tt.why == "" && (got.List.Source != want.Source || !got.List.equal(want)):
			t.Errorf("%s: %+v, want %+v", name, got.List, want)
		case tt.why == "" && (got.InForce == nil || !got.InForce.equal(want)):
			t.Errorf("%s: in force is %+v, want %+v", name, got.InForce, want)
		case tt.why != "" && tt.kept == &kept && (got.InForce != nil) == (got.Uncertain != ""):
			t.Errorf("%s: neither in force nor uncertain, or both: %+v", name, got)
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

// A slurmd that could not ask the driver lists the order of gres.conf, which is not the running daemon's.
func TestParseListedWithoutDetection(t *testing.T) {
	const list = "slurmd: Gres Name=gpu Type=(null) Count=2 ID=7 File=/dev/nvidia[0-1] (null)\n"
	for _, said := range []string{
		"We were configured with nvml functionality, but that lib wasn't found on the system.",
		"Configured with rsmi, but that lib wasn't found.", "Configured with oneAPI, but that lib wasn't found.",
		"error: Failed to initialize NVML: Driver/library version mismatch", "error: System GPU detection failed",
		"error: Failed to get device count: Uninitialized", "error: Failed to get minor number for device 1: Not Found",
		"warning: The following autodetected GPUs are being ignored:",
	} {
		for _, text := range []string{list + "slurmd: " + said + "\n",
			"[2026-11-22T14:51:01.002] " + said + "\n" + list} {
			if got, err := ParseListed(text); err == nil || got != nil {
				t.Errorf("%q: %v, %v", text, got, err)
			}
		}
	}
	built := "slurmd: We were configured to autodetect nvml functionality, " +
		"but we weren't able to find that lib when Slurm was configured.\n"
	if got, err := ParseListed(built + list); err != nil || len(got) != 2 {
		t.Errorf("a slurmd without NVML, like the daemon: %v, %v", got, err)
	}
}

func TestParseListedOneByOne(t *testing.T) {
	for text, want := range map[string]string{
		"slurmd: Gres Name=gpu Type=(null) Count=4 Index=0 ID=7696487 File=/dev/nvidia[0,2-4] (null)\n": "[[/dev/nvidia0] [/dev/nvidia2] [/dev/nvidia3] [/dev/nvidia4]]",
		"Gres Name=gpu Type=x Count=2 ID=7 File=/dev/dri/renderD[128-129] Links=(null)":                 "[[/dev/dri/renderD128] [/dev/dri/renderD129]]",
		"Gres Name=gpu Type=x Count=3 ID=7 File=/dev/nvidia[0-1] (null)":                                "error",
		"Gres Name=gpu Type=x Count=4 ID=7 (null)":                                                      "error",
		"Gres Name=gpu Type=x Count=99999 ID=7 File=/dev/nvidia0 x":                                     "error",
		"Gres Name=gpu Type=x":                              "error",
		"slurmd: error: Gres Name=gpux Count=1 File=/dev/x": "[]",
		"nonsense\x00\xff":                                  "[]",
		strings.Repeat("Gres Name=gpu Type=x Count=200 ID=7 File=/dev/nvidia[0-199] x\n", 2): "error",
	} {
		got, err := ParseListed(text)
		said := fmt.Sprint(got)
		if err != nil {
			said = "error"
		}
		if said != want {
			t.Errorf("%.80q: %s, %v; want %s", text, said, err, want)
		}
	}
}
