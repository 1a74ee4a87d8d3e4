// Package publish does what a hook leaves behind besides its verdict: the log, the metrics and the archive of records.
package publish

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/catalog"
	"bookend/internal/child"
	"bookend/internal/config"
	"bookend/internal/metrics"
	"bookend/internal/record"
	"bookend/internal/safefile"
	"bookend/internal/slurm"
	"bookend/internal/state"
)

// The log file in paths.log, and the size at which it is renamed to .1. logrotate may rotate it instead.
const (
	logFile     = "bookend.log"
	maxLogBytes = 16 << 20
)

// The locks in paths.run. Each is held by the one child of this host that writes log and metrics, or that archives
// records; the others wait as long as a few fsyncs take. There are two because the first kind takes no fsync.
const (
	logLock  = "state/log-disk.lock"
	diskLock = "state/disk.lock"
	diskWait = 300 * time.Millisecond
)

// DiskRequest is all the work of a hook that touches a disk.
type DiskRequest struct {
	Log     []byte    `json:"log,omitempty"`
	LogDir  string    `json:"log_dir,omitempty"`
	Run     string    `json:"run"`
	Var     string    `json:"var"`
	Node    string    `json:"node,omitempty"`
	Archive bool      `json:"archive,omitempty"`
	Now     time.Time `json:"now"`
	// Drop is the job whose drop file is no longer needed, and DropUID its user; empty for none.
	Drop    slurm.Owner `json:"drop,omitzero"`
	DropUID uint32      `json:"drop_uid,omitempty"`

	Textfile string         `json:"textfile,omitempty"` // the metrics file; empty for none
	JobMap   config.JobMap  `json:"job_map,omitzero"`
	Counted  metrics.JobRun `json:"counted"`

	// How a failed write is logged, once an hour.
	Boot   time.Duration `json:"boot_ns"` // CLOCK_BOOTTIME now
	Env    []string      `json:"env"`     // by which a process finds the hook's configuration
	Words  config.Log    `json:"words"`
	Hook   Entry         `json:"hook"`             // all but level and message
	Syslog string        `json:"syslog,omitempty"` // path of the socket
}

// Disk writes log and metrics, archives records and removes used drop files. It returns what went wrong.
var Disk = child.NewOperation("disk", func(r DiskRequest) ([]metrics.Finding, error) {
	w := r.work()
	w.do()
	return w.troubles, nil
})

// diskWork is one attempt to do all of a request.
type diskWork struct {
	DiskRequest
	at       atomic.Pointer[record.DiskTask] // the task in progress
	troubles []metrics.Finding
	outcomes map[record.DiskTask]*record.DiskTrouble // nil for a task that succeeded
}

func (r DiskRequest) work() *diskWork {
	return &diskWork{DiskRequest: r, outcomes: map[record.DiskTask]*record.DiskTrouble{}}
}

func (w *diskWork) do() {
	if w.Drop.Found() { // first: it is quick, and the rest may use up the time
		w.note("", catalog.StateWrite, state.Users{Run: w.Run, Node: w.Node}.RemoveDrop(w.DropUID, w.Drop))
	}
	// A child that hangs on a dead disk keeps its lock until it is gone. Later ones then give up instead of piling up,
	// and leave the records where they are, since most likely the other directories hang as well.
	logged := w.alone(logLock, func() {
		if len(w.Log) > 0 {
			w.task(record.DiskLog, catalog.LogFailed, func() error { return appendLog(w.LogDir, w.Log) })
		}
		w.task(record.DiskJobMap, catalog.StateWrite, w.mapJobs)
		w.Counted.Findings = append(w.Counted.Findings, w.troubles...)
		w.Counted.Quarantined = w.quarantined()
		w.task(record.DiskMetrics, catalog.StateWrite, func() error { return metrics.Record(w.files(), w.Counted) })
	})
	if logged != nil {
		w.troubles = append(w.troubles, metrics.Finding{Code: catalog.LogFailed, Own: true, Detail: logged.Error()})
	}
	if w.Archive {
		w.archive(logged == nil)
	}
	w.publish()
}

// mapJobs tells exporters which jobs have GPUs now. The lock is held from the reading of the records to the writing:
// what one hook writes is never older than what another wrote before it.
func (w *diskWork) mapJobs() error {
	if w.JobMap == (config.JobMap{}) {
		return nil
	}
	running := w.running()
	if w.JobMap.Metric {
		w.Counted.Running = running
	}
	return metrics.MapJobs(w.JobMap.DCGM, w.JobMap.Gpustat, running)
}

// running returns which jobs have which GPUs, by the records of this host's nodes. It leaves out what they are not
// certain of, so that a GPU may lack its job but never has another's.
func (w *diskWork) running() (all []metrics.GPUJob) {
	nodes, _, _ := state.Copied(filepath.Join(w.Run, "state"))
	now := state.LastInventory.PeekNode(w.Run, w.Node)
	before := slices.Concat(now.Cards, now.Gone) // DCGM still counts a GPU that was lost since it started
	for _, runs := range nodes {
		for _, r := range runs {
			for _, d := range r.Devices {
				on := metrics.GPUJob{Job: uint32(r.Job.ID), UID: r.Job.UID, UUID: string(d.Device.ID), Slurm: d.Index,
					Ordinal: d.Device.Ordinal(now.Cards)}
				if on.Ordinal != d.Device.Ordinal(before) {
					on.Ordinal = -1
				}
				if r.Running(runs) {
					all = append(all, on)
				}
			}
		}
	}
	slices.SortFunc(all, func(a, b metrics.GPUJob) int {
		return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.UUID, b.UUID))
	})
	return slices.Compact(all)
}

// HoldFlag starts a program to have jobs hold the GPUs that are to be in quarantine; the node's name follows.
const HoldFlag = "--hold"

// quarantined returns the GPUs of this host that jobs of root's keep from others, and those of this node that none does
// though an admin wants it: a health check leaves a process that changes that.
func (w *diskWork) quarantined() (all []metrics.GPUJob) {
	nodes, _ := state.Nodes(w.Run, "")
	for _, name := range nodes {
		for _, q := range state.Quarantines.PeekNode(w.Run, name) {
			if q.GPU >= 0 {
				all = append(all, metrics.GPUJob{Slurm: q.GPU, UUID: string(q.UUID), Job: uint32(q.Job)})
			}
		}
	}
	wanted, _ := child.Journal[[]state.Quarantine]{Dir: w.Var, Name: "quarantines-" + w.Node + ".json"}.Read()
	wanted = slices.DeleteFunc(wanted, func(q state.Quarantine) bool { return q.Over(w.Now) })
	for _, q := range wanted {
		held := func(on metrics.GPUJob) bool { return on.Slurm == q.GPU && on.UUID == string(q.UUID) }
		if !slices.ContainsFunc(all, held) {
			all = append(all, metrics.GPUJob{Slurm: q.GPU, UUID: string(q.UUID)})
		}
	}
	if len(wanted) > 0 && w.Counted.Hook == metrics.HealthCheck {
		_ = child.Detach(w.Env, nil, HoldFlag, w.Node) // bookend status shows what that comes to
	}
	return all
}

func (w *diskWork) files() metrics.Files { return metrics.Files{Var: w.Var, Textfile: w.Textfile} }

func (w *diskWork) task(task record.DiskTask, c catalog.Code, do func() error) {
	w.at.Store(&task)
	w.note(task, c, do())
}

// note stores the outcome of a task. A busy lock is no fault of the disk: it is free by the next hook.
func (w *diskWork) note(task record.DiskTask, c catalog.Code, err error) {
	damaged := errors.As(err, new(state.Damage)) || errors.Is(err, metrics.ErrDamaged)
	switch refused := errors.As(err, new(unix.Errno)); {
	case errors.Is(err, state.ErrLocked):
		c = catalog.StateLock // a note, whatever policy says
	case err == nil || damaged && !refused:
		w.outcomes[task] = nil
		c = catalog.StateDamage
	default:
		w.outcomes[task] = &record.DiskTrouble{Task: task, Code: c, Detail: err.Error()}
	}
	if err != nil {
		w.troubles = append(w.troubles, metrics.Finding{Code: c, Own: c != catalog.StateLock, Detail: err.Error()})
	}
}

// archive moves records to the disk, unless another process is doing so. Records that cannot be archived must not fill
// the memory in which hooks keep them, so some are dropped (state.Shed).
func (w *diskWork) archive(may bool) {
	before := len(w.troubles)
	if may {
		_ = w.alone(diskLock, func() {
			w.task(record.DiskHistory, catalog.StateWrite, func() error {
				return state.Archive(w.Run, w.Var, w.Node, w.Now)
			})
		})
	}
	outcome, tried := w.outcomes[record.DiskHistory]
	if tried && outcome == nil {
		return
	}
	lost, err := state.Shed(w.Run, w.Node)
	w.note("", catalog.StateWrite, err)
	if lost > 0 && outcome == nil {
		outcome = &record.DiskTrouble{Task: record.DiskHistory, Code: catalog.StateWrite,
			Detail: "archive: another process has been at the disk for too long"}
		w.outcomes[record.DiskHistory] = outcome
	}
	if lost > 0 {
		outcome.Dropped = lost
	}
	if more := w.troubles[before:]; len(more) > 0 {
		_ = w.alone(logLock, func() {
			for _, t := range more {
				_ = metrics.Add(w.files(), w.Counted, t)
			}
		})
	}
}

// publish stores the outcomes for bookend status, and reports each failure to the log, or syslog, once an hour.
func (w *diskWork) publish() {
	delete(w.outcomes, "")
	isTrouble := func(t *record.DiskTrouble) bool { return t != nil }
	failed := slices.ContainsFunc(slices.Collect(maps.Values(w.outcomes)), isTrouble)
	if !failed && len(state.DiskTroubles.PeekNode(w.Run, w.Node)) == 0 {
		return
	}
	s, err := state.Open(w.Run, w.Node)
	if err != nil { // the hook has reported that
		return
	}
	_ = noteDisk(s, w.outcomes, w.Now)
	for _, task := range slices.Sorted(maps.Keys(w.outcomes)) {
		t := w.outcomes[task]
		if t == nil {
			continue
		}
		if say, suppressed := repeat(s, "disk "+string(task), w.Boot); say {
			w.report(*t, suppressed)
		}
	}
}

func (w *diskWork) report(t record.DiskTrouble, suppressed int) {
	known, _ := catalog.Lookup(t.Code)
	e := w.Hook
	e.Level, e.Message = config.Warning, fmt.Sprintf("%s: %s: %s", t.Code, known.Title, t.Detail)
	e.Fields = map[string]any{"node": w.Node, "suppressed": suppressed}
	line := e.Line(w.Words)
	if w.Words.Syslog {
		_ = e.Syslog(w.Syslog, line)
	}
	if w.Words.File && t.Task != record.DiskLog {
		_ = w.alone(logLock, func() { _ = appendLog(w.LogDir, line) })
	}
}

// NoAnswer stores that the disk did not answer; task is what was in progress, or "" for all of it.
func (r DiskRequest) NoAnswer(task record.DiskTask, why string) {
	w := r.work()
	tasks := []record.DiskTask{task}
	if task == "" {
		tasks = []record.DiskTask{record.DiskLog, record.DiskHistory}
	}
	for _, task := range tasks {
		c := catalog.StateWrite
		if task == record.DiskLog {
			c = catalog.LogFailed
		}
		w.outcomes[task] = &record.DiskTrouble{Task: task, Code: c, Detail: why}
	}
	w.Words.File = false // it would hang as well
	w.publish()
}

// DiskFlag starts a program to do the disk work of a hook that has ended; paths.run follows.
const DiskFlag = "--disk"

// Leave passes the request to a process for which no hook waits, and reports whether it could. It does not if the lock
// has been held for a while, or the last attempt failed: then this hook waits, and reports the errors itself.
func (r DiskRequest) Leave() (left bool) {
	if len(state.DiskTroubles.PeekNode(r.Run, r.Node)) > 0 {
		return false
	}
	lock := filepath.Join(r.Run, logLock)
	free, err := safefile.Lock(lock, 0, true)
	switch {
	case err == nil:
		free()
	case !errors.Is(err, safefile.ErrLocked) || r.Now.Sub(changedHands(lock)).Abs() > diskWait:
		return false
	}
	request, err := json.Marshal(r)
	return err == nil && child.Detach(nil, request, DiskFlag, r.Run) == nil
}

func ServeDisk(env child.Env) int {
	env.Confine()
	const limit = 5 * time.Second // if the disk does not answer, the process stays, and later ones find the lock held
	var r DiskRequest
	if err := json.NewDecoder(io.LimitReader(env.Stdin, child.MaxRequest)).Decode(&r); err != nil {
		return 1
	}
	w := r.work()
	within(limit, w.do, func() {
		defer child.Recover(func(*child.Panic) { env.Exit(1) })
		if at := w.at.Load(); at != nil {
			r.NoAnswer(*at, fmt.Sprintf("the disk has not answered for %v", limit))
		}
		env.Exit(1)
	})
	if len(w.troubles) > 0 {
		return 1
	}
	return 0
}

// within calls do, and calls late if do takes longer than limit. It does not return while late runs: the end of the
// process could then leave a file half written.
func within(limit time.Duration, do, late func()) {
	over := make(chan struct{})
	timer := time.AfterFunc(limit, func() { defer close(over); late() })
	if do(); !timer.Stop() {
		<-over
	}
}

// alone calls do under a lock, or returns safefile.ErrLocked if the lock has not changed hands for diskWait.
func (r DiskRequest) alone(lock string, do func()) error {
	path := filepath.Join(r.Run, lock)
	var release func()
	err := inTurn(func() (err error) {
		release, err = safefile.Lock(path, diskWait, true)
		return err
	}, func() time.Time { return changedHands(path) })
	if errors.Is(err, safefile.ErrLocked) {
		return err
	}
	if err == nil { // without state there is no lock, but all the more to log
		defer release()
		_ = unix.Utimes(path, nil)
	}
	do()
	return nil
}

// inTurn tries to take a lock for as long as others get it: many hooks at once do not mean that the disk hangs.
func inTurn(try func() error, changed func() time.Time) error {
	for was := changed(); ; {
		err := try()
		now := changed()
		if !errors.Is(err, safefile.ErrLocked) || now.Equal(was) {
			return err
		}
		was = now
	}
}

// changedHands returns when a lock was last taken, from its file; zero if there is none.
func changedHands(path string) (at time.Time) {
	// Threat: none, only root can write to the directory, and a wrong time only changes whether a hook waits.
	if info, err := os.Lstat(path); err == nil {
		at = info.ModTime()
	}
	return at
}

// appendLog writes to root's log directory, which it makes on first use and otherwise leaves as the site set it up.
func appendLog(dir string, lines []byte) error {
	// Threat: /var/log may be writable by a group, which could put another directory here. Append opens the directory
	// itself and refuses one that root does not own or that others can write to.
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make log directory: %w", err)
	}
	return safefile.Append(dir, logFile, lines, maxLogBytes)
}
