package ledger

import (
	"slices"

	"bookend/internal/finding"
	"bookend/internal/gpu"
)

// bare is an end's verdict, with of each finding no more than policy and drain need.
func (e End) bare() End {
	c := newCutter(bare, e.Rest)
	b := End{
		At: e.At, Wall: e.Wall, Unseen: clip(e.Unseen, bare.text), Presumed: e.Presumed, SlurmConf: e.SlurmConf,
		Rest:     c.rest,
		Snapshot: gpu.Snapshot{At: e.Snapshot.At},
	}
	b.Findings, b.Verdict = c.findings(e.Findings, e.Verdict)
	for i, f := range b.Findings {
		f.Bytes.Unknown = clip(f.Bytes.Unknown, bare.text)
		b.Findings[i] = finding.Finding{Code: f.Code, GPU: f.GPU, Index: f.Index, Unknown: f.Unknown, Bytes: f.Bytes,
			Owner: f.Owner, Xid: f.Xid}
	}
	if e.Kernel != nil {
		b.Kernel = &gpu.KernelLog{Last: e.Kernel.Last, Epoch: e.Kernel.Epoch, Lost: e.Kernel.Lost,
			Unknown: clip(e.Kernel.Unknown, bare.text)}
	}
	b.Health = c.bareHealth(e.Health)
	c.rest[everything] = 1
	return b
}

// bareHealth keeps the counters of each GPU: the next job is told of what they have grown by.
func (c *cutter) bareHealth(all []gpu.Health) []gpu.Health {
	b := cutter{bounds: bounds{cards: maxBare, details: maxFacts}, rest: c.rest}
	all = b.health(all)
	for i := range all {
		all[i].Accounting = gpu.Accounting{}
		all[i].Facts = slices.Clone(all[i].Facts)
		for j := range all[i].Facts {
			f := &all[i].Facts[j]
			f.Value, f.Unknown, f.Source = clip(f.Value, bare.text), clip(f.Unknown, bare.text),
				clip(f.Source, bare.text)
		}
	}
	return all
}
