package stage

import (
	"fmt"
	"path/filepath"
	"strings"

	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/diagnosis"
	"bookend/internal/finding"
	"bookend/internal/runlog"
	"bookend/internal/slurm"
)

// logLines words the run: one line for the run, and one for each fault that was not said within the hour.
func (h *hook) logLines() []byte {
	var all []byte
	entries := append([]runlog.Entry{h.summary()}, h.faults()...)
	if e, news := h.drainEntry(); news {
		entries = append(entries, e)
	}
	for _, e := range entries {
		all = append(all, e.Line(h.cfg.Log)...)
		h.syslog(e)
	}
	return all
}

// syslog sends an entry to the log socket, where the admin wants that.
func (h *hook) syslog(e runlog.Entry) {
	line := e.Line(h.cfg.Log)
	if !h.cfg.Log.Syslog || len(line) == 0 {
		return
	}
	if err := e.Syslog(filepath.Join(h.cfg.Paths.Dev, "log"), line); err != nil {
		fmt.Fprintf(h.env.Stderr, "bookend: %v\n", err)
	}
}

func (h *hook) summary() runlog.Entry {
	e := h.entry(config.Info, "clean")
	var codes []string
	for _, f := range h.found {
		codes = append(codes, string(f.Code))
	}
	if len(codes) > 0 {
		e.Message = "findings: " + strings.Join(codes, " ")
	}
	if h.verdict.Action == config.Warn || h.verdict.Action == config.Drain {
		e.Level = config.Warning
	}
	e.Fields["action"], e.Fields["exit"] = string(h.verdict.Action), h.verdict.Exit
	e.Fields["took"] = h.env.Clock.Boot() - h.start
	e.Fields["looks"], e.Fields["gpus"] = h.looks, indexes(h.cards)
	if h.phase == slurm.HealthCheck {
		h.quieten(&e)
	}
	if why := h.whyShort(); why != "" {
		e.Fields["out_of_memory"] = why
	}
	if h.jobLog != "" {
		e.Fields["job_log"] = h.jobLog
	}
	if h.verdict.Held != "" {
		e.Fields["held"] = h.verdict.Held
	}
	if doubt := h.verdict.Doubt(h.found); doubt != "" {
		e.Fields["doubt"] = doubt
	}
	return e
}

// whyShort names the causes that applied to a job that says it ran out of memory.
func (h *hook) whyShort() string {
	if h.why == nil || h.why.Reason != diagnosis.ByMessage {
		return ""
	}
	var yes []string
	for _, c := range h.why.Causes {
		if c.Answer == diagnosis.Yes {
			yes = append(yes, string(c.Name))
		}
	}
	if len(yes) == 0 {
		return "unexplained"
	}
	return strings.Join(yes, ",")
}

func (h *hook) entry(level config.LogLevel, message string) runlog.Entry {
	e := runlog.Entry{
		At: h.env.Clock.Wall(), Level: level, Program: program(h.phase), PID: h.env.PID, Message: message, Fields: runlog.Fields{"node": h.job.Node},
	}
	if h.phase != slurm.HealthCheck {
		e.Fields["job"], e.Fields["uid"], e.Fields["partition"] = uint32(h.job.ID), h.job.UID, h.job.Partition
	}
	return e
}

// maxOnCards bounds the lines of one health check about GPUs: each of hundreds of leftover processes is a finding.
const maxOnCards = 64

// faults details what is not about a card, of a health check also what is: the same fault is said once an hour a node and
// counted meanwhile.
func (h *hook) faults() []runlog.Entry {
	var out []runlog.Entry
	cards := 0
	for _, f := range h.found {
		entry, _ := code.Lookup(f.Code)
		onCard := entry.Scope == code.Card || entry.Scope == code.Elsewhere && h.phase == slurm.HealthCheck
		if onCard && h.phase != slurm.HealthCheck || h.store == nil && f.Code == code.NoRecord {
			continue
		}
		if onCard {
			cards++
		}
		if cards > maxOnCards && onCard {
			continue
		}
		key, message := string(f.Code), worded(f)
		if onCard {
			key, message = sameAgain(f), fmt.Sprintf("%s: %s: %s", f.Code, entry.Title, onCardWords(f))
		}
		say, suppressed := true, 0
		if h.store != nil {
			say, suppressed = h.store.Repeat(key, h.env.Clock.Boot())
		}
		if !say {
			continue
		}
		e := h.entry(config.Warning, message)
		e.Fields["suppressed"] = suppressed
		out = append(out, e)
	}
	if cards > maxOnCards {
		out = append(out, h.entry(config.Warning, fmt.Sprintf("%d more findings on GPUs are in the record alone", cards-maxOnCards)))
	}
	return out
}

// worded is a finding as a line of the log says it.
func worded(f finding.Finding) string {
	entry, _ := code.Lookup(f.Code)
	return fmt.Sprintf("%s: %s: %s", f.Code, entry.Title, detail(f))
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

func program(phase slurm.Context) string {
	switch phase {
	case slurm.Prolog:
		return "bookend-prolog"
	case slurm.HealthCheck:
		return "bookend-healthcheck"
	}
	return "bookend-epilog"
}
