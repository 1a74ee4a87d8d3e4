package report

import (
	"fmt"

	"bookend/internal/finding"
	"bookend/internal/slurm"
)

// MaxReason is the longest drain reason. "sinfo -R" shows the first 20 characters: the code and the GPU.
const MaxReason = 120

// Reason is the drain reason for a finding: code, GPU, bytes, holder, job, hook; remedy. No name that a user
// chose is in it, and no bracket: Slurm puts who and when in brackets behind it.
func Reason(f finding.Finding, job slurm.JobID, phase slurm.Context) Safe {
	text := string(f.Code)
	if f.Index != nil {
		text += fmt.Sprintf(" gpu=%d", *f.Index)
	}
	if f.Bytes.Known() && f.Bytes.Bytes > 0 {
		text += fmt.Sprintf(" %dMiB", f.Bytes.Bytes>>20)
	}
	if f.Holder != nil {
		text += fmt.Sprintf(" pid=%d", f.Holder.PID)
	}
	hook := "epilog"
	if phase == slurm.Prolog {
		hook = "prolog"
	}
	text += fmt.Sprintf(" job=%d %s; see: bookend show %d", job, hook, job)
	return Clean(text, MaxReason)
}
