package inventory

import (
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
		path + "/j,task=a,pid=0,uid=0", path + "/j,task=a,pid=99999999,uid=0", path + "/j,task=a,pid=9,uid=-1",
		path + "/j,task=a", path,
		"Killed process  (9) (a)", "Killed process 9", "Killed process 9 (a", "Killed process -9 (a)",
		"Killed process 0 (a)",
		"Memory cgroup out of memory: Kill process 9 (a) score 1 or sacrifice child",
		"oom_reaper: reaped process 9 (a), now",
	} {
		if k, ok := parseSummary(text); ok {
			t.Errorf("%q: %+v", text, k)
		}
		if k, ok := parseKilled(text); ok {
			t.Errorf("%q: %+v", text, k)
		}
	}
}

func TestUnescape(t *testing.T) {
	for in, want := range map[string]string{
		`a\x0ab`: "a\nb", `\x5cx41`: `\x41`, `\x4`: `\x4`, `\x4z5`: `\x4z5`, `\`: `\`, `\y41`: `\y41`,
		`\xff\x00`: "\xff\x00", "": "", `\x41`: "A",
	} {
		if got := unescape([]byte(in)); got != want {
			t.Errorf("unescape(%q) = %q, want %q", in, got, want)
		}
	}
}
