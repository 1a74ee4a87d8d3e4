package answer

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/ledger"
	"bookend/internal/slurm"
)

// Filter picks runs; an empty one picks all.
type Filter struct {
	GPU          string     // an index of Slurm's, a UUID, a bus id, or nvidiaN
	Job          *slurm.Ref // a job
	User         string     // a user's name or uid
	Code         code.Code  // something of this code was found
	Since, Until time.Time  // it was there at some time between the two; zero: without bound
	Failed       bool       // Slurm says that the job failed
	Found        bool       // something was found that policy does not hide
}

// Pick returns the runs that a filter lets through, in their order.
func (f Filter) Pick(runs []ledger.Run) []ledger.Run {
	var out []ledger.Run
	for _, r := range runs {
		if f.lets(r) {
			out = append(out, r)
		}
	}
	return out
}

func (f Filter) lets(r ledger.Run) bool {
	switch {
	case f.Job != nil && !Names(*f.Job, r):
	case f.User != "" && f.User != r.Job.User && f.User != fmt.Sprint(r.Job.UID):
	case f.GPU != "" && !slices.ContainsFunc(r.Devices, func(a ledger.Assigned) bool { return IsCard(a, f.GPU) }):
	case f.Failed && (!r.Job.Exit.Known || r.Job.Exit.Raw == 0):
	case f.Code != "" && !finds(r,
		func(_ ledger.End, _ int, found finding.Finding) bool { return found.Code == f.Code }):
	case f.Found && !finds(r, func(e ledger.End, i int, _ finding.Finding) bool { return e.Verdict.Tells(i) }):
	case !f.Since.IsZero() && r.Closed() && r.Last().Wall.Before(f.Since): // one that runs is there now
	case !f.Until.IsZero() && r.First().Wall.After(f.Until):
	default:
		return true
	}
	return false
}

func finds(r ledger.Run, is func(ledger.End, int, finding.Finding) bool) (yes bool) {
	every(r, func(e ledger.End, i int, f finding.Finding) { yes = yes || is(e, i, f) })
	return yes
}

// Names reports whether a reference, as people type it, is of this run.
func Names(ref slurm.Ref, r ledger.Run) bool {
	switch ref.Kind {
	case slurm.RefRun:
		return r.Job.SLUID == ref.SLUID
	case slurm.RefArray:
		return r.Display.Array.Master == ref.ID && r.Display.Array.Task == ref.Part
	case slurm.RefHet:
		return r.Job.HetJobID == ref.ID && r.Job.ID == ref.ID+slurm.JobID(ref.Part)
	}
	// An array's or a heterogeneous job's own id is the first, or the last, of its parts, and stands for all of them.
	return r.Job.ID == ref.ID || r.Display.Array.Master == ref.ID || r.Job.HetJobID == ref.ID
}

// IsCard reports whether somebody means this GPU of a job's: by Slurm's number, UUID, bus id, or as nvidiaN.
func IsCard(a ledger.Assigned, name string) bool {
	if n, err := strconv.Atoi(name); err == nil {
		return n == a.Index
	}
	return a.Device.Named(name) || name != "" && strings.EqualFold(name, string(a.Device.Parent))
}

// key tells one run of a node from all others.
func key(r ledger.Run) string { return number(uint32(r.Job.ID)) + "/" + r.Key }

func number(n uint32) string { return strconv.FormatUint(uint64(n), 10) }
