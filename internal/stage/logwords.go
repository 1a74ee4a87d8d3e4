package stage

import (
	"fmt"
	"slices"
	"strings"

	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/diagnosis"
	"bookend/internal/drain"
	"bookend/internal/finding"
	"bookend/internal/operation"
	"bookend/internal/session"
	"bookend/internal/slurm"
)

// logLines words the run: one line for the run, and one for each fault that was not said within the hour.
func (r *record) logLines(d *session.Driver) []byte {
	var all []byte
	entries := append([]operation.Entry{r.summary(d)}, r.faultLines(d)...)
	if r.drain != nil {
		e := entry(d, config.Info, "drain: "+string(r.drain.Act)+": "+r.drain.Why)
		if r.drain.Act == drain.Resume {
			e.Level = config.Warning
		}
		entries = append(entries, e)
	}
	for _, e := range entries {
		all = append(all, e.Line(d.Config.Log)...)
		syslog(d, e)
	}
	return all
}

func (r *record) summary(d *session.Driver) operation.Entry {
	e := entry(d, config.Info, "clean")
	var codes []string
	for _, f := range r.Found {
		codes = append(codes, string(f.Code))
	}
	if len(codes) > 0 {
		e.Message = "findings: " + strings.Join(codes, " ")
	}
	if r.Action == config.Warn || r.Action == config.Drain {
		e.Level = config.Warning
	}
	e.Fields["action"], e.Fields["exit"] = string(r.Action), r.Exit
	e.Fields["took"] = d.Clock.Boot() - d.Start
	e.Fields["looks"], e.Fields["gpus"] = r.Seen.Looks, indexes(r.Seen.Cards)
	if d.Phase == slurm.HealthCheck {
		r.quieten(d, &e)
	}
	for name, text := range map[string]string{
		"out_of_memory": whyShort(r.why), "job_log": r.jobLog, "held": r.Held, "doubt": r.Judgement.Doubt(),
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

// quieten keeps health checks from filling the log: they come every few minutes. One that found nothing is for who
// debugs, one that found the same as another within the hour as well.
func (r *record) quieten(d *session.Driver, e *operation.Entry) {
	if len(r.Found) == 0 {
		e.Level = config.Debug
		return
	}
	if d.Store == nil {
		return
	}
	var all []string
	for _, f := range r.Found {
		all = append(all, subject(f.Finding))
	}
	slices.Sort(all)
	key := "check " + strings.Join(slices.Compact(all), " ")
	say, suppressed := d.Store.Repeat(key[:min(len(key), maxKey)], d.Clock.Boot())
	if e.Fields["suppressed"] = suppressed; !say {
		e.Level = config.Debug
	}
}

// maxKey is what a record of what was said has room for, in bytes.
const maxKey = 200

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

// maxOnCards bounds the lines of one health check about GPUs: each of hundreds of leftover processes is a finding.
const maxOnCards = 64

// faultLines details what is not about a GPU, of a health check also what is: the same fault is said once an hour a
// node and counted meanwhile.
func (r *record) faultLines(d *session.Driver) (out []operation.Entry) {
	cards := 0
	for _, f := range r.Found {
		known, _ := code.Lookup(f.Code)
		isCheck := d.Phase == slurm.HealthCheck
		onCard := known.Scope == code.Card || known.Scope == code.Elsewhere && isCheck
		if onCard && !isCheck || d.Store == nil && f.Code == code.NoRecord {
			continue
		}
		key, words := string(f.Code), detail(f.Finding)
		if onCard {
			key, words = subject(f.Finding), onCardWords(f.Finding)
			if cards++; cards > maxOnCards {
				continue
			}
		}
		say, suppressed := true, 0
		if d.Store != nil {
			say, suppressed = d.Store.Repeat(key, d.Clock.Boot())
		}
		if say {
			e := entry(d, config.Warning, fmt.Sprintf("%s: %s: %s", f.Code, known.Title, words))
			e.Fields["suppressed"] = suppressed
			out = append(out, e)
		}
	}
	if cards > maxOnCards {
		out = append(out, entry(d, config.Warning,
			fmt.Sprintf("%d more findings on GPUs are in the record alone", cards-maxOnCards)))
	}
	return out
}

// onCardWords is a finding on a GPU in one line of the log.
func onCardWords(f finding.Finding) string {
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
	if text := detail(f); text != "" {
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}

func detail(f finding.Finding) string {
	if f.Unknown != "" {
		return "unknown: " + f.Unknown
	}
	return f.Observed
}

func indexes(cards []finding.Card) string {
	list := make([]string, len(cards))
	for i, c := range cards {
		list[i] = fmt.Sprint(c.Index)
	}
	return strings.Join(list, ",")
}
