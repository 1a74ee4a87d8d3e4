package answer

import (
	"fmt"
	"time"

	"bookend/internal/attrib"
)

// newProcess is what /proc said of one; at turns time since boot into a wall time.
func newProcess(p attrib.Process, at func(time.Duration) time.Time) Process {
	n := Process{
		PID: p.PID, Name: text(p.Name), Gone: p.Gone, Job: text(p.Cgroup.Name()), Service: text(p.Service),
		Container: text(p.Container), Open: []string{}, State: text(p.State),
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
