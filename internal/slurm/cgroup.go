package slurm

import (
	"fmt"
	"strings"
)

// OwnerOfCgroup names the job that the text of a /proc/PID/cgroup belongs to, in every layout Slurm has used:
//
//	v1           /slurm[_NODE]/uid_U/job_N[/step_S[/task_T]]
//	v2           /system.slice/[NODE_]slurmstepd.scope/job_N/step_S/{user/…,slurm}
//	v2, 26.05    /system.slice/[NODE_]slurmstepd.scope/SLUID/step_S/{user/…,slurm}
//
// anywhere below a container's or virtual machine's own folders.
//
// The threat is a process that names its own cgroup so as to pass for another job's. A job may own folders below
// its own, so the outermost job of a path counts. Below a user's systemd manager (user@UID.service) every name
// is the user's choice and none counts. Lines that name different jobs name none: Owner.Conflict says so.
func OwnerOfCgroup(text string) Owner {
	var owner Owner
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		_, rest, _ := strings.Cut(line, ":")  // hierarchy
		_, path, ok := strings.Cut(rest, ":") // controllers
		if !ok {
			continue
		}
		owner = owner.with(ownerOfPath(path))
		if owner.Conflict != "" {
			break
		}
	}
	return owner
}

// InJob reports whether the text of a hook's own /proc/self/cgroup lies in a job: for a prolog or epilog, that
// is PrologFlags=RunInJob.
func InJob(ownCgroup string) bool {
	owner := OwnerOfCgroup(ownCgroup)
	return owner.Found() || owner.Conflict != ""
}

// Name is the job as its cgroup names it: by SLUID where that is all there is; empty for none.
func (o Owner) Name() string {
	if o.ID == 0 {
		return string(o.SLUID)
	}
	return fmt.Sprint(o.ID)
}

// Found reports whether a job was named.
func (o Owner) Found() bool { return o.ID != 0 || o.SLUID != "" }

// job names the owner's job in words.
func (o Owner) job() string {
	if o.SLUID != "" {
		return string(o.SLUID)
	}
	return fmt.Sprint(o.ID)
}

// with joins what another line of the same process said. On cgroup v1 some lines stop at the job and only some
// name a step.
func (o Owner) with(next Owner) Owner {
	switch {
	case !next.Found():
		return o
	case !o.Found():
		return next
	case o.ID != next.ID || o.SLUID != next.SLUID:
		return Owner{Conflict: fmt.Sprintf("cgroups name two jobs, %s and %s", o.job(), next.job())}
	}
	if o.Step == "" {
		o.Step = next.Step
	}
	o.Daemon = o.Daemon || next.Daemon
	return o
}

func ownerOfPath(path string) Owner {
	path = strings.TrimSuffix(path, " (deleted)") // a zombie's cgroup on v2
	parts := strings.Split(path, "/")
	for i, part := range parts {
		if part == "user.slice" || strings.HasPrefix(part, "user@") && strings.HasSuffix(part, ".service") {
			return Owner{}
		}
		if owner := ownerOfPart(parts[:i], part); owner.Found() {
			owner.Step, owner.Daemon = stepOf(parts[i+1:])
			return owner
		}
	}
	return Owner{}
}

// ownerOfPart reads one folder's name as a job, which it is only in a folder of Slurm's.
func ownerOfPart(above []string, part string) Owner {
	n := len(above)
	scope := n > 0 && (above[n-1] == "slurmstepd.scope" || strings.HasSuffix(above[n-1], "_slurmstepd.scope"))
	v1 := n > 1 && strings.HasPrefix(above[n-2], "slurm") && isNumbered(above[n-1], "uid_")
	if scope && ValidSLUID(part) {
		return Owner{SLUID: SLUID(part)}
	}
	number, ok := strings.CutPrefix(part, "job_")
	if !ok || !scope && !v1 {
		return Owner{}
	}
	id, ok := ParseJobID(number)
	if !ok {
		return Owner{}
	}
	return Owner{ID: id}
}

// stepOf reads the folders below a job. On v2 slurmstepd and the task epilog are in the step's "slurm", the
// user's processes in its "user".
func stepOf(below []string) (step string, daemon bool) {
	if len(below) == 0 {
		return "", false
	}
	name, ok := strings.CutPrefix(below[0], "step_")
	if !ok || !validStep(name) {
		return "", false
	}
	return name, len(below) > 1 && below[1] == "slurm"
}

// validStep reports whether s names a step as Slurm does: a number or a word, and for a step that spans the
// components of a heterogeneous job, "+" and the component.
func validStep(s string) bool {
	name, component, het := strings.Cut(s, "+")
	if _, ok := decimal(component); het && !ok {
		return false
	}
	switch name {
	case StepBatch, StepInteractive, "extern", "TBD":
		return true
	}
	_, ok := decimal(name)
	return ok
}

func isNumbered(s, prefix string) bool {
	number, ok := strings.CutPrefix(s, prefix)
	if !ok {
		return false
	}
	_, ok = decimal(number)
	return ok
}
