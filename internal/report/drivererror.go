package report

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/gpu"
	"bookend/internal/record"
)

// Numbers of errors that need words of their own.
const (
	xidCleanUp   = 45 // of a program that was ended, for whatever reason
	xidContained = 94 // it does not call for a reset, but ended a program
)

// ofDriver reports a finding about an error in the kernel log whose number is known.
func ofDriver(f record.Finding) bool {
	return (f.Code == catalog.Xid || f.Code == catalog.XidFatal) && f.Xid != 0 && f.Unknown == ""
}

// notOfProgram reports an error that hardware, driver or a link caused, as far as its number tells.
func notOfProgram(f record.Finding) bool {
	return ofDriver(f) && f.Cause() != catalog.ByProgram && f.Cause() != catalog.Unclear
}

// isConsequence reports an error that tells the job's owner nothing: the clean-up of a program that the owner ended, or
// that another error on the same GPU explains.
func isConsequence(s Scene, f record.Finding) bool {
	explains := func(o record.Finding) bool { return ofDriver(o) && o.Xid != xidCleanUp && o.GPU == f.GPU }
	cancelled := s.Cancelled && f.CausedBy == 0
	return ofDriver(f) && f.Xid == xidCleanUp && (cancelled || slices.ContainsFunc(s.Findings, explains))
}

// broke reports an error after which work on the GPU is lost.
func broke(f record.Finding) bool {
	e, _ := f.DriverError()
	return notOfProgram(f) && (f.Code == catalog.XidFatal && e.Doubt == "" || f.Xid == xidContained)
}

// fault returns whose fault it was and what the owner can do, for a finding about the job's own time; nil if unknown.
func (s Scene) fault(f record.Finding) []string {
	other := func(o record.Finding) bool { return notOfProgram(o) && o.GPU == f.GPU }
	switch {
	case broke(f) && (f.Xid != xidContained || !amongJobs(s, f)),
		slices.Contains([]catalog.Code{catalog.Lost, catalog.ECC, catalog.Bits}, f.Code) && f.Unknown == "":
		return []string{fmt.Sprintf("  This was not your code. %s; your admins see it too", nextStep(s))}
	case !ofDriver(f), f.Xid == xidCleanUp && f.CausedBy == 0:
	case notOfProgram(f):
		return []string{"  No program causes this. Whether it ended your job cannot be told. Your admins see it too"}
	case slices.ContainsFunc(s.Findings, other):
		return []string{"  This may be a consequence of the other error"}
	case f.Cause() == catalog.ByProgram && amongJobs(s, f):
		return []string{"  A program's error, not the GPU's: of your job, or of another on the same GPU"}
	case f.Cause() == catalog.ByProgram:
		return []string{"  A program's error, most likely your own, not the GPU's. Try: compute-sanitizer, or " +
			"CUDA_LAUNCH_BLOCKING=1"}
	default:
		return []string{"  Whether a program or the GPU caused it cannot be told. If other nodes have it too, look " +
			"at your program"}
	}
	return nil
}

// amongJobs reports whether others had the GPU, or may have had it, when a program met an error on it: by intent, by
// what the recorder saw, or by a process that is there at the end.
func amongJobs(s Scene, f record.Finding) bool {
	ofOthers := func(o record.RecordedFault) bool { return o.Code == f.Xid && len(o.Jobs) > 0 }
	stranger := func(p record.RecordedProcess) bool {
		return !s.Run.Owns(p.Owner) && (p.Owner.Found() || p.UID != 0 && p.Service == "" && !s.Run.MayOwn(p))
	}
	there := func(o record.Finding) bool {
		return o.GPU == f.GPU && o.Holder != nil && !o.Holder.Gone && !o.Holder.OfSystem() &&
			!s.reader().owns(o.Holder, o.Owner)
	}
	return s.Shared || slices.ContainsFunc(s.Findings, there) ||
		slices.ContainsFunc(cmp.Or(s.Recording, &record.Recording{}).GPUs, func(g record.GPURecording) bool {
			return g.ID == f.GPU &&
				(slices.ContainsFunc(g.Faults, ofOthers) || slices.ContainsFunc(g.Processes, stranger))
		})
}

// during says when an error of the job's time was: the kernel log is read from the job's start to where its end begins,
// and has a clock of its own, so only the recorder tells more.
func during(s Scene, f record.Finding) moment {
	ago := (s.Ended - f.Seen).Round(time.Second)
	if f.Seen == 0 || ago < time.Second {
		return "during your job"
	}
	return moment(fmt.Sprintf("%v before your job ended", ago))
}

// nextStep returns what the owner of a job that met a fault can do, by how the job ended.
func nextStep(s Scene) string {
	exit, exclude := s.Run.Job.Exit, "sbatch --exclude="+s.Run.Job.Node
	switch {
	case !exit.Known || s.Cancelled:
		return "If your job failed: " + exclude
	case exit.Raw == 0 && exit.Derived == 0:
		return "Check your results"
	}
	return "Resubmit: " + exclude
}

func errorOf(f record.Finding) string {
	kind := "an error of an unknown kind"
	if e, known := f.DriverError(); known {
		kind = e.Meaning
	}
	return fmt.Sprintf("%s (%s)", kind, gpu.Error(f.Xid))
}
