package inventory

import (
	"strings"

	"bookend/internal/gpu"
)

// parseSummary parses the line that kernels since 5.0 write before each kill, which alone names the cgroup:
// "oom-kill:constraint=CONSTRAINT_MEMCG,...,task_memcg=/slurm/job_7,task=python,pid=123,uid=1000". The task's name is
// what it calls itself, so the numbers are read from the end.
func parseSummary(text string) (gpu.HostKill, bool) {
	rest, ok := strings.CutPrefix(text, "oom-kill:constraint=CONSTRAINT_")
	if !ok {
		return gpu.HostKill{}, false
	}
	rest, uid := cutLast(rest, ",uid=")
	rest, pid := cutLast(rest, ",pid=")
	head, name := cutTask(rest)
	if _, ok := gpu.Decimal(uid, 1<<31-1); !ok {
		return gpu.HostKill{}, false
	}
	n, ok := gpu.Decimal(pid, gpu.MaxPID)
	if !ok || n == 0 {
		return gpu.HostKill{}, false
	}
	k := gpu.HostKill{PID: n, Name: name}
	if strings.Count(head, ",task_memcg=") == 1 { // a second one is somebody's cgroup of that name
		_, k.Cgroup = cutLast(head, ",task_memcg=")
	}
	return k, true
}

// cutTask cuts off the task's name. One may have ",task=" in it: the first that can begin a name does, so that none
// becomes a part of the cgroup.
func cutTask(s string) (head, name string) {
	const sep = ",task="
	from := max(0, len(s)-gpu.MaxName-len(sep))
	if i := strings.Index(s[from:], sep); i >= 0 {
		return s[:from+i], s[from+i+len(sep):]
	}
	return cutLast(s, sep)
}

func cutLast(s, sep string) (before, after string) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, ""
	}
	return s[:i], s[i+len(sep):]
}

// killed begin the line on a kill that each kernel writes: the last since 4.x before 5.0, the others since.
var killed = [...]string{
	"Memory cgroup out of memory: Killed process ",
	"Out of memory: Killed process ",
	"Out of memory (oom_kill_allocating_task): Killed process ",
	"Killed process ",
}

// parseKilled parses "Killed process 123 (python) total-vm:..." or "Killed process 123 (python), UID 1000,
// total-vm:...".
func parseKilled(text string) (gpu.HostKill, bool) {
	for _, begin := range killed {
		rest, ok := strings.CutPrefix(text, begin)
		if !ok {
			continue
		}
		pid, rest, ok := strings.Cut(rest, " (")
		n, number := gpu.Decimal(pid, gpu.MaxPID)
		if !ok || !number || n == 0 {
			return gpu.HostKill{}, false
		}
		for _, end := range []string{") total-vm:", "), UID ", ")"} {
			if i := strings.LastIndex(rest, end); i >= 0 {
				return gpu.HostKill{PID: n, Name: rest[:i]}, true
			}
		}
		return gpu.HostKill{}, false
	}
	return gpu.HostKill{}, false
}

// parseGroup parses the line after which every process of a cgroup is ended: the lines on each do not name it.
func parseGroup(text string) (path string, ok bool) {
	path, ok = strings.CutPrefix(text, "Tasks in ")
	if !ok {
		return "", false
	}
	return strings.CutSuffix(path, " are going to be killed due to memory.oom.group set")
}
