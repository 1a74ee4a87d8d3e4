package operation

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"bookend/internal/code"
	"bookend/internal/metrics"
	"bookend/internal/safefile"
	"bookend/internal/slurm"
	"bookend/internal/state"
)

// The log file below paths.log, and the size at which it is rotated once. logrotate may take it over.
const (
	logFile     = "bookend.log"
	maxLogBytes = 16 << 20
)

// The locks below paths.run, each held by the one child of this host that is at the log, at the counts, or at the
// records; others wait for it as long as a few fsyncs take. Three, because the first two take no fsync: of many hooks
// at once each finds time for its own.
const (
	logLock   = "state/log-disk.lock"
	countLock = "state/count-disk.lock"
	diskLock  = "state/disk.lock"
	diskWait  = 300 * time.Millisecond
)

// DiskRequest is everything that touches a disk.
type DiskRequest struct {
	Log     []byte    `json:"log,omitempty"`
	LogDir  string    `json:"log_dir,omitempty"`
	Run     string    `json:"run"`
	Var     string    `json:"var"`
	Node    string    `json:"node,omitempty"`
	Archive bool      `json:"archive,omitempty"`
	Now     time.Time `json:"now"`
	// Drop is the job whose drop has served; empty for none.
	Drop slurm.Owner `json:"drop,omitzero"`

	Textfile string      `json:"textfile,omitempty"` // of the metrics
	Counted  metrics.Run `json:"counted"`
}

// DiskReply says what went wrong.
type DiskReply struct {
	Troubles []DiskTrouble `json:"troubles,omitempty"`
}

// Disk writes the log and the metrics, moves records to the disk, and removes drops that have served.
var Disk = Operation[DiskRequest, DiskReply]{"disk", atTheDisk}

func atTheDisk(r DiskRequest) (DiskReply, error) {
	d := atDisk{DiskRequest: r}
	d.retire() // first: it takes no time, and the rest may take all there is
	// Where one is refused that lock hangs, most likely the other folders do as well, and would keep a second child.
	if (len(r.Log) == 0 || d.alone(logLock, d.log)) && d.alone(countLock, d.count) {
		d.keep()
	}
	return DiskReply{d.troubles}, nil
}

// atDisk is the disk child at work.
type atDisk struct {
	DiskRequest
	troubles []DiskTrouble
}

// alone does something under a lock. A child that hangs on a dead disk keeps it until it is gone: those after it give
// up instead of piling up, and leave the records where they are: then it returns false.
func (d *atDisk) alone(lock string, do func()) bool {
	err := d.unlessLocked(lock, do)
	if err != nil {
		d.troubles = append(d.troubles, DiskTrouble{Code: code.LogFailed, Text: err.Error()})
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

// keep moves records to the disk, which waits for that: whoever is refused leaves it to the next, and has nothing to
// tell, since another is at it. What goes wrong is told, and counted late.
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
}

// retire removes the job's drop.
func (d *atDisk) retire() {
	if d.Drop.Found() {
		d.note(code.StateWrite, state.RemoveDrop(d.Run, d.Node, d.Drop))
	}
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
	d.troubles = append(d.troubles, DiskTrouble{Code: c, Text: err.Error()})
}

// count adds the run, and what went wrong here so far, to the metrics.
func (d *atDisk) count() {
	d.Counted.Findings = append(d.Counted.Findings, counted(d.troubles)...)
	d.note(code.StateWrite, metrics.Record(d.files(), d.Counted))
}

func (d *atDisk) files() metrics.Files { return metrics.Files{Var: d.Var, Textfile: d.Textfile} }

// counted are troubles as the metrics count them.
func counted(troubles []DiskTrouble) (found []metrics.Finding) {
	for _, t := range troubles {
		own := t.Code != code.StateLock // a note, whatever policy says: it is over by the next hook
		found = append(found, metrics.Finding{Code: t.Code, Own: own, Detail: t.Text})
	}
	return found
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

// DiskTrouble is what went wrong at the disk: by then the verdict and the job's record are final.
type DiskTrouble struct {
	Code code.Code `json:"code"`
	Text string    `json:"text"`
}
