package stage

import (
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"bookend/internal/gpu"
	"bookend/internal/joblog"
)

// addressSpace is the soft limit of address space of the job's tasks, bytes, joblog.Unlimited for none and 0 where nobody
// can tell. slurmstepd limits a task only after its TaskProlog has run, and never the TaskEpilog (seen with 22.05): what
// Slurm carries from the submitting host stands in the environment of both, marked with a U where the user asked for it
// (--propagate). Where it carries nothing a task has slurmstepd's own limit, as this process does. A limit that the
// script sets for itself shows nowhere.
func (t *task) addressSpace() uint64 {
	if carried := t.env.Getenv("SLURM_RLIMIT_AS"); carried != "" {
		n, err := strconv.ParseUint(strings.TrimPrefix(carried, "U"), 10, 64)
		if err != nil {
			return 0
		}
		return min(n, joblog.Unlimited)
	}
	var own unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_AS, &own); err != nil {
		return 0
	}
	return min(own.Cur, joblog.Unlimited)
}

// addressSpace is what a task hook of the job left about it: the user's claim.
func addressSpace(drop *joblog.Drop) gpu.Figure {
	if drop == nil || drop.AddressSpace == 0 {
		return gpu.Unknown("no task hook of the job told its limit of address space")
	}
	return gpu.Bytes(drop.AddressSpace)
}
