package answer

import (
	"fmt"
	"time"

	"bookend/internal/attrib"
	"bookend/internal/slurm"
)

// newProcess is what /proc said of one; at turns time since boot into a wall time.
func newProcess(p attrib.Process, at func(time.Duration) time.Time) Process {
	n := Process{
		PID: p.PID, Name: text(p.Name), Gone: p.Gone, Job: ownerName(p.Cgroup), Service: text(p.Service), Container: text(p.Container), Open: []string{}, State: text(p.State),
	}
	if p.EnvJobID != 0 && n.Job == "" {
		n.Hint = fmt.Sprint(p.EnvJobID)
	}
	switch {
	case p.Gone:
		n.Unknown.because("uid", "the process is gone")
	case p.Why != "":
		n.Unknown.because("uid", p.Why)
	default:
		uid := p.UID
		n.UID = &uid
	}
	if p.Start > 0 {
		n.StartedAt = moment(at(p.Start))
	} else {
		n.Unknown.because("started_at", "not read")
	}
	return n
}

// ownerName names a job as its cgroup does; empty for none.
func ownerName(o slurm.Owner) string {
	switch {
	case o.ID != 0:
		return fmt.Sprint(o.ID)
	case o.SLUID != "":
		return text(string(o.SLUID))
	}
	return ""
}
