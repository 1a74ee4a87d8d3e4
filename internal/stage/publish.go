package stage

import (
	"fmt"
	"path/filepath"
	"time"

	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/health"
	"bookend/internal/metrics"
	"bookend/internal/operation"
	"bookend/internal/session"
	"bookend/internal/slurm"
)

// publish writes the log and the metrics, and moves records to the disk. That is best effort, and changes no verdict:
// it is final by now.
func (r *record) publish(d *session.Driver) {
	lines := r.logLines(d)
	req := operation.DiskRequest{
		Run: d.Config.Paths.Run, Var: d.Config.Paths.Var, Node: d.Job.Node, Now: d.Clock.Wall(),
		Textfile: d.Config.Metrics.Textfile, Counted: r.counted(d),
	}
	if d.Config.Log.File {
		req.Log, req.LogDir = lines, d.Config.Paths.Log
	}
	if d.Phase != slurm.Prolog && d.Store != nil {
		req.Archive, req.Drop = true, slurm.Owner{ID: d.Job.ID, SLUID: d.Job.SLUID}
	}
	reply, err := operation.Disk.Ask(req, d.Left(time.Duration(d.Times.Outputs), 0))
	if err != nil { // the log has no word of this run, nor have the metrics
		own := operation.DiskTrouble{Code: code.LogFailed, Text: err.Error()}
		reply.Troubles = append(reply.Troubles, own)
	}
	for _, t := range reply.Troubles {
		fmt.Fprintf(d.Stderr, "bookend: %s\n", t.Text) // slurmd's log is all that is left
		known, _ := code.Lookup(t.Code)
		syslog(d, entry(d, config.Warning, fmt.Sprintf("%s: %s: %s", t.Code, known.Title, t.Text)))
	}
}

// programs are the hooks as the log and the metrics name them.
var programs = map[slurm.Context]struct {
	name string
	hook metrics.Hook
}{
	slurm.Prolog:      {"bookend-prolog", metrics.Prolog},
	slurm.Epilog:      {"bookend-epilog", metrics.Epilog},
	slurm.HealthCheck: {"bookend-healthcheck", metrics.HealthCheck},
}

func entry(d *session.Driver, level config.LogLevel, message string) operation.Entry {
	e := operation.Entry{
		At: d.Clock.Wall(), Level: level, Program: programs[d.Phase].name, PID: d.PID, Message: message,
		Fields: operation.Fields{"node": d.Job.Node},
	}
	if d.Phase != slurm.HealthCheck {
		e.Fields["job"], e.Fields["uid"], e.Fields["partition"] = uint32(d.Job.ID), d.Job.UID, d.Job.Partition
	}
	return e
}

// syslog sends an entry to the log socket, where the admin wants that.
func syslog(d *session.Driver, e operation.Entry) {
	line := e.Line(d.Config.Log)
	if !d.Config.Log.Syslog || len(line) == 0 {
		return
	}
	if err := e.Syslog(filepath.Join(d.Config.Paths.Dev, "log"), line); err != nil {
		fmt.Fprintf(d.Stderr, "bookend: %v\n", err)
	}
}

// counted is this run as the metrics count it.
func (r *record) counted(d *session.Driver) metrics.Run {
	run := metrics.Run{
		Check: r.gauges, Version: d.Version, Hook: programs[d.Phase].hook, Job: d.Job.ID, At: d.Clock.Wall(),
		Action: r.Action, Held: r.Held != "", Mode: d.Config.Mode, Took: d.Clock.Boot() - d.Start,
	}
	for _, f := range r.Found {
		entry, _ := code.Lookup(f.Code)
		// Of Bookend itself, or of the driver as a whole. What policy ignores or only notes is none: at some sites it
		// is how things are.
		own := (entry.Scope == code.Own || entry.Scope == code.Driver) && f.Tells()
		counted := metrics.Finding{Code: f.Code, Own: own}
		if own {
			counted.Detail = detail(f.Finding)
		}
		run.Findings = append(run.Findings, counted)
	}
	for _, c := range r.Seen.Cards {
		if curve := r.Seen.Side.Curves[c.Device.ID]; curve.State.AtRest() {
			run.Settled = append(run.Settled, curve.Settled)
		}
	}
	for _, p := range r.Tests.Probes() {
		// A start has also the word of earlier tests, or why there is none: they are not of this run.
		own := p.At >= d.Start
		if p.Result == gpu.ProbeSkipped {
			own = health.WhenTested(d.Config.Probe.At, d.Phase)
		}
		if own {
			run.Tests = append(run.Tests, p.Result)
		}
	}
	return run
}
