package stage

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/config"
	"bookend/internal/drain"
	"bookend/internal/judge"
	"bookend/internal/metrics"
	"bookend/internal/publish"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/internal/slurmcmd"
	"bookend/internal/state"
)

var hooks = map[slurm.Context]metrics.Hook{
	slurm.Prolog: metrics.Prolog, slurm.Epilog: metrics.Epilog, slurm.HealthCheck: metrics.HealthCheck,
}

func program(phase slurm.Context) string {
	return "bookend-" + strings.ReplaceAll(string(hooks[phase]), "_", "")
}

// publish writes log and metrics and archives records: best effort, without effect on the verdict.
func (r *work) publish() {
	var lines []byte
	for _, e := range r.entries() {
		lines = append(lines, e.Line(r.Config.Log)...)
		r.syslog(e)
	}
	req := publish.DiskRequest{
		Run: r.Config.Paths.Run, Var: r.Config.Paths.Var, Node: r.Job.Node, Now: r.Clock.Wall(),
		Textfile: r.Config.Metrics.Textfile, Counted: r.counted(),
		Boot: r.Clock.Boot(), Words: r.Config.Log, Hook: r.entry(config.Warning, ""), Syslog: r.syslogSocket(),
	}
	if r.Config.Log.File {
		req.Log, req.LogDir = lines, r.Config.Paths.Log
	}
	if r.Phase != slurm.Prolog && r.Store != nil {
		req.Archive, req.Drop, req.DropUID = true, slurm.Owner{ID: r.Job.ID, SLUID: r.Job.SLUID}, r.Job.UID
	}
	if r.Store != nil && !r.InJob && req.Leave() { // Slurm waits for every process that a hook leaves in its job
		return
	}
	troubles, err := publish.Disk.Ask(req, r.Left(time.Duration(r.Times.Outputs), 0))
	if err != nil { // neither the log nor the metrics have this run
		troubles = append(troubles, metrics.Finding{Code: catalog.LogFailed, Detail: err.Error()})
		req.NoAnswer("", err.Error())
	}
	for _, t := range troubles {
		fmt.Fprintf(r.Stderr, "bookend: %s\n", t.Detail) // slurmd's log may be the only one left
	}
}

func (r *work) syslogSocket() string { return filepath.Join(r.Config.Paths.Dev, "log") }

func (r *work) entry(level config.LogLevel, message string) publish.Entry {
	e := publish.Entry{
		At: r.Clock.Wall(), Level: level, Program: program(r.Phase), PID: r.PID, Message: message,
		Fields: map[string]any{"node": r.Job.Node},
	}
	if r.Phase != slurm.HealthCheck {
		e.Fields["job"], e.Fields["uid"], e.Fields["partition"] = uint32(r.Job.ID), r.Job.UID, r.Job.Partition
	}
	return e
}

func (r *work) syslog(e publish.Entry) {
	line := e.Line(r.Config.Log)
	if !r.Config.Log.Syslog || len(line) == 0 {
		return
	}
	if err := e.Syslog(r.syslogSocket(), line); err != nil {
		fmt.Fprintf(r.Stderr, "bookend: %v\n", err)
	}
}

// entries returns the log lines: one for the run, one for each fault that was not logged within the hour, and one for a
// decision about the node's drain. Health checks come often: one with nothing new is logged at debug level.
func (r *work) entries() []publish.Entry {
	all := append([]publish.Entry{r.summary()}, r.faultLines()...)
	if r.Phase == slurm.HealthCheck && len(all) == 1 {
		all[0].Level = config.Debug
	}
	if r.drain != nil {
		e := r.entry(config.Info, "drain: "+string(r.drain.Act)+": "+r.drain.Why)
		if r.drain.Act == drain.Resume {
			e.Level = config.Warning
		}
		all = append(all, e)
	}
	return all
}

func (r *work) summary() publish.Entry {
	e := r.entry(config.Info, "clean")
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
	e.Fields["action"], e.Fields["exit"], e.Fields["took"] = string(r.Action), r.Verdict.Exit, r.Clock.Boot()-r.Start
	e.Fields["looks"], e.Fields["gpus"] = r.Seen.Looks, strings.Join(indexes, ",")
	for name, text := range map[string]string{"job_log": r.jobLog, "held": r.Held, "doubt": r.Doubt()} {
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
func (r *work) faultLines() (out []publish.Entry) {
	cards := 0
	for _, f := range r.Found {
		known, _ := catalog.Lookup(f.Code)
		isCheck := r.Phase == slurm.HealthCheck
		if onCard := known.Scope == catalog.Card || known.Scope == catalog.Elsewhere && isCheck; onCard {
			if cards++; !isCheck || cards > maxOnCards {
				continue
			}
		}
		say, suppressed := true, 0
		if r.Store != nil {
			say, suppressed = r.Store.Repeat(subject(f), r.Clock.Boot())
		}
		if say {
			e := r.entry(config.Warning, fmt.Sprintf("%s: %s: %s", f.Code, known.Title, words(f)))
			e.Fields["suppressed"] = suppressed
			out = append(out, e)
		}
	}
	return out
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
	if said := detail(f); said != "" {
		parts = append(parts, said)
	}
	return strings.Join(parts, ", ")
}

func detail(f record.Finding) string {
	if f.Unknown != "" {
		return "unknown: " + f.Unknown
	}
	return f.Observed
}

func (r *work) counted() metrics.JobRun {
	run := metrics.JobRun{
		Check: r.gauges, Version: r.Version, Hook: hooks[r.Phase], Job: r.Job.ID, At: r.Clock.Wall(),
		Action: r.Action, Held: r.Held != "", Mode: r.Config.Mode, Took: r.Clock.Boot() - r.Start,
	}
	for i, f := range r.Found {
		entry, _ := catalog.Lookup(f.Code)
		// Own is a finding about Bookend itself, or the driver as a whole. What policy ignores or only notes does not
		// count: at some sites it is normal.
		counted := metrics.Finding{Code: f.Code}
		counted.Own = (entry.Scope == catalog.Own || entry.Scope == catalog.Driver) && r.Tells(i)
		if counted.Own {
			counted.Detail = detail(f)
		}
		run.Findings = append(run.Findings, counted)
	}
	for _, c := range r.Seen.Cards {
		if curve := r.Seen.Side.Curves[c.Device.ID]; curve.State.AtRest() {
			run.Settled = append(run.Settled, curve.Settled)
		}
	}
	if r.Phase == slurm.Epilog && r.Config.Record.Every > 0 && len(r.Seen.Cards) > 0 && !r.Past.Again {
		run.Recorded = r.recorded()
	}
	return run
}

const (
	// reasonTime bounds each of a hook's three calls of scontrol: with slurmctld up, one takes 10 ms.
	reasonTime = time.Second
	// reasonSpread is the time over which a cluster's hooks that meet the same fault spread their calls to slurmctld.
	reasonSpread = 2 * time.Second
	// slurmCall bounds each of a health check's calls: with slurmctld down or hung, one would take 10 to 20 s.
	slurmCall = 3 * time.Second
)

// giveReason drains the node with the reason: slurmctld keeps one that is set before the hook's exit code arrives.
func (r *work) giveReason() {
	if r.Phase == slurm.HealthCheck || r.Verdict.Exit == 0 || r.Config.Drain.ReasonBy != config.ReasonByHook {
		return
	}
	own := drain.FromEnd(record.Run{Job: r.Job, Epoch: r.Seen.Epoch}, r.Phase, r.end())
	if own == nil || own.Reason == "" {
		return
	}
	time.Sleep(rand.N(1 + r.Left(reasonSpread, 3*reasonTime+time.Duration(r.Times.Outputs))))
	in := drain.Facts{Memory: r.drainMemory()}
	cmd := r.scontrol(own.Conf, func() time.Duration { return r.Left(reasonTime, time.Duration(r.Times.Outputs)) })
	var err error
	in.Node, err = cmd.Node(r.Job.Node)
	if err == nil {
		in.Now = r.Clock.Wall()
		err = r.writeReason(cmd, in, *own)
	}
	r.late(r.Take()...)
	r.late(notWritten(err)...)
}

// writeReason writes the reason of an exit of this hook, if that is what is decided.
func (r *work) writeReason(cmd slurmcmd.Scontrol, in drain.Facts, own drain.Exit) error {
	decision := drain.AtHook(in, own)
	if decision.Act == drain.Leave {
		return errors.New(decision.Why)
	}
	kept := r.remember(in.Memory, decision.Memory)
	// A hook that drains at the same moment writes its reason: if both did, the one in place might not be on record.
	another := errors.Is(kept, state.ErrChanged) || errors.Is(kept, state.ErrLocked)
	if decision.Act != drain.Write || another {
		return nil
	}
	return cmd.Drain(r.Job.Node, decision.Reason, func(now drain.Node) bool {
		in.Node = now
		return drain.AtHook(in, own).Act == drain.Write
	})
}

// notWritten returns the finding that Slurm could not be asked or updated. The next health check writes the reason.
func notWritten(err error) (found []record.Finding) {
	if err != nil {
		found = append(found, record.Saw(catalog.ReasonFailed, err.Error(), "the drain reason is written"))
	}
	return found
}

// settleDrain replaces Slurm's fixed text for a drain of ours with the reason, and resumes the node if it may. It asks
// Slurm only while a drain is not settled. Failures become findings, and the next health check tries again.
func (r *work) settleDrain(c judge.Check) {
	memory := r.drainMemory()
	in := r.drainInput(memory)
	if !in.Pending() {
		return
	}
	until := r.Clock.Boot() + time.Duration(r.Config.Deadlines.HealthCheck.Slurm)
	cmd := r.scontrol(in.Conf(), func() time.Duration {
		return r.Left(min(slurmCall, until-r.Clock.Boot()), time.Duration(r.Times.Outputs))
	})
	var err error
	in.Node, err = cmd.Node(r.Job.Node)
	if err == nil {
		in.Cards = c.DrainSeen(r.Judgement)
		err = r.carryOut(cmd, in, memory)
	}
	r.Add(notWritten(err)...)
}

// drainInput returns what this node's records say about its drain. It reads them again, since an end may have come
// meanwhile; readNode has reported the damaged ones.
func (r *work) drainInput(memory drain.Remembered) drain.Facts {
	runs, unread := r.Store.Runs()
	lost, err := r.Store.LostRecord() // after the records: reading them sets damaged ones aside
	r.Try(err)
	return drain.Facts{
		Now: r.Clock.Wall(), Epoch: r.Seen.Epoch, Memory: memory.Here(r.Seen.Epoch.Boot),
		Exits: drain.Exits(runs, r.Seen.Epoch.Boot), Rules: r.Config.Drain,
		Partial: r.Seen.Epoch.Boot == "" || len(unread) > 0, Lost: lost || err != nil,
	}
}

// carryOut does what was decided, and stores it first: if that fails, nothing is done.
func (r *work) carryOut(cmd slurmcmd.Scontrol, in drain.Facts, memory drain.Remembered) (err error) {
	decision := drain.Decide(in)
	if r.remember(memory, decision.Memory) != nil {
		return nil
	}
	still := func(now drain.Node) bool {
		again := in
		again.Node = now
		wanted := drain.Decide(again)
		return wanted.Act == decision.Act && wanted.Reason == decision.Reason
	}
	switch decision.Act {
	case drain.Write:
		err = cmd.Drain(r.Job.Node, decision.Reason, still)
	case drain.Resume:
		err = cmd.Resume(r.Job.Node, still)
	}
	switch {
	case errors.Is(err, slurmcmd.ErrChanged): // the next health check sees the new state
		decision = drain.Decision{Act: drain.Leave, Why: err.Error(), Memory: decision.Memory}
	case err != nil:
		_ = r.remember(decision.Memory, decision.Memory.Failed(err)) // for display
		return err
	case decision.Act == drain.Resume:
		done := decision.Memory
		done.Written = nil                    // the drain is no longer ours
		_ = r.remember(decision.Memory, done) // its failure is a finding; the next health check sees what was done
	}
	if last := memory.Last; decision.Act != drain.Leave || last == nil || last.Why != decision.Why {
		r.drain = &decision
	}
	return nil
}

// drainMemory returns what the node stores about its drain. Without it, no reason in place counts as ours.
func (r *work) drainMemory() drain.Remembered {
	if r.Store == nil {
		return drain.Remembered{}
	}
	m, err := r.Store.Drain()
	r.Try(err)
	return m
}

// remember stores what was decided. If another program changed the memory meanwhile, that one's version is kept.
func (r *work) remember(seen, next drain.Remembered) error {
	if r.Store == nil {
		return errors.New("no state") // a finding since it could not be opened
	}
	err := r.Store.SwapDrain(seen, next)
	if errors.Is(err, state.ErrChanged) {
		r.Add(record.Unsure(catalog.StateLock, err.Error()))
	} else {
		r.Try(err)
	}
	return err
}

func (r *work) scontrol(conf string, left func() time.Duration) slurmcmd.Scontrol {
	return slurmcmd.Scontrol{Path: r.Config.Slurm.Scontrol, Conf: conf, Root: r.EUID == 0, Time: left}
}
