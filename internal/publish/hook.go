package publish

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/config"
	"bookend/internal/drain"
	"bookend/internal/judge"
	"bookend/internal/metrics"
	"bookend/internal/node"
	"bookend/internal/record"
	"bookend/internal/slurm"
)

// Account is what a hook leaves to be published.
type Account struct {
	Case      judge.Case
	Judgement judge.Judgement
	JobLog    string            // what became of the end report, for the log
	Spool     string            // what became of the file in the user's spool
	Drain     *drain.Decision   // about the node, if it is new
	Why       *record.Diagnosis // of a job that ended; nil if nothing is worth reporting
	Gauges    *record.Check     // for the metrics of a health check; nil for a job's hooks
	Again     bool              // as metrics.JobRun
}

var hooks = map[slurm.Context]metrics.Hook{
	slurm.Prolog: metrics.Prolog, slurm.Epilog: metrics.Epilog, slurm.HealthCheck: metrics.HealthCheck,
}

func Program(phase slurm.Context) string {
	return "bookend-" + strings.ReplaceAll(string(hooks[phase]), "_", "")
}

// Hook writes log and metrics and archives records: best effort, without effect on the verdict.
func Hook(a *node.Access, o Account) {
	var lines []byte
	for _, e := range entries(a, o) {
		lines = append(lines, e.Line(a.Config.Log)...)
		sendSyslog(a, e)
	}
	req := DiskRequest{Run: a.Config.Paths.Run, Var: a.Config.Paths.Var, Node: a.Job.Node, Now: a.Env.Clock.Wall(),
		Textfile: a.Config.Metrics.Textfile, JobMap: a.Config.Metrics.JobMap, Counted: counted(a, o),
		Boot: a.Env.Clock.Boot(), Words: a.Config.Log, Hook: newEntry(a, config.Warning, ""), Syslog: syslogSocket(a),
		Env: []string{"BOOKEND_CONFIG=" + a.Env.Getenv("BOOKEND_CONFIG")}}
	if a.Config.Log.File {
		req.Log, req.LogDir = lines, a.Config.Paths.Log
	}
	if a.Phase != slurm.Prolog && a.Store != nil {
		req.Archive, req.Drop, req.DropUID = true, a.Job.Owner(), a.Job.UID
	}
	if a.Store != nil && !a.InJob && req.Leave() { // Slurm waits for every process that a hook leaves in its job
		return
	}
	troubles, err := Disk.Ask(req, a.Deadline.Left(time.Duration(a.Times.Outputs), 0))
	if err != nil { // neither the log nor the metrics have this run
		troubles = append(troubles, metrics.Finding{Code: catalog.LogFailed, Detail: err.Error()})
		req.NoAnswer("", err.Error())
	}
	for _, t := range troubles {
		fmt.Fprintf(a.Env.Stderr, "bookend: %s\n", t.Detail) // slurmd's log may be the only one left
	}
}

func syslogSocket(a *node.Access) string { return filepath.Join(a.Config.Paths.Dev, "log") }

func newEntry(a *node.Access, level config.LogLevel, message string) Entry {
	e := Entry{At: a.Env.Clock.Wall(), Level: level, Program: Program(a.Phase), PID: a.Env.PID, Message: message,
		Fields: map[string]any{"node": a.Job.Node}}
	if a.Phase != slurm.HealthCheck {
		e.Fields["job"], e.Fields["uid"], e.Fields["partition"] = uint32(a.Job.ID), a.Job.UID, a.Job.Partition
	}
	return e
}

func sendSyslog(a *node.Access, e Entry) {
	line := e.Line(a.Config.Log)
	if !a.Config.Log.Syslog || len(line) == 0 {
		return
	}
	if err := e.Syslog(syslogSocket(a), line); err != nil {
		fmt.Fprintf(a.Env.Stderr, "bookend: %v\n", err)
	}
}

// entries returns the log lines: one for the run, one for each fault that was not logged within the hour, and one for a
// decision about the node's drain. Health checks come often: one with nothing new is logged at debug level.
func entries(a *node.Access, o Account) []Entry {
	all := append([]Entry{summary(a, o)}, faultLines(a, o)...)
	if a.Phase == slurm.HealthCheck && len(all) == 1 {
		all[0].Level = config.Debug
	}
	if o.Drain != nil {
		e := newEntry(a, config.Info, "drain: "+string(o.Drain.Act)+": "+o.Drain.Why)
		if o.Drain.Act == drain.Resume {
			e.Level = config.Warning
		}
		all = append(all, e)
	}
	return all
}

func summary(a *node.Access, o Account) Entry {
	j := o.Judgement
	e := newEntry(a, config.Info, "clean")
	if len(j.Found) > 0 {
		e.Message = "findings:"
	}
	for _, f := range j.Found {
		e.Message += " " + string(f.Code)
		e.Found = append(e.Found, found(f))
	}
	if j.Action == config.Warn || j.Action == config.Drain {
		e.Level = config.Warning
	}
	indexes := make([]string, len(o.Case.Seen.Cards))
	for i, c := range o.Case.Seen.Cards {
		indexes[i] = fmt.Sprint(c.Index)
	}
	e.Fields["action"], e.Fields["exit"] = string(j.Action), j.Status()
	e.Fields["took"] = a.Env.Clock.Boot() - a.Deadline.Start
	e.Fields["looks"], e.Fields["gpus"] = o.Case.Seen.Looks, strings.Join(indexes, ",")
	texts := map[string]string{"job_log": o.JobLog, "spool": o.Spool, "held": j.Held, "doubt": j.Doubt()}
	for name, text := range texts {
		if text != "" {
			e.Fields[name] = text
		}
	}
	return e
}

// maxOnCards bounds a health check's log lines about GPUs: each of hundreds of leftover processes is a finding.
const maxOnCards = 64

// faultLines returns lines for findings that are not about a GPU, and in a health check also for those that are. The
// same fault is logged once an hour per node, and counted meanwhile.
func faultLines(a *node.Access, o Account) (out []Entry) {
	cards := 0
	for _, f := range o.Judgement.Found {
		known, _ := catalog.Lookup(f.Code)
		isCheck := a.Phase == slurm.HealthCheck
		if onCard := known.Scope == catalog.Card || known.Scope == catalog.Elsewhere && isCheck; onCard {
			if cards++; !isCheck || cards > maxOnCards {
				continue
			}
		}
		say, suppressed := true, 0
		if a.Store != nil {
			say, suppressed = repeat(a.Store, subject(f), a.Env.Clock.Boot())
		}
		if say {
			e := newEntry(a, config.Warning, fmt.Sprintf("%s: %s: %s", f.Code, known.Title, words(f)))
			e.Fields["suppressed"], e.Found = suppressed, []Found{found(f)}
			out = append(out, e)
		}
	}
	return out
}

func found(f record.Finding) Found {
	if f.Index == nil {
		return Found{Code: string(f.Code)}
	}
	return Found{string(f.Code), fmt.Sprint(*f.Index)}
}

// subject identifies a finding across repeats: by code, GPU and process, not by values that fluctuate.
func subject(f record.Finding) string {
	key := string(f.Code)
	if f.GPU != "" {
		key += " " + string(f.GPU)
	}
	if f.Holder != nil {
		key += fmt.Sprintf(" %d", f.Holder.PID)
	}
	return key
}

// words returns a finding as one line of the log.
func words(f record.Finding) string {
	var parts []string
	if f.Index != nil {
		parts = append(parts, fmt.Sprintf("GPU %d", *f.Index))
	} else if f.GPU != "" {
		parts = append(parts, "GPU "+string(f.GPU))
	}
	if f.Bytes.Known() && f.Bytes.Bytes > 0 {
		parts = append(parts, fmt.Sprintf("%d MiB", f.Bytes.Bytes>>20))
	}
	if f.Holder != nil {
		parts = append(parts, fmt.Sprintf("process %d", f.Holder.PID))
	}
	if f.Owner != nil {
		parts = append(parts, fmt.Sprintf("job %s (%s)", f.Owner.JobName(), f.Owner.Level))
	}
	if text := detail(f); text != "" {
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}

func detail(f record.Finding) string {
	if f.Unknown != "" {
		return "unknown: " + f.Unknown
	}
	return f.Observed
}
