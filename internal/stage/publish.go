package stage

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/diagnosis"
	"bookend/internal/drain"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/health"
	"bookend/internal/metrics"
	"bookend/internal/operation"
	"bookend/internal/session"
	"bookend/internal/slurm"
)

// hooks are the root hooks as the metrics name them, programs as they are installed.
var (
	hooks = map[slurm.Context]metrics.Hook{
		slurm.Prolog: metrics.Prolog, slurm.Epilog: metrics.Epilog, slurm.HealthCheck: metrics.HealthCheck,
	}
	programs = map[slurm.Context]string{
		slurm.Prolog: "bookend-prolog", slurm.Epilog: "bookend-epilog", slurm.HealthCheck: "bookend-healthcheck",
	}
)

// publish writes the log and the metrics, and moves records to the disk. That is best effort, and changes no verdict:
// it is final by now.
func (r *record) publish(d *session.Driver) {
	var lines []byte
	for _, e := range r.entries(d) {
		lines = append(lines, e.Line(d.Config.Log)...)
		syslog(d, e)
	}
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
	troubles, err := operation.Disk.Ask(req, d.Left(time.Duration(d.Times.Outputs), 0))
	if err != nil { // the log has no word of this run, nor have the metrics
		troubles = append(troubles, metrics.Finding{Code: code.LogFailed, Detail: err.Error()})
	}
	for _, t := range troubles {
		fmt.Fprintf(d.Stderr, "bookend: %s\n", t.Detail) // slurmd's log is all that is left
		known, _ := code.Lookup(t.Code)
		syslog(d, entry(d, config.Warning, fmt.Sprintf("%s: %s: %s", t.Code, known.Title, t.Detail)))
	}
}

func entry(d *session.Driver, level config.LogLevel, message string) operation.Entry {
	e := operation.Entry{
		At: d.Clock.Wall(), Level: level, Program: programs[d.Phase], PID: d.PID, Message: message,
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

// entries word the run: one line for the run, one for each fault that was not said within the hour, and one for what
// was decided about the node's drain. Health checks come every few minutes: one that has nothing new is for who debugs.
func (r *record) entries(d *session.Driver) []operation.Entry {
	all := append([]operation.Entry{r.summary(d)}, r.faultLines(d)...)
	if d.Phase == slurm.HealthCheck && len(all) == 1 {
		all[0].Level = config.Debug
	}
	if r.drain != nil {
		e := entry(d, config.Info, "drain: "+string(r.drain.Act)+": "+r.drain.Why)
		if r.drain.Act == drain.Resume {
			e.Level = config.Warning
		}
		all = append(all, e)
	}
	return all
}

func (r *record) summary(d *session.Driver) operation.Entry {
	e := entry(d, config.Info, "clean")
	if len(r.Found) > 0 {
		e.Message = "findings:"
	}
	for _, f := range r.Found {
		e.Message += " " + string(f.Code)
	}
	if r.Action == config.Warn || r.Action == config.Drain {
		e.Level = config.Warning
	}
	indexes := make([]string, len(r.Seen.Cards))
	for i, c := range r.Seen.Cards {
		indexes[i] = fmt.Sprint(c.Index)
	}
	e.Fields["action"], e.Fields["exit"], e.Fields["took"] = string(r.Action), r.Exit, d.Clock.Boot()-d.Start
	e.Fields["looks"], e.Fields["gpus"] = r.Seen.Looks, strings.Join(indexes, ",")
	for name, text := range map[string]string{
		"out_of_memory": whyShort(r.why), "job_log": r.jobLog, "held": r.Held, "doubt": r.Doubt(),
	} {
		if text != "" {
			e.Fields[name] = text
		}
	}
	return e
}

// whyShort names the causes that applied to a job that says it ran out of memory.
func whyShort(d *diagnosis.Diagnosis) string {
	if d == nil || d.Reason != diagnosis.ByMessage {
		return ""
	}
	var yes []string
	for _, c := range d.Causes {
		if c.Answer == diagnosis.Yes {
			yes = append(yes, string(c.Name))
		}
	}
	if len(yes) == 0 {
		return "unexplained"
	}
	return strings.Join(yes, ",")
}

// maxOnCards bounds the lines of one health check about GPUs: each of hundreds of leftover processes is a finding.
const maxOnCards = 64

// faultLines details what is not about a GPU, of a health check also what is: the same fault is said once an hour a
// node and counted meanwhile.
func (r *record) faultLines(d *session.Driver) (out []operation.Entry) {
	cards := 0
	for _, f := range r.Found {
		known, _ := code.Lookup(f.Code)
		isCheck := d.Phase == slurm.HealthCheck
		if onCard := known.Scope == code.Card || known.Scope == code.Elsewhere && isCheck; onCard {
			if cards++; !isCheck || cards > maxOnCards {
				continue
			}
		}
		say, suppressed := d.Store == nil && f.Code != code.NoRecord, 0
		if d.Store != nil {
			say, suppressed = d.Store.Repeat(subject(f), d.Clock.Boot())
		}
		if say {
			e := entry(d, config.Warning, fmt.Sprintf("%s: %s: %s", f.Code, known.Title, words(f)))
			e.Fields["suppressed"] = suppressed
			out = append(out, e)
		}
	}
	return out
}

// subject names a finding for telling whether it was said: by what it is and whose, not by figures that wander.
func subject(f finding.Finding) string {
	key := string(f.Code)
	if f.GPU != "" {
		key += " " + string(f.GPU)
	}
	if f.Holder != nil {
		key += fmt.Sprintf(" %d", f.Holder.PID)
	}
	return key
}

// words are a finding in one line of the log.
func words(f finding.Finding) string {
	var parts []string
	switch {
	case f.Index != nil:
		parts = append(parts, fmt.Sprintf("GPU %d", *f.Index))
	case f.GPU != "":
		parts = append(parts, "GPU "+string(f.GPU))
	}
	if f.Bytes.Known() && f.Bytes.Bytes > 0 {
		parts = append(parts, fmt.Sprintf("%d MiB", f.Bytes.Bytes>>20))
	}
	if f.Holder != nil {
		parts = append(parts, fmt.Sprintf("process %d", f.Holder.PID))
	}
	if f.Owner != nil {
		parts = append(parts, fmt.Sprintf("job %d (%s)", f.Owner.Job, f.Owner.Level))
	}
	parts = append(parts, detail(f))
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ", ")
}

func detail(f finding.Finding) string {
	if f.Unknown != "" {
		return "unknown: " + f.Unknown
	}
	return f.Observed
}

// counted is this run as the metrics count it.
func (r *record) counted(d *session.Driver) metrics.Run {
	run := metrics.Run{
		Check: r.gauges, Version: d.Version, Hook: hooks[d.Phase], Job: d.Job.ID, At: d.Clock.Wall(),
		Action: r.Action, Held: r.Held != "", Mode: d.Config.Mode, Took: d.Clock.Boot() - d.Start,
	}
	for i, f := range r.Found {
		entry, _ := code.Lookup(f.Code)
		// Of Bookend itself, or of the driver as a whole. What policy ignores or only notes is none: at some sites it
		// is how things are.
		counted := metrics.Finding{Code: f.Code}
		if counted.Own = (entry.Scope == code.Own || entry.Scope == code.Driver) && r.Tells(i); counted.Own {
			counted.Detail = detail(f)
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
