package kmsg

import (
	"reflect"
	"testing"

	"bookend/internal/gpu"
)

func TestKillNames(t *testing.T) {
	const path = "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/j,task_memcg="
	for text, want := range map[string]gpu.HostKill{
		path + "/j/t,task=a,pid=1,uid=2,pid=9,uid=3":            {PID: 9, Name: "a,pid=1,uid=2", Cgroup: "/j/t"},
		path + "/j,task=a,b,task=c,pid=9,uid=3":                 {PID: 9, Name: "a,b,task=c", Cgroup: "/j"},
		path + "/j,task=0123456789,task=c,pid=9,uid=3":          {PID: 9, Name: "c", Cgroup: "/j,task=0123456789"},
		path + "/x,task_memcg=/slurm/job_1,task=a,pid=9,uid=3":  {PID: 9, Name: "a"},
		path + "/j,task=,pid=9,uid=0":                           {PID: 9, Cgroup: "/j"},
		"Out of memory: Killed process 9 (a) total-vm:1kB, x":   {PID: 9, Name: "a"},
		"Killed process 9 (a) (b)) total-vm:1kB, x":             {PID: 9, Name: "a) (b)"},
		"Killed process 9 (a), UID 7, total-vm:1kB, x":          {PID: 9, Name: "a"},
		"Killed process 9 (), UID 7, total-vm:1kB, x":           {PID: 9},
		"Memory cgroup out of memory: Killed process 9 (uwsgi)": {PID: 9, Name: "uwsgi"},
	} {
		got, ok := parseSummary(text)
		if !ok {
			got, ok = parseKilled(text)
		}
		if !ok || got != want {
			t.Errorf("%q: %+v, %v", text, got, ok)
		}
	}
	for _, text := range []string{
		path + "/j,task=a,pid=0,uid=0", path + "/j,task=a,pid=99999999,uid=0", path + "/j,task=a,pid=9,uid=-1", path + "/j,task=a", path,
		"Killed process  (9) (a)", "Killed process 9", "Killed process 9 (a", "Killed process -9 (a)", "Killed process 0 (a)",
		"Memory cgroup out of memory: Kill process 9 (a) score 1 or sacrifice child", "oom_reaper: reaped process 9 (a), now",
	} {
		if k, ok := parseSummary(text); ok {
			t.Errorf("%q: %+v", text, k)
		}
		if k, ok := parseKilled(text); ok {
			t.Errorf("%q: %+v", text, k)
		}
	}
}

func TestXidForms(t *testing.T) {
	for text, want := range map[string]gpu.Xid{
		"NVRM: Xid (PCI:0000:1b:00): 31":                                  {BusID: "0000:1b:00.0", Code: 31},
		"NVRM: Xid (PCI:0000:1b:00): 31, ":                                {BusID: "0000:1b:00.0", Code: 31},
		"NVRM: Xid (PCI:0000:1b:00): 31, pid=7, name=x, ":                 {BusID: "0000:1b:00.0", Code: 31, PID: 7, Name: "x"},
		"NVRM: Xid (PCI:0000:1b:00): 31, pid=7, name=a, b, c":             {BusID: "0000:1b:00.0", Code: 31, PID: 7, Name: "a, b", Text: "c"},
		"NVRM: Xid (PCI:0000:1b:00): 31, pid=7, name=a, secret, MMU":      {BusID: "0000:1b:00.0", Code: 31, PID: 7, Name: "a, secret", Text: "MMU"},
		"NVRM: Xid (PCI:0000:1b:00): 31, pid=7, name=123456789, 1234, b":  {BusID: "0000:1b:00.0", Code: 31, PID: 7, Name: "123456789, 1234", Text: "b"},
		"NVRM: Xid (PCI:0000:1b:00): 31, pid=7, name=123456789, 12345, b": {BusID: "0000:1b:00.0", Code: 31, PID: 7, Name: "123456789", Text: "12345, b"},
		"NVRM: Xid (PCI:0000:1b:00): 31, pid=7, name=a, Ch 0000000a, b":   {BusID: "0000:1b:00.0", Code: 31, PID: 7, Name: "a", Text: "Ch 0000000a, b"},
		"NVRM: Xid (PCI:0000:1b:00): 31, pid=7, name=a, Ch 1, b":          {BusID: "0000:1b:00.0", Code: 31, PID: 7, Name: "a, Ch 1", Text: "b"},
		"NVRM: Xid (PCI:0000:1b:00): 31, pid=7, name=, b":                 {BusID: "0000:1b:00.0", Code: 31, PID: 7, Text: "b"},
		"NVRM: Xid (PCI:0000:1b:00): 31, pid=-7, name=a,b, c":             {BusID: "0000:1b:00.0", Code: 31, Name: "a,b", Text: "c"},
		"NVRM: Xid (PCI:0000:1b:00): 31, pid=99999999, x":                 {BusID: "0000:1b:00.0", Code: 31, Text: "x"},
		"NVRM: Xid (PCI:10000:1b:00): 31, x":                              {BusID: "10000:1b:00.0", Code: 31, Text: "x"},
		"NVRM: Xid (PCI:0000:1b:00.1 GPU-I:x GPU-CI:999 NEW:1): 31, x":    {BusID: "0000:1b:00.1", Code: 31, Text: "x"},
		"NVRM: Xid (PCI:0000:1b:00): 45, caused by previous Xid 7 or 8":   {BusID: "0000:1b:00.0", Code: 45, Text: "caused by previous Xid 7 or 8"},
		"NVRM: Xid (PCI:0000:1b:00): 45, a caused by previous Xid 100000": {BusID: "0000:1b:00.0", Code: 45, Text: "a caused by previous Xid 100000"},
	} {
		if got, ok := parseXid(text); !ok || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, %v", text, got, ok)
		}
	}
	for _, text := range []string{
		"", "NVRM: Xid (", "NVRM: Xid (PCI:0000:1b:00)", "NVRM: Xid (): 31", "NVRM: Xid (PCI:0000:1b): 31", "NVRM: Xid (PCI:0000:1b:00): x",
		"NVRM: Xid (PCI:0000:1b:00): , pid=1", "NVRM: Xid (PCI:0000:1b:00): 31 or so", "NVRM: Xid (PCI:0000:1b:00): 10000",
		"NVRM: Xid (PCI:zzzz:1b:00): 31", "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 24007, Fatal",
	} {
		if got, ok := parseXid(text); ok {
			t.Errorf("%q: %+v", text, got)
		}
	}
}

func TestUnescape(t *testing.T) {
	for in, want := range map[string]string{
		`a\x0ab`: "a\nb", `\x5cx41`: `\x41`, `\x4`: `\x4`, `\x4z5`: `\x4z5`, `\`: `\`, `\y41`: `\y41`, `\xff\x00`: "\xff\x00", "": "", `\x41`: "A",
	} {
		if got := unescape([]byte(in)); got != want {
			t.Errorf("unescape(%q) = %q, want %q", in, got, want)
		}
	}
}
