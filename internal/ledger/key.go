package ledger

import (
	"strconv"
	"strings"

	"bookend/internal/slurm"
)

// NewKey returns a run's key: its SLUID (slurm.TellsRun), start time (slurm.TellsStart), or when it was first seen.
func (r Run) NewKey() string {
	if r.Job.SLUID != "" {
		return string(r.Job.SLUID)
	}
	if !r.Job.Start.IsZero() {
		return "t" + strconv.FormatInt(max(0, r.Job.Start.Unix()), 10)
	}
	return "w" + strconv.FormatInt(max(0, r.First().Wall.UnixNano()), 10)
}

// ValidKey reports whether a text is the key of a run, and may be part of a path.
func ValidKey(s string) bool {
	if slurm.ValidSLUID(s) {
		return true
	}
	if len(s) < 2 || len(s) > 20 || s[0] != 't' && s[0] != 'w' {
		return false
	}
	return strings.Trim(s[1:], "0123456789") == ""
}
