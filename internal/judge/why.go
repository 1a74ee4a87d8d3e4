package judge

import (
	"time"

	"bookend/internal/config"
	"bookend/internal/diagnosis"
	"bookend/internal/gpu"
	"bookend/internal/ledger"
	"bookend/internal/oom"
)

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
		Job: c.Job, Cards: c.Seen.Cards, Start: c.Past.Before, End: &c.Seen.Side, Findings: j.Findings(),
		Limits: c.limits(), Probes: c.Tests.Probes(), Health: c.Seen.Health, Kernel: c.sinceJobBegan(),
		AddressSpace: h.AddressSpace,
		Messages:     h.Messages, MessagesUnknown: h.Unknown, MessagesPart: h.Part, Cancelled: h.Cancelled,
		Wanted: c.Config.JobLog.Show == config.ShowAll, WallEnd: now,
	}
	start := c.Past.Run.Start
	if start == nil {
		return in
	}
	in.StartFindings, in.WallStart = start.Findings, start.Wall
	if len(in.Probes) == 0 {
		in.Probes = start.Probes
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
	in.Shared, in.SharedUnknown = c.Sharing.Why, c.Sharing.Unknown
	in.Seen = append(ledger.Sightings(c.Node.Runs, run, began, now), c.Node.Sighted.During(run, began, now)...)
	in.Checks = c.Node.Sighted.LooksDuring(run, began, now)
	d := diagnosis.Why(in)
	return &d
}
