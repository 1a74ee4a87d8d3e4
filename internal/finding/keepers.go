package finding

import (
	"bookend/internal/attrib"
	"bookend/internal/slurm"
)

// Keepers selects the processes outside of jobs and services that have the driver open: memory without a process may be
// theirs, and does not drain while they do. A process in the cgroup of a known job is none: it ends with that job, or is
// a leftover. What its environment says proves no job. Processes of this backend come and go. Unread is how many could
// not be looked into.
func Keepers(holdings []attrib.Holding, backend string, known func(slurm.Owner) bool) (keep []attrib.Holding, unread int) {
	for _, h := range holdings {
		switch {
		case h.Gone, h.Exe == backend, h.Cgroup.Found() && known(h.Cgroup):
		case h.Why != "", h.Cgroup.Conflict != "":
			unread++
		case h.OfSystem(), h.OfMPS() && !h.Cgroup.Found():
		default:
			keep = append(keep, h)
		}
	}
	return keep, unread
}
