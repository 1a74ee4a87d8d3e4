package report

import (
	"fmt"

	"bookend/internal/finding"
)

// process names a process as far as its reader may know it.
func (s Scene) process(h *finding.Holder, owner *finding.Owner) string {
	switch {
	case h.Why != "":
		return "a process that could not be looked up"
	case s.yours(h, owner):
		return fmt.Sprintf("process %d (%s) since %s", h.PID, Clean(h.Name, 32), s.clockTime(h.Start))
	case h.UID == s.Job.UID && owner == nil:
		return "a process that is not known to be yours"
	}
	return "a process that is not yours"
}

// yours reports whether a process is the reader's: by its UID and, where that is known, by the job that it is of. In a
// container the UID alone names no user. An owner's UID is 0 where there is no record of its job.
func (s Scene) yours(h *finding.Holder, owner *finding.Owner) bool {
	switch {
	case h.UID != s.Job.UID:
		return false
	case owner != nil && owner.UID != 0:
		return owner.UID == s.Job.UID
	}
	return !h.Apart()
}
