package stage

import (
	"context"
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
	"bookend/internal/metrics"
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

// The locks below paths.run, each held by the one child of this host that is at the log, at the counts, or at the records;
// others wait for it as long as a few fsyncs take. Three, because the first two take no fsync: of many hooks at once each
// finds time for its own.
const (
	logLock   = "state/log-disk.lock"
	countLock = "state/count-disk.lock"
	diskLock  = "state/disk.lock"
	dropLock  = "state/drop.lock" // of the one that removes drop folders; nobody waits for it
	diskWait  = 300 * time.Millisecond
	// fewSteps take no time worth asking for: entries of drop folders that are removed however late it is.
	fewSteps = 64
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
	// Sweep: drop folders that others put aside are removed, though none has just served.
	Sweep bool `json:"sweep,omitempty"`
	// Within is how long the hook waits for all of it.
	Within time.Duration `json:"within_ns"`

	Textfile string        `json:"textfile,omitempty"` // of the metrics
	Counted  metrics.Run   `json:"counted"`
	Boot     time.Duration `json:"boot_ns"` // the hook's CLOCK_BOOTTIME
	// Program, PID and LogAs are for lines of the log about the disk itself.
	Program string     `json:"program"`
	PID     int        `json:"pid"`
	LogAs   config.Log `json:"log_as"`
}

type diskReply struct {
	Troubles []diskTrouble `json:"troubles,omitempty"`
}

var serveDisk = served(func(r diskRequest) (diskReply, error) {
	d := atDisk{diskRequest: r}
	inTime, cancel := context.WithTimeout(context.Background(), r.Within/2) // the rest is for the answer
	defer cancel()
	d.retire() // first: it takes no time, and the rest may take all there is
	// Where one is refused that lock hangs, most likely the other folders do as well, and would keep a second child.
	if (len(r.Log) == 0 || d.alone(logLock, d.log)) && d.alone(countLock, d.count) {
		d.keep()
	}
	d.clear(inTime)
	return diskReply{d.troubles}, nil
})

// atDisk is the disk child at work.
type atDisk struct {
	diskRequest
	troubles []diskTrouble
}

// alone does something under a lock. A child that hangs on a dead disk keeps it until it is gone: those after it give up
// instead of piling up, and leave the records where they are: then it returns false.
func (d *atDisk) alone(lock string, do func()) bool {
	err := d.unlessLocked(lock, do)
	if err != nil {
		d.troubles = append(d.troubles, diskTrouble{Code: code.LogFailed, Text: err.Error()})
	}
	return err == nil
}

// unlessLocked does something under a lock, or gives safefile.ErrLocked.
func (d *atDisk) unlessLocked(lock string, do func()) error {
	release, err := safefile.Lock(filepath.Join(d.Run, lock), diskWait, true)
	if errors.Is(err, safefile.ErrLocked) {
		return err
	}
	if err == nil { // where there is no state there is no lock, but all the more to log
		defer release()
	}
	do()
	return nil
}

func (d *atDisk) log() { d.note(code.LogFailed, appendLog(d.LogDir, d.Log)) }

// keep moves records to the disk, which waits for that: whoever is refused leaves it to the next, and has nothing to tell,
// since another is at it. What goes wrong is told, and counted late.
func (d *atDisk) keep() {
	early := len(d.troubles)
	if d.Archive {
		_ = d.unlessLocked(diskLock, func() {
			d.note(code.StateWrite, state.Archive(d.Run, d.Var, d.Node, d.Now, state.DefaultLimits()))
		})
	}
	if late := counted(d.troubles[early:]); len(late) > 0 {
		d.alone(countLock, func() { d.note(code.StateWrite, metrics.Also(d.files(), d.Counted, late)) })
	}
	d.tell()
}

// retire puts the job's drop folder aside.
func (d *atDisk) retire() {
	if d.Drop.Found() {
		d.note(code.StateWrite, state.RetireDrop(d.Run, d.Node, d.Drop))
	}
}

// clear removes drop folders that were put aside, while there is time. It comes last: how long it takes is in users' hands.
// Whoever finds another at it leaves all to the next.
func (d *atDisk) clear(inTime context.Context) {
	if !d.Drop.Found() && !d.Sweep {
		return
	}
	late := atDisk{diskRequest: d.diskRequest}
	release, err := safefile.Lock(filepath.Join(d.Run, dropLock), 0, true)
	if !errors.Is(err, safefile.ErrLocked) {
		steps := 0
		late.note(code.StateWrite, state.RemoveDrops(d.Run, d.Node, func() bool { steps++; return steps <= fewSteps || inTime.Err() == nil }))
	}
	if err == nil { // a full file system has no room for a lock, but all the more to remove
		release()
	}
	late.tell()
	d.troubles = append(d.troubles, late.troubles...)
}

func (d *atDisk) note(c code.Code, err error) {
	switch {
	case err == nil:
		return
	case errors.As(err, new(state.Damage)), errors.Is(err, metrics.ErrDamaged):
		c = code.StateDamage
	case errors.Is(err, state.ErrLocked):
		c = code.StateLock
	}
	d.troubles = append(d.troubles, diskTrouble{Code: c, Text: err.Error()})
}

// count adds the run, and what went wrong here so far, to the metrics.
func (d *atDisk) count() {
	d.Counted.Findings = append(d.Counted.Findings, counted(d.troubles)...)
	d.note(code.StateWrite, metrics.Record(d.files(), d.Counted))
}

func (d *atDisk) files() metrics.Files { return metrics.Files{Var: d.Var, Textfile: d.Textfile} }

// counted are troubles as the metrics count them.
func counted(troubles []diskTrouble) (found []metrics.Finding) {
	for _, t := range troubles {
		own := t.Code != code.StateLock // a note, whatever policy says: it is over by the next hook
		found = append(found, metrics.Finding{Code: t.Code, Own: own, Detail: t.Text})
	}
	return found
}

// tell adds to the log what went wrong at the disk, the same once an hour. Where it is the log that fails, or there is
// none, slurmd's log has it.
func (d *atDisk) tell() {
	if len(d.troubles) == 0 {
		return
	}
	store, err := state.Open(d.Run, d.Node)
	if err != nil {
		store = nil
	}
	var said []byte
	for i := range d.troubles {
		t := &d.troubles[i]
		if t.Say = true; store != nil {
			t.Say, _ = store.Repeat(string(t.Code)+" at the disk", d.Boot)
		}
		if t.Say && t.Code != code.LogFailed && len(d.Log) > 0 {
			said = append(said, t.entry(d.line()).Line(d.LogAs)...)
		}
	}
	if len(said) > 0 {
		d.note(code.LogFailed, appendLog(d.LogDir, said))
	}
}

func (d *atDisk) line() runlog.Entry {
	fields := runlog.Fields{"node": d.Node}
	if d.Counted.Job != 0 {
		fields["job"] = uint32(d.Counted.Job)
	}
	return runlog.Entry{At: d.Now, Level: config.Warning, Program: d.Program, PID: d.PID, Fields: fields}
}

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
	req := diskRequest{
		Run: h.cfg.Paths.Run, Var: h.cfg.Paths.Var, Node: h.job.Node, Now: h.env.Clock.Wall(), Boot: h.env.Clock.Boot(),
		Textfile: h.cfg.Metrics.Textfile, Counted: h.counted(), Program: program(h.phase), PID: h.env.PID, LogAs: h.cfg.Log,
	}
	if h.cfg.Log.File {
		req.Log, req.LogDir = lines, h.cfg.Paths.Log
	}
	if h.phase != slurm.Prolog && h.store != nil {
		req.Archive, req.Drop, req.Sweep = true, slurm.Owner{ID: h.job.ID, SLUID: h.job.SLUID}, h.phase == slurm.HealthCheck
	}
	req.Within = h.left(time.Duration(h.times.Outputs), 0)
	reply, err := ask[diskReply](opDisk, req, req.Within)
	if err != nil { // the log has no word of this run, nor have the metrics
		reply.Troubles = append(reply.Troubles, diskTrouble{Code: code.LogFailed, Text: err.Error(), Say: true})
	}
	for _, t := range reply.Troubles {
		fmt.Fprintf(h.env.Stderr, "bookend: %s\n", t.Text) // slurmd's log is all that is left
		if t.Say {
			h.syslog(t.entry(h.entry(config.Warning, "")))
		}
	}
}

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

// faults details what is not about a card, of a health check also what is: the same fault is said once an hour a node and
// counted meanwhile.
func (h *hook) faults() []runlog.Entry {
	var out []runlog.Entry
	for _, f := range h.found {
		entry, _ := code.Lookup(f.Code)
		onCard := entry.Scope == code.Card || entry.Scope == code.Elsewhere && h.phase == slurm.HealthCheck
		if onCard && h.phase != slurm.HealthCheck || h.store == nil && f.Code == code.NoRecord {
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
