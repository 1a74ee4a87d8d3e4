package stage

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"bookend/internal/attrib"
	"bookend/internal/config"
	"bookend/internal/diagnosis"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/ledger"
	"bookend/internal/report"
	"bookend/internal/slurm"
)

// scene gathers what a comparison is made of.
func (h *hook) scene(self ledger.Run) finding.Scene {
	s := finding.Scene{
		Job: h.job, Cards: h.cards, Before: h.before, Now: h.now, Limits: h.limits(), Baselines: h.baselines,
	}
	if h.inJob {
		s.Doubt = insideDoubt
	}
	if h.now.AtRest(h.cards) && !h.neighbourListed() {
		return s // the ledger answers whose something is; on clean cards nobody asks
	}
	h.who(&s, self)
	return s
}

// who adds who may use the cards, and who did.
func (h *hook) who(s *finding.Scene, self ledger.Run) {
	book := h.ledger(self)
	s.Self, s.Others, s.Left = book.Self, book.Others, book.Left
	if h.phase == slurm.Epilog && self.Mistakable(h.runs, h.job, h.now.Snapshot.At, twice) {
		s.RunDoubt = twiceDoubt
	}
	s.RunDoubt = cmp.Or(s.RunDoubt, h.unread)
	s.Shared, s.SharedUnknown = h.shared()
}

// twice is how long after a run's end a second epilog of it is to be reckoned with, where Slurm does not say which run one is
// for: those seen came at once. A requeued job that ends within that time is drained for only once Slurm says more (23.02).
const twice = 5 * time.Minute

const twiceDoubt = "Slurm does not say which run of the job this end is for, and an earlier one has just ended"

const insideDoubt = "this hook runs inside the job and sees only part of the node"

func (h *hook) limits() finding.Limits { return Limits(h.cfg.Thresholds) }

// Limits are the configured thresholds as findings are made by them.
func Limits(t config.Thresholds) finding.Limits {
	return finding.Limits{Report: uint64(t.Report), Drain: uint64(t.Drain), PerClient: uint64(t.PerClient)}
}

// neighbourListed reports whether a process is on one of the node's other cards.
func (h *hook) neighbourListed() bool {
	if h.now.Neighbours == nil {
		return false
	}
	return slices.ContainsFunc(h.now.Neighbours.Readings, func(r gpu.Reading) bool { return len(r.Processes) > 0 })
}

// end is this hook's part of the job's record.
func (h *hook) end() ledger.End {
	e := ledger.End{
		At: h.now.Snapshot.At, Wall: h.env.Clock.Wall(), Snapshot: h.now.Snapshot, Curves: h.now.Curves,
		Scan: h.now.Scan, Neighbours: h.now.Neighbours, Health: ledger.Accounts(h.health, h.began), Kernel: h.kernel, Messages: h.said.messages, Outputs: h.said.outputs, Diagnosis: h.why,
		Probes: h.probes, Findings: h.found, Verdict: h.verdict, Report: joined(h.text),
	}
	if e.At == 0 {
		e.At = h.env.Clock.Boot()
	}
	e.SlurmConf = h.slurmConf()
	for _, p := range h.now.Processes {
		e.Processes = append(e.Processes, p)
	}
	return e
}

// slurmConf is what a hook that asks for a drain leaves for the health check, which looks after it.
func (h *hook) slurmConf() string {
	const most = 4 << 10 // PATH_MAX
	conf := h.env.Getenv("SLURM_CONF")
	if h.exit.Load() == 0 || len(conf) >= most {
		return ""
	}
	return conf
}

func (h *hook) report() report.Scene {
	return report.Scene{
		Node: h.job.Node, Job: h.job, Cards: slices.Concat(h.cards, h.unseen), Now: h.now, Before: h.before, Probes: h.probes, Findings: h.found, Verdict: h.verdict,
		Why: h.told(), Privacy: h.cfg.JobLog.Privacy, WallNow: h.env.Clock.Wall(), BootNow: h.env.Clock.Boot(),
	}
}

// told is the answer as far as the job's owner is to read it; the record has it in any case.
func (h *hook) told() *diagnosis.Diagnosis {
	if h.cfg.JobLog.Why == config.Never {
		return nil
	}
	return h.why
}

// side turns one end of a record back into what was seen.
func side(e ledger.End) *finding.Side {
	s := &finding.Side{Snapshot: e.Snapshot, Curves: e.Curves, Processes: map[int]attrib.Process{}, Scan: e.Scan, Neighbours: e.Neighbours}
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
