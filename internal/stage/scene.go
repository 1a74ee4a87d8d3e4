package stage

import (
	"strings"

	"bookend/internal/attrib"
	"bookend/internal/finding"
	"bookend/internal/ledger"
	"bookend/internal/report"
	"bookend/internal/settle"
)

// scene gathers what a comparison is made of.
func (h *hook) scene(self ledger.Run) finding.Scene {
	var book ledger.Book
	if !h.atRest() { // the ledger answers whose something is; on clean cards nobody asks
		book = h.ledger(self)
	}
	s := finding.Scene{
		Job: h.job, Cards: h.cards, Before: h.before, Now: h.now,
		Self: book.Self, Others: book.Others, Left: book.Left, Shared: h.shared(),
		Limits: finding.Limits{
			Report: uint64(h.cfg.Thresholds.Report), Drain: uint64(h.cfg.Thresholds.Drain), PerClient: uint64(h.cfg.Thresholds.PerClient),
		},
	}
	if h.inJob {
		s.Doubt = "this hook runs inside the job and sees only part of the node"
	}
	return s
}

// atRest reports whether every card was seen, and seen clean.
func (h *hook) atRest() bool {
	for _, c := range h.cards {
		if h.now.Curves[c.Device.ID].State != settle.Clean {
			return false
		}
	}
	return true
}

// end is this hook's part of the job's record.
func (h *hook) end() ledger.End {
	e := ledger.End{
		At: h.now.Snapshot.At, Wall: h.env.Clock.Wall(), Snapshot: h.now.Snapshot, Curves: h.now.Curves,
		Findings: h.found, Verdict: h.verdict, Report: joined(h.text),
	}
	if e.At == 0 {
		e.At = h.env.Clock.Boot()
	}
	for _, p := range h.now.Processes {
		e.Processes = append(e.Processes, p)
	}
	return e
}

func (h *hook) report() report.Scene {
	return report.Scene{
		Node: h.job.Node, Job: h.job, Cards: h.cards, Now: h.now, Before: h.before, Findings: h.found, Verdict: h.verdict,
		Privacy: h.cfg.JobLog.Privacy, WallNow: h.env.Clock.Wall(), BootNow: h.env.Clock.Boot(),
	}
}

// side turns one end of a record back into what was seen.
func side(e ledger.End) *finding.Side {
	s := &finding.Side{Snapshot: e.Snapshot, Curves: e.Curves, Processes: map[int]attrib.Process{}}
	for _, p := range e.Processes {
		s.Processes[p.PID] = p
	}
	return s
}

func joined(lines []report.Safe) string {
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(string(l) + "\n")
	}
	return b.String()
}
