package diagnosis

import (
	"slices"

	"bookend/internal/catalog"
	"bookend/internal/gpu"
	"bookend/internal/record"
)

// inOrder judges, for a job that failed, whether its GPUs were in order from its start to its end. It is yes only if
// everything that tells was read and nothing was found; a test allocation that was due and not made is named with it.
func inOrder(e evidence) record.Cause {
	if failed(e.in.Job.Exit) == "" {
		return record.Cause{}
	}
	c := seenInOrder(e)
	lead := map[record.Answer]string{record.Yes: "The GPUs were in order ", record.No: "The GPUs were not in order: ",
		record.CannotTell: "Whether the GPUs were in order is not known: "}
	c.Name, c.Evidence = record.InOrder, lead[c.Answer]+c.Evidence
	return c
}

func seenInOrder(e evidence) record.Cause {
	for _, f := range slices.Concat(e.in.StartFindings, e.in.Findings) {
		entry, known := catalog.Lookup(f.Code)
		switch {
		case f.Unknown != "", !known, entry.Scope == catalog.Own && entry.Severity != catalog.Note:
			return cannotTell(entry.Title)
		case entry.Severity != catalog.Note:
			return no(entry.Title)
		}
	}
	if why := notRead(e); why != "" {
		return cannotTell(why)
	}
	text := "from start to end"
	if i := slices.IndexFunc(e.in.Probes, gpu.Probe.Untested); i >= 0 {
		text += "; not tested by an allocation: " + e.in.Probes[i].Why
	}
	return yes(text)
}

// notRead returns what is not known of the job's GPUs between its start and its end, "" if nothing.
func notRead(e evidence) string {
	partly := func(h gpu.Health) bool {
		return slices.ContainsFunc(h.Facts, func(f gpu.Fact) bool { return f.Unknown != "" })
	}
	why := unread(e)
	switch {
	case why != "":
		return why
	case slices.ContainsFunc(e.in.Health, partly):
		return "part of the GPUs' condition could not be read"
	case e.kernel.Mismatch != "", logged(e):
		return "the kernel log has an error that may be of these GPUs"
	case len(e.faults) > 0 && !e.faults[0].ofProgram():
		return "the job's output reports " + e.faults[0].Claim
	case e.spread:
		return "the GPUs of other nodes are not known"
	}
	for _, c := range e.in.Cards {
		if !cleanAt(e.in.Start, c.Device.ID) || !cleanAt(e.in.End, c.Device.ID) {
			return "not every GPU was seen clean at both ends"
		}
	}
	return ""
}

func cleanAt(s *record.Side, id gpu.ID) bool { return s != nil && s.Curves[id].State == record.Clean }
