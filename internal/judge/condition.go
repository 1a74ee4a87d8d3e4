package judge

import (
	"slices"
	"time"

	"bookend/internal/diagnosis"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/health"
	"bookend/internal/ledger"
	"bookend/internal/oom"
	"bookend/internal/slurm"
)

// condition is what the driver and the kernel's log say against the job's GPUs: the log also where the driver is stuck
// or has lost the GPU, which is when it matters most.
func (c Case) condition() []finding.Finding {
	in := health.Input{
		Cards: c.Seen.Cards, Unseen: c.notFound(), Now: c.Seen.Health, Blind: len(c.Seen.Health) == 0,
		Kernel: c.sinceJobBegan(), KernelDoubt: c.reloaded(), Own: c.ownXids(),
	}
	if c.InJob {
		in.Doubt = insideDoubt
	}
	if c.Node != nil && health.Compares(c.Seen.Health) {
		in.Before = ledger.LastHealth(c.Node.Runs, c.Seen.Epoch)
	}
	return health.Judge(in)
}

// AsksCondition reports whether the GPUs' condition is judged by the node's records: most never is.
func (c Case) AsksCondition() bool {
	return health.Compares(c.Seen.Health) || c.namesProcesses()
}

// Subjects are the job's GPUs, with those of the start's record that were not found any more and that something was
// found on.
func (c Case) Subjects(j Judgement) []finding.Card {
	gone := slices.DeleteFunc(c.notFound(), func(card finding.Card) bool {
		on := func(f finding.Finding) bool { return f.GPU != "" && f.GPU == card.Device.ID }
		return !slices.ContainsFunc(j.Found, on)
	})
	return slices.Concat(c.Seen.Cards, gone)
}

// notFound are the job's GPUs by the start's record that this hook has not found among the driver's.
func (c Case) notFound() (cards []finding.Card) {
	if c.Phase != slurm.Epilog {
		return nil
	}
	for _, d := range c.Past.Run.Devices {
		found := slices.ContainsFunc(c.Seen.Cards, func(card finding.Card) bool {
			if card.Device.ID == "" || d.Device.ID == "" {
				return card.Device.BusID == d.Device.BusID
			}
			return card.Device.ID == d.Device.ID
		})
		if !found {
			cards = append(cards, d)
		}
	}
	return cards
}

// Mark is where in the kernel's log a job began, nil where nobody knows.
func Mark(run ledger.Run, job slurm.Job) *gpu.KernelMark {
	start := run.Start
	if start == nil || start.Kernel == nil || start.Kernel.Unknown != "" || run.Closed() && !run.Sure(job) {
		return nil
	}
	return &start.Kernel.Last
}

// sinceJobBegan is the kernel's log since the job's start, nil where that cannot be told. A mark holds for one boot: a
// driver that is reloaded meanwhile takes nothing out of the log.
func (c Case) sinceJobBegan() *gpu.KernelLog {
	run, log := c.Past.Run, c.Seen.Kernel
	if Mark(run, c.Job) == nil || log == nil || run.Epoch.Boot == "" || run.Epoch.Boot != log.Epoch.Boot {
		return nil
	}
	return log
}

// reloaded is why an Xid may not say how the GPU is now; empty where this is the life of the driver that it is of.
func (c Case) reloaded() string {
	if c.Seen.Kernel == nil || c.Past.Run.Epoch.Same(c.Seen.Kernel.Epoch) {
		return ""
	}
	return "the driver was reloaded since the job began, or no one can tell: that may have cured the GPU"
}

// namesProcesses reports that the log names a process with an error of one of the job's GPUs.
func (c Case) namesProcesses() bool {
	log, cards := c.sinceJobBegan(), slices.Concat(c.Seen.Cards, c.notFound())
	return log != nil && slices.ContainsFunc(log.Xids, func(x gpu.Xid) bool {
		here := func(card finding.Card) bool { return card.Device.BusID == x.BusID }
		return x.PID != 0 && slices.ContainsFunc(cards, here)
	})
}

// ownXids says of the processes that Xids name whether they were this job's: of those that a hook, since the job began,
// saw in a job's cgroup, and of those that the kernel ended in one.
func (c Case) ownXids() map[int]bool {
	if c.Node == nil || !c.namesProcesses() {
		return nil
	}
	run, w := c.Past.Run, whose{job: c.Job, own: map[int]bool{}, disputed: map[int]bool{}}
	for _, p := range c.Seen.Side.Processes {
		w.saw(p.PID, p.Cgroup)
	}
	for _, k := range c.sinceJobBegan().Kills {
		w.saw(k.PID, slurm.OwnerOfCgroup("0::"+k.Cgroup))
	}
	for _, p := range c.Past.Recording.Proofs() {
		w.saw(p.PID, p.Owner)
	}
	for _, r := range c.Node.Runs {
		for _, e := range r.Both() {
			for _, p := range e.Processes {
				if r.Epoch.Boot == run.Epoch.Boot && e.At >= run.Start.At {
					w.saw(p.PID, p.Cgroup)
				}
			}
		}
	}
	return w.own
}

// whose gathers which processes are a job's own and which another job's. A number that was given to both tells nothing.
type whose struct {
	job           slurm.Job
	own, disputed map[int]bool
}

func (w whose) saw(pid int, o slurm.Owner) {
	if !o.Found() || o.Conflict != "" || w.disputed[pid] {
		return
	}
	own := o.ID != 0 && o.ID == w.job.ID
	if o.SLUID != "" && w.job.SLUID != "" {
		own = o.SLUID == w.job.SLUID
	}
	if said, known := w.own[pid]; known && said != own {
		delete(w.own, pid)
		w.disputed[pid] = true
		return
	}
	w.own[pid] = own
}

// Heard is what the job's outputs said of memory.
type Heard struct {
	Messages []oom.Message
	Outputs  []ledger.Output // Message.File counts these
	Unknown  string          // why nobody looked
	Part     string          // what was not looked through
	// Cancelled: the job was cancelled or met its time limit, by Slurm's own line.
	Cancelled bool
	// AddressSpace is the limit that a task hook of the job left word of: the user's claim.
	AddressSpace gpu.Figure
}

// Symptoms are what a diagnosis is made of, as far as this hook saw it. More is worth reading for one that somebody
// wants.
func (c Case) Symptoms(j Judgement, h Heard, now time.Time) diagnosis.Input {
	in := diagnosis.Input{
		Job: c.Job, Cards: c.Seen.Cards, Start: c.Past.Before, End: &c.Seen.Side, Findings: j.Found,
		Probes: c.Probes(), Health: c.Seen.Health, Kernel: c.sinceJobBegan(),
		AddressSpace: h.AddressSpace,
		Messages:     h.Messages, MessagesUnknown: h.Unknown, MessagesPart: h.Part, Cancelled: h.Cancelled,
		WallEnd: now,
	}
	if start := c.Past.Run.Start; start != nil {
		in.StartFindings, in.WallStart = start.Findings, start.Wall
		if len(in.Probes) == 0 {
			in.Probes = start.Probes
		}
	}
	return in
}

// Why answers why the job ran out of memory, with what Slurm's files and the node's other records say.
func (c Case) Why(in diagnosis.Input) *diagnosis.Diagnosis {
	run, now := c.Past.Run, c.Seen.Side.Snapshot.At
	var began time.Duration
	if run.Start != nil {
		began = run.Start.At
	}
	in.Shared, in.SharedUnknown = c.shared()
	in.Seen = ledger.Sightings(c.Node.Runs, run, began, now)
	c.Past.Recording.Witness(&in, run, began, now)
	d := diagnosis.Why(in)
	return &d
}
