package view

import (
	"bookend/internal/answer"
	"bookend/internal/finding"
	"bookend/internal/report"
)

// Document is the node for programs.
func (n Node) Document() answer.Status {
	live, ended := split(n.Runs)
	d := answer.NewStatus(n.Name, n.At, n.Mode)
	d.Running, d.Ended = answer.Summaries(live, n.Runs), answer.Summaries(ended[:min(len(ended), recent)], n.Runs)
	d.OnRecord = len(ended)
	d.Check = n.Check
	if n.Driver != nil {
		d.Driver = *n.Driver
	}
	if n.Slurm != nil {
		d.Slurm = *n.Slurm
	}
	d.Slurm.Bookend = string(n.Drain.Words())
	d.Cards = append(d.Cards, n.Cards...)
	for _, h := range n.ran() {
		d.Hooks = append(d.Hooks, answer.LastHook{Hook: string(h), At: utc(n.Last[h])})
	}
	all := n.standing()
	for _, s := range all {
		d.Troubles = append(d.Troubles, s.document())
	}
	for _, m := range n.before(all) {
		d.Before = append(d.Before, standing{code: m.Code, said: []report.Safe{m.Detail}, met: &m}.document())
	}
	for _, f := range n.Damaged {
		d.Damaged = append(d.Damaged, answer.Damaged{Path: string(report.Clean(f.Path, troubleWidth)), Why: string(report.Clean(f.Why, troubleWidth))})
	}
	return d
}

// Sound reports a node with no trouble now and, as far as is known, nothing unexplained on its cards.
func (n Node) Sound() bool {
	for _, c := range n.Cards {
		if c.UnexplainedBytes != nil && *c.UnexplainedBytes >= finding.WorthTelling {
			return false
		}
	}
	return len(n.standing()) == 0 && len(n.Damaged) == 0 && (n.Slurm == nil || n.Slurm.Drained == nil || !*n.Slurm.Drained)
}
