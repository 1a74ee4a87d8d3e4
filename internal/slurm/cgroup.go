package slurm

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"
)

// OwnerOfCgroup returns the job that the text of a /proc/PID/cgroup belongs to, in every layout Slurm has used:
//
//	v1           /slurm[_NODE]/uid_U/job_N[/step_S[/task_T]]
//	v2           /system.slice/[NODE_]slurmstepd.scope/job_N/step_S/{user/…,slurm}
//	CgroupByRun  /system.slice/[NODE_]slurmstepd.scope/SLUID/step_S/{user/…,slurm}
//
// anywhere below a container's or virtual machine's own directories.
//
// Threat: a process may name its own cgroup to pass for another job's. A job may own directories below its own, so the
// outermost job of a path counts. Below a user's systemd manager (user@UID.service) every name is the user's choice and
// none counts. If lines name different jobs the result names none, and Conflict has the reason.
func OwnerOfCgroup(text string) Owner {
	var owner Owner
	for path := range CgroupPaths(text) {
		if owner = owner.with(ownerOfPath(path)); owner.Conflict != "" {
			break
		}
	}
	return owner
}

func CgroupPaths(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for line := range strings.Lines(text) {
			_, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":") // hierarchy
			_, path, ok := strings.Cut(rest, ":")                          // controllers
			if ok && !yield(strings.TrimSuffix(path, " (deleted)")) {      // of a zombie on v2
				return
			}
		}
	}
}

// StepCgroup returns the cgroup (v2) of the job of a process and the name of its step's in it, or nothing.
func StepCgroup(text string) (job, step string) {
	path, v2 := strings.CutPrefix(text, "0::")
	step = "step_" + OwnerOfCgroup(text).Step
	job, _, in := strings.Cut(path, "/"+step+"/")
	if !v2 || !in {
		return "", ""
	}
	return job, step
}

// UserManager reports whether part is a user's systemd manager: below it every name is the user's choice.
func UserManager(part string) bool {
	return strings.HasPrefix(part, "user@") && strings.HasSuffix(part, ".service")
}

// InJob reports whether a hook's own /proc/self/cgroup is in a job: for root's hooks that is PrologFlags=RunInJob.
func InJob(ownCgroup string) bool {
	owner := OwnerOfCgroup(ownCgroup)
	return owner.Found() || owner.Conflict != ""
}

// Name returns the job as its cgroup names it: its id, else its SLUID, else nothing.
func (o Owner) Name() string {
	if o.ID == 0 {
		return string(o.SLUID)
	}
	return fmt.Sprint(o.ID)
}

func (o Owner) Found() bool { return o.ID != 0 || o.SLUID != "" }

// Elsewhere reports whether the job belongs to another of several nodes that share a host.
func (o Owner) Elsewhere(node string) bool { return o.Node != "" && node != "" && o.Node != node }

// Same reports whether both are one job: by SLUID if both have one, because a job id may be used again.
func (o Owner) Same(p Owner) bool {
	if o.Elsewhere(p.Node) {
		return false
	}
	if o.SLUID != "" && p.SLUID != "" {
		return o.SLUID == p.SLUID
	}
	return o.ID != 0 && o.ID == p.ID
}

// Then merges a process's owners in two samples: one whose cgroup no longer names a job is still that job's.
func (o Owner) Then(now Owner) Owner {
	now.Step, now.Daemon = "", false
	switch {
	case o.Conflict != "":
		return o
	case now.Conflict != "":
		return Owner{Conflict: now.Conflict}
	case !now.Found():
		return o
	case o.Found() && !o.Same(now):
		return Owner{Conflict: "its cgroup named two jobs, one after the other"}
	}
	return now
}

// with merges the owner in another line of the same process: on cgroup v1 some lines end at the job.
func (o Owner) with(next Owner) Owner {
	switch {
	case !next.Found():
		return o
	case !o.Found():
		return next
	case o.ID != next.ID || o.SLUID != next.SLUID || o.Node != next.Node:
		return Owner{Conflict: fmt.Sprintf("cgroups name two jobs, %s and %s", o.Name(), next.Name())}
	}
	o.Step = cmp.Or(o.Step, next.Step)
	o.Daemon = o.Daemon || next.Daemon
	return o
}

func ownerOfPath(path string) Owner {
	parts := strings.Split(path, "/")
	for i, part := range parts {
		if part == "user.slice" || UserManager(part) {
			return Owner{}
		}
		if owner := ownerOfPart(parts[:i], part); owner.Found() {
			owner.Step, owner.Daemon = stepOf(parts[i+1:])
			return owner
		}
	}
	return Owner{}
}

// ownerOfPart parses one directory's name as a job, which it is only in a directory of Slurm's.
func ownerOfPart(above []string, part string) Owner {
	n := len(above)
	if n == 0 {
		return Owner{}
	}
	node, scope := strings.CutSuffix("_"+above[n-1], "_slurmstepd.scope")
	node = strings.TrimPrefix(node, "_")
	v1 := n > 1 && strings.HasPrefix(above[n-2], "slurm") && isNumbered(above[n-1], "uid_")
	if v1 {
		_, node, _ = strings.Cut(above[n-2], "_")
	}
	if scope && ValidSLUID(part) {
		return Owner{SLUID: SLUID(part), Node: node}
	}
	number, ok := strings.CutPrefix(part, "job_")
	if id, _ := ParseJobID(number); ok && id != 0 && (scope || v1) {
		return Owner{ID: id, Node: node}
	}
	return Owner{}
}

// maxStep is longer than any name of a step: a number or a word and, in a heterogeneous job, "+" and the component.
const maxStep = 32

// stepOf parses the path below a job. On v2 slurmstepd is in the step's "slurm", the user's processes in "user".
func stepOf(below []string) (step string, daemon bool) {
	if len(below) == 0 {
		return "", false
	}
	name, ok := strings.CutPrefix(below[0], "step_")
	if !ok || name == "" || len(name) > maxStep || !only(name, "+") {
		return "", false
	}
	return name, len(below) > 1 && below[1] == "slurm"
}

func isNumbered(s, prefix string) bool {
	number, is := strings.CutPrefix(s, prefix)
	_, ok := decimal(number)
	return is && ok
}

// maxUnit bounds the name of a unit; the kernel bounds the name of a directory at 255.
const maxUnit = 128

// UnitOfCgroup returns the systemd service or the container in a /proc/PID/cgroup without a job. One in user.slice is
// never a service, whatever another hierarchy of cgroup v1 contains; names below a user's manager do not count.
func UnitOfCgroup(text string) (service, container string) {
	users := false
	for path := range CgroupPaths(text) {
		parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
		service, container = cmp.Or(service, serviceOf(parts)), cmp.Or(container, containerOf(parts))
		users = users || parts[0] == "user.slice"
	}
	switch {
	case container != "":
		return "", container
	case users:
		return "", ""
	}
	return service[:min(len(service), maxUnit)], ""
}

// serviceOf returns the unit that systemd put a process into: the first below system.slice and its sub-slices.
func serviceOf(parts []string) string {
	own := func(part string) bool { return !strings.HasSuffix(part, ".slice") }
	i := slices.IndexFunc(parts, own)
	if parts[0] != "system.slice" || i < 0 || !strings.HasSuffix(parts[i], ".service") || ofUsers(parts[i]) {
		return ""
	}
	return parts[i]
}

// ofUsers reports whether a unit runs users' programs: Slurm's own, users' managers, and login and cron services.
func ofUsers(unit string) bool {
	name, _, _ := strings.Cut(strings.TrimSuffix(unit, ".service"), "@")
	switch name {
	case "user", "ssh", "sshd", "cron", "crond", "anacron", "atd":
		return true
	}
	return strings.Contains(unit, "slurmd") || strings.Contains(unit, "slurmstepd")
}

// containerOf returns the outermost container, found by the 64 hexadecimal digits at the end of its cgroup's name.
func containerOf(parts []string) string {
	const idLen, shown = 64, 12 // length of an id, and how much of it container tools show
	above := ""
	for _, part := range parts {
		if UserManager(part) {
			return ""
		}
		name := strings.TrimSuffix(part, ".scope")
		engine, id := "", name
		if at := strings.LastIndexAny(name, "-:"); at >= 0 {
			engine, id = name[:at], name[at+1:]
		}
		isID := len(id) == idLen && strings.Trim(id, "0123456789abcdef") == ""
		if isID && !strings.HasSuffix(engine, "conmon") { // podman's monitor is outside the container
			return cmp.Or(engines[cmp.Or(engine, above)], "container") + ":" + id[:shown]
		}
		above = part
	}
	return ""
}

// engines are tools by what stands before a container's id, in the name of its cgroup or as the cgroup above it.
var engines = map[string]string{"docker": "docker", "libpod": "podman"}
