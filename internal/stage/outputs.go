package stage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/diagnosis"
	"bookend/internal/finding"
	"bookend/internal/runlog"
	"bookend/internal/safefile"
	"bookend/internal/slurm"
	"bookend/internal/state"
)

// The log file below paths.log, and the size at which it is rotated once. logrotate may take it over.
const (
	logFile     = "bookend.log"
	maxLogBytes = 16 << 20
)

// diskLock, below paths.run, is held by the one child of this host that is at the disk; others wait for it as
// long as a few fsyncs take.
const (
	diskLock = "state/disk.lock"
	diskWait = 300 * time.Millisecond
)

// diskRequest crosses the pipe of opDisk: everything that touches a disk, or folders that users write in.
type diskRequest struct {
	Log     []byte    `json:"log,omitempty"`
	LogDir  string    `json:"log_dir,omitempty"`
	Run     string    `json:"run"`
	Var     string    `json:"var"`
	Node    string    `json:"node,omitempty"`
	Archive bool      `json:"archive,omitempty"`
	Now     time.Time `json:"now"`
	// Drop is the job whose drop folder has served; empty for none.
	Drop slurm.Owner `json:"drop,omitzero"`
}

type diskReply struct {
	Problems []string `json:"problems,omitempty"`
}

var serveDisk = served(func(r diskRequest) (diskReply, error) {
	var reply diskReply
	note := func(err error) {
		if err != nil {
			reply.Problems = append(reply.Problems, err.Error())
		}
	}
	// A child that hangs on a dead disk keeps this lock until it is gone: those after it give up at once instead
	// of piling up, and leave the records where they are.
	release, err := safefile.Lock(filepath.Join(r.Run, diskLock), diskWait, true)
	if errors.Is(err, safefile.ErrLocked) {
		return diskReply{Problems: []string{err.Error()}}, nil
	}
	if err == nil { // where there is no state there is no lock, but all the more to log
		defer release()
	}
	if len(r.Log) > 0 {
		note(appendLog(r.LogDir, r.Log))
	}
	if r.Drop.Found() {
		note(state.RemoveDrop(r.Run, r.Node, r.Drop))
	}
	if r.Archive {
		note(state.Archive(r.Run, r.Var, r.Node, r.Now, state.DefaultLimits()))
	}
	return reply, nil
})

// appendLog writes to root's own log folder, which it makes on first use and otherwise leaves as the site has it.
func appendLog(dir string, lines []byte) error {
	// Threat: /var/log may be writable by a group, which could put another folder here. Append opens the folder
	// itself and refuses one that is not root's or that others can write to.
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make log folder: %w", err)
	}
	return safefile.Append(dir, logFile, lines, maxLogBytes)
}

// outputs are best effort and independent of each other: none changes the verdict, which is final by now.
func (h *hook) outputs() {
	lines := h.logLines()
	req := diskRequest{Run: h.cfg.Paths.Run, Var: h.cfg.Paths.Var, Node: h.job.Node, Now: h.env.Clock.Wall()}
	if h.cfg.Log.File {
		req.Log, req.LogDir = lines, h.cfg.Paths.Log
	}
	if h.phase == slurm.Epilog && h.store != nil {
		req.Archive, req.Drop = true, slurm.Owner{ID: h.job.ID, SLUID: h.job.SLUID}
	}
	if len(req.Log) == 0 && !req.Archive {
		return
	}
	reply, err := ask[diskReply](opDisk, req, h.left(time.Duration(h.times.Outputs), 0))
	if err != nil {
		reply.Problems = append(reply.Problems, err.Error())
	}
	for _, p := range reply.Problems {
		fmt.Fprintf(h.env.Stderr, "bookend: %s\n", p) // slurmd's log is all that is left
	}
}

// logLines words the run: one line for the run, and one for each fault that was not said within the hour.
func (h *hook) logLines() []byte {
	var all []byte
	entries := append([]runlog.Entry{h.summary()}, h.faults()...)
	for _, e := range entries {
		line := e.Line(h.cfg.Log)
		all = append(all, line...)
		if h.cfg.Log.Syslog && len(line) > 0 {
			if err := e.Syslog(filepath.Join(h.cfg.Paths.Dev, "log"), line); err != nil {
				fmt.Fprintf(h.env.Stderr, "bookend: %v\n", err)
			}
		}
	}
	return all
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
	return runlog.Entry{
		At: h.env.Clock.Wall(), Level: level, Program: program(h.phase), PID: h.env.PID, Message: message,
		Fields: runlog.Fields{"job": uint32(h.job.ID), "node": h.job.Node, "uid": h.job.UID, "partition": h.job.Partition},
	}
}

// faults details what is not about a card: the same fault is said once an hour a node and counted meanwhile.
func (h *hook) faults() []runlog.Entry {
	var out []runlog.Entry
	for _, f := range h.found {
		entry, _ := code.Lookup(f.Code)
		if entry.Scope == code.Card || h.store == nil && f.Code == code.NoRecord {
			continue
		}
		say, suppressed := true, 0
		if h.store != nil {
			say, suppressed = h.store.Repeat(string(f.Code), h.env.Clock.Boot())
		}
		if !say {
			continue
		}
		e := h.entry(config.Warning, fmt.Sprintf("%s: %s: %s", f.Code, entry.Title, detail(f)))
		e.Fields["suppressed"] = suppressed
		out = append(out, e)
	}
	return out
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
	if phase == slurm.Prolog {
		return "bookend-prolog"
	}
	return "bookend-epilog"
}
