package condition

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"bookend/internal/catalog"
	"bookend/internal/gpu"
	"bookend/internal/record"
)

// Look is what a hook or a health check has seen, as far as it says which fatal errors of GPUs stand.
type Look struct {
	Epoch  gpu.Epoch
	Kernel *gpu.KernelLog
	Cards  []record.Assigned
	Health []gpu.Health
	Known  record.Standing      // on record when the hook began
	Hook   record.StandingFault // its time, context and job
}

// Absorb adds the errors that a hook has read to those on record, and removes those that are over. Those of another
// epoch are void: a reboot or a reload of the driver may have cured the GPU.
func (l Look) Absorb(s record.Standing) record.Standing {
	log, epoch := l.Kernel, l.Epoch
	isRead := log != nil && log.Unknown == "" && log.Epoch.Same(epoch)
	lost := isRead && log.Lost && l.Hook.Job == 0 // a job's hook may have missed what a health check has read
	switch {
	case !epoch.Same(s.Epoch) && isRead:
		return record.Standing{Epoch: epoch, Mark: log.Last, Lost: lost}
	case !epoch.Same(s.Epoch):
		return s
	}
	s = Without(s, func(f record.StandingFault) bool { // one that is new here may be newer than the driver's answer
		return l.Known.Epoch.Same(epoch) && f.Xid.Seq <= l.Known.Mark.Seq && l.recovered(f)
	})
	for i, f := range s.Faults {
		s.Faults[i].GPU = cmp.Or(f.GPU, l.onBus(f.Xid.BusID))
	}
	if !isRead {
		return s
	}
	s.Lost = s.Lost || lost
	for _, x := range slices.Concat(log.Before, log.Xids) {
		e, _ := catalog.LookupXid(x.Code)
		if x.Seq > s.Mark.Seq && x.BusID != "" && e.OfGPU() {
			all := map[gpu.BusID]int{x.BusID: x.Code}
			maps.Copy(all, s.Errors)
			s.Errors = all
		}
		switch {
		case x.Seq <= s.Mark.Seq || x.BusID == "":
		case x.Code == recoveryChanged && x.Recovery == gpu.RecoveryActions[0]:
			s = Without(s, func(f record.StandingFault) bool { return f.Xid.BusID == x.BusID })
		case e.Code == catalog.XidFatal && e.Doubt == "":
			f := l.Hook
			f.Xid, f.GPU = x, l.onBus(x.BusID)
			s = with(s, f)
		}
	}
	if log.Last.Seq > s.Mark.Seq {
		s.Mark = log.Last
	}
	return s
}

func (l Look) recovered(f record.StandingFault) bool {
	id := l.onBus(f.Xid.BusID)
	return slices.ContainsFunc(l.Health, func(h gpu.Health) bool {
		return id != "" && h.Device == id && needsNoRecovery(h)
	})
}

// onBus returns the GPU that the hook knows on a bus, empty for none.
func (l Look) onBus(bus gpu.BusID) gpu.ID {
	for _, card := range l.Cards {
		switch d := card.Device; {
		case d.BusID != bus:
		case d.Parent != "":
			return d.Parent
		default:
			return d.ID
		}
	}
	return ""
}

// needsNoRecovery reports whether the driver was asked whether a GPU needs recovery, and answered that it does not.
func needsNoRecovery(h gpu.Health) bool {
	return known(h, gpu.RecoveryAction) == gpu.RecoveryActions[0]
}

// earlier judges the fatal errors of one GPU that stand since before the job. found is what else was found on it. An
// error that is a finding of the job itself is no second one.
func (in Input) earlier(c record.Assigned, now gpu.Health, found []record.Finding) (out []record.Finding) {
	for _, s := range in.Standing {
		other := s.GPU != "" && s.GPU != c.Device.ID && s.GPU != c.Device.Parent // another GPU was in its place then
		again := func(f record.Finding) bool { return f.Xid == s.Xid.Code }
		if s.Xid.BusID != c.Device.BusID || other || needsNoRecovery(now) || slices.ContainsFunc(found, again) {
			continue
		}
		f := about([]gpu.Xid{s.Xid})
		f.Observed += fmt.Sprintf(", found by %s; nothing shows that it is over", finderOf(s))
		f.Earlier, f.Expected = true, "no error that stands since before the job"
		switch {
		case s.Drained:
			f.AddDoubt(drainedBefore)
		case !stillHolds(s, found):
			f.AddDoubt("the driver does not say whether the GPU was reset since")
		}
		out = append(out, f)
	}
	return out
}

// stillHolds reports whether an earlier error is known not to be over: the driver asks for a recovery of the GPU, or it
// fell off the bus, which only a reboot mends. A GPU that the driver has lost is a finding of its own, which drains.
func stillHolds(s record.StandingFault, found []record.Finding) bool {
	asks := func(f record.Finding) bool {
		return f.Code == catalog.Recovery && f.Unknown == "" && len(f.Doubts) == 0
	}
	return s.Xid.Code == fallenOffTheBus || s.Xid.Code == gpu.BusLost || slices.ContainsFunc(found, asks)
}

// with adds a fault, unless one with the same code on the same GPU stands for which the node was not drained.
func with(s record.Standing, f record.StandingFault) record.Standing {
	same := func(o record.StandingFault) bool { return o.Xid.BusID == f.Xid.BusID && o.Xid.Code == f.Xid.Code }
	if i := slices.IndexFunc(s.Faults, same); i >= 0 && !s.Faults[i].Drained {
		return s
	}
	s = Without(s, same)
	s.Faults = append(s.Faults, f)
	return s
}

// OnRecord returns a test for errors on record. One more of a code for which no node was drained adds nothing.
func OnRecord(s record.Standing, now gpu.Epoch) func(gpu.Xid) bool {
	return func(x gpu.Xid) bool {
		return s.Epoch.Same(now) && slices.ContainsFunc(s.Faults, func(f record.StandingFault) bool {
			return f.Xid.BusID == x.BusID && f.Xid.Code == x.Code && (!f.Drained || x.Seq <= f.Xid.Seq)
		})
	}
}

func Without(s record.Standing, over func(record.StandingFault) bool) record.Standing {
	s.Faults = slices.DeleteFunc(slices.Clone(s.Faults), over)
	return s
}

// DescribeStanding describes in one line the faults that count in an epoch, empty for none.
func DescribeStanding(s record.Standing, now gpu.Epoch) string {
	var all []string
	for _, f := range s.Faults {
		e, _ := catalog.LookupXid(f.Xid.Code)
		words := fmt.Sprintf("GPU %s: %s (%s), found by %s", f.Xid.BusID, gpu.Error(f.Xid.Code), e.Meaning, finderOf(f))
		if f.Drained {
			words += "; the node was drained for it"
		}
		if s.Epoch.Same(now) {
			all = append(all, words)
		}
	}
	return strings.Join(all, "; ")
}

// finderOf names the hook that found it.
func finderOf(f record.StandingFault) string {
	if f.Job == 0 {
		return "a health check"
	}
	return fmt.Sprintf("the %s of job %d", strings.ToLower(strings.TrimSuffix(string(f.Hook), "_slurmd")), f.Job)
}
