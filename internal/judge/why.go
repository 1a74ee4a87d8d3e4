package judge

import (
	"cmp"

	"bookend/internal/condition"
	"bookend/internal/diagnosis"
	"bookend/internal/gpu"
	"bookend/internal/record"
)

// JobOutput is what the job's outputs say about memory.
type JobOutput struct {
	Messages []record.Message
	Outputs  []record.Output // Message.File is an index into these
	Unknown  string          // why they were not read
	Part     string          // which part was not read
	// Cancelled is set if Slurm's own line says that the job was cancelled or met its time limit.
	Cancelled    bool
	AddressSpace gpu.Figure // the limit that a task hook of the job recorded; the user could forge it
}

// symptoms returns the input of a diagnosis, as far as this hook saw it. Why adds the rest.
func (c Case) symptoms(j Judgement) diagnosis.Input {
	h := c.Output
	in := diagnosis.Input{Job: c.Job, Cards: c.Seen.Cards, Start: c.Past.Before, End: &c.Seen.Side, Findings: j.Found,
		Probes: probesOf(c.Tests), Health: c.Seen.Health, Kernel: errorsOf(c),
		AddressSpace: h.AddressSpace, Disputed: condition.Disputed,
		Messages: h.Messages, MessagesUnknown: h.Unknown, MessagesPart: h.Part, Cancelled: h.Cancelled}
	if c.Seen.Brief {
		in.HealthUnknown = "ECC counters, after a good end"
	}
	if start := c.Past.Run.Start; start != nil {
		in.StartFindings, in.WallStart = start.Findings, start.Wall
		if len(in.Probes) == 0 {
			in.Probes = start.Probes
		}
	}
	return in
}

// AsksWhy reports whether there is anything to diagnose: then the node's other records are needed.
func (c Case) AsksWhy(j Judgement) bool { return diagnosis.Why(c.symptoms(j)).Reason != "" }

// Why diagnoses why the job ran out of memory, with Slurm's files and the node's other records.
func (c Case) Why(j Judgement) *record.Diagnosis {
	in := c.symptoms(j)
	run := c.Past.Run
	in.Shared, in.SharedUnknown = c.Sharing.Reasons()
	diagnosis.Witness(&in, c.Past.Recording, run, cmp.Or(run.Start, &record.End{}).At, c.At)
	return new(diagnosis.Why(in))
}
