package judge

import (
	"fmt"
	"maps"
	"slices"

	"bookend/internal/attrib"
	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/health"
	"bookend/internal/ledger"
	"bookend/internal/slurm"
)

// Judgement is what a hook makes of its case: what was found, and the verdict on it as a record has both.
type Judgement struct {
	Found []finding.Finding
	finding.Verdict
}

// Judge makes it. What is found stays found: later cases of a hook only add.
func Judge(c Case) Judgement {
	found := slices.Concat(c.Faults, c.onCards())
	if c.Phase == slurm.Epilog {
		found = append(found, c.condition()...)
	}
	found = slices.Concat(found, c.Later, health.FoundByTests(c.Seen.Cards, c.Tests))
	return c.decide(found)
}

// With is the judgement with something more that was found, after everything that it was made of.
func (j Judgement) With(c Case, more ...finding.Finding) Judgement {
	return c.decide(slices.Concat(j.Found, more))
}

// Late is the judgement with what was found after the last word: it is told, and decides nothing.
func (j Judgement) Late(more ...finding.Finding) Judgement {
	j.Found, j.Judged = slices.Concat(j.Found, more), slices.Clone(j.Judged)
	for _, f := range more {
		action := config.Warn
		if entry, _ := code.Lookup(f.Code); entry.Severity == code.Note {
			action = config.Note
		}
		j.Judged = append(j.Judged, finding.Judged{Action: action})
	}
	return j
}

func (c Case) decide(found []finding.Finding) Judgement {
	found = c.repeated(found)
	return Judgement{found, finding.Decide(c.Config, c.Phase, c.Job, found)}
}

// repeated marks what the last other job met too, where policy asks for that.
func (c Case) repeated(found []finding.Finding) []finding.Finding {
	if c.Node == nil {
		return found
	}
	found = slices.Clone(found)
	for i, f := range found {
		found[i].Repeated = c.asksRepeat(f) && ledger.MetLast(c.Node.Runs, c.Self(), f)
	}
	return found
}

// AsksRepeat reports whether policy asks if the last other job met something too: that takes the node's records.
func (c Case) AsksRepeat(j Judgement) bool { return slices.ContainsFunc(j.Found, c.asksRepeat) }

func (c Case) asksRepeat(f finding.Finding) bool {
	return f.Unknown == "" && c.Config.Action(c.Phase, c.Job.Partition, f.Code) == config.Repeat
}

// Doubt says why the strongest of the findings that were to drain did not; empty where none was withheld. What is known
// is stronger than what is not, then more memory.
func (j Judgement) Doubt() (text string) {
	var best finding.Finding
	for i, f := range j.Found {
		known := (f.Unknown == "") == (best.Unknown == "") && f.Bytes.Bytes > best.Bytes.Bytes
		stronger := text == "" || f.Unknown == "" && best.Unknown != "" || known
		if why := j.Of(i).Why; why != "" && stronger {
			best, text = f, fmt.Sprintf("%s: %s", f.Code, why)
		}
	}
	return text
}

// onCards is what the comparison finds. Where processes were ended, what was found first counts as far as the look
// after that does not prove it gone.
func (c Case) onCards() []finding.Finding {
	if c.Cleaned == nil {
		return Compared(c.Scene(c.Seen.Side))
	}
	first := Compared(c.Scene(c.Cleaned.First))
	if !c.Cleaned.Looked {
		return append(first, c.Cleaned.Did...)
	}
	scene := c.Scene(c.Cleaned.After)
	return append(slices.Clone(c.Cleaned.Did), scene.Again(first, Compared(scene))...)
}

// Compared is what the scene shows of the job's own GPUs; others' are the health check's.
func Compared(s finding.Scene) []finding.Finding {
	return append(finding.Compare(s), untraced(s.Now)...)
}

func untraced(side finding.Side) []finding.Finding {
	if side.Scan == nil || side.Scan.Partial == "" {
		return nil
	}
	return []finding.Finding{finding.Unsure(code.Untraced, side.Scan.Partial)}
}

// StartOf is the start's view, void when the driver was reloaded or the node rebooted since, and at an end that is on
// record already: without a start time nobody can tell a second end from that of another run.
func StartOf(run ledger.Run, job slurm.Job, epoch gpu.Epoch) (*finding.Side, []finding.Finding) {
	switch {
	case run.Closed() && !run.Sure(job), run.Start == nil:
		return nil, nil
	case run.Epoch == (gpu.Epoch{}): // a prolog that got nowhere: its record says why
		return nil, nil
	case run.Epoch.Changed(epoch):
		const observed = "the driver was reloaded, or the node booted, since the job's start"
		return nil, []finding.Finding{finding.Saw(code.NoRecord, observed, "one epoch for a job")}
	case !run.Epoch.Same(epoch):
		const why = "whether the driver stayed loaded since the job's start: it told nothing of itself at one end"
		return nil, []finding.Finding{finding.Unsure(code.NoRecord, why)}
	}
	e := run.Start
	side := &finding.Side{
		Snapshot: e.Snapshot, Curves: e.Curves, Processes: make(map[int]attrib.Process, len(e.Processes)),
		Scan: e.Scan,
	}
	for _, p := range e.Processes {
		side.Processes[p.PID] = p
	}
	return side, nil
}

// Learn is what a start shows of the GPUs' baselines that is news.
func Learn(c Case) (news []finding.Baseline) {
	s := c.Scene(c.Seen.Side)
	if s.Shared != "" || s.Doubt != "" || !c.Seen.Epoch.Same(c.Seen.Epoch) { // one half known holds for nothing
		return nil
	}
	for _, card := range s.Cards {
		if b, is := s.Learn(card, c.Seen.Epoch); is {
			news = append(news, b)
		}
	}
	return news
}

// End is the case and its judgement as the record of one end of a job.
func (c Case) End(j Judgement) ledger.End {
	side := c.Seen.Side
	e := ledger.End{
		At: side.Snapshot.At, Snapshot: side.Snapshot, Curves: side.Curves, Scan: side.Scan, Kernel: c.Seen.Kernel,
		Processes: slices.Collect(maps.Values(side.Processes)), Probes: c.Probes(),
		Findings: j.Found, Verdict: j.Verdict,
	}
	if c.Phase == slurm.Prolog && e.Kernel != nil { // the mark alone: what was before is no part of this job
		e.Kernel = &gpu.KernelLog{Last: e.Kernel.Last, Unknown: e.Kernel.Unknown}
	}
	return e
}
