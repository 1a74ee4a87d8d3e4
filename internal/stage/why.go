package stage

import (
	"time"

	"bookend/internal/config"
	"bookend/internal/diagnosis"
	"bookend/internal/ledger"
)

// diagnose answers why the job ran out of memory; nil where nobody wants to know.
func (h *hook) diagnose(run ledger.Run) *diagnosis.Diagnosis {
	if h.again || h.second {
		return nil
	}
	in := h.symptoms(run)
	in.Messages, in.MessagesUnknown, in.MessagesPart = h.said.messages, h.said.unknown, h.said.part
	in.Cancelled = h.said.cancelled
	in.Wanted = h.cfg.JobLog.Why == config.Always
	if d := diagnosis.Why(in); d.Reason == "" && len(d.Peaks) == 0 {
		return nil
	}
	// Somebody will read it: now Slurm's files and the node's other records are worth their time.
	in.Shared, in.SharedUnknown = h.shared()
	var began time.Duration
	if run.Start != nil {
		began = run.Start.At
	}
	in.Seen = append(ledger.Sightings(h.records(), run, began, h.now.Snapshot.At), h.sightings().During(run, began, h.now.Snapshot.At)...)
	in.Checks = h.sightings().LooksDuring(run, began, h.now.Snapshot.At)
	d := diagnosis.Why(in)
	return &d
}

// symptoms are what this hook saw already.
func (h *hook) symptoms(run ledger.Run) diagnosis.Input {
	in := diagnosis.Input{
		Job: h.job, Cards: h.cards, Start: h.before, End: &h.now, Findings: h.found, Limits: h.limits(),
		Probes: h.probes, Health: h.health, Kernel: h.sinceJobBegan(run),
		AddressSpace: addressSpace(h.readDrop()), WallEnd: h.env.Clock.Wall(),
	}
	if !h.cfg.Look.Health {
		in.HealthUnknown = "look.health is off"
	}
	if run.Start == nil {
		return in
	}
	in.StartFindings, in.WallStart = run.Start.Findings, run.Start.Wall
	if len(in.Probes) == 0 {
		in.Probes = run.Start.Probes
	}
	return in
}
