package operation

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"bookend/internal/child"
	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/metrics"
	"bookend/internal/report"
	"bookend/internal/routine"
	"bookend/internal/safefile"
	"bookend/internal/slurm"
	"bookend/internal/state"
)

// The log file below paths.log, and the size at which it is rotated once. logrotate may take it over.
const (
	logFile     = "bookend.log"
	maxLogBytes = 16 << 20
)

// The locks below paths.run, each held by the one child of this host that is at log and counts, or at records; others
// wait as long as a few fsyncs take. Two, because the first takes no fsync.
const (
	logLock  = "state/log-disk.lock"
	diskLock = "state/disk.lock"
	diskWait = 300 * time.Millisecond
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

// Disk writes log and metrics, archives records and removes used drops. It answers what went wrong.
var Disk = New("disk", atTheDisk)

func atTheDisk(r DiskRequest) ([]metrics.Finding, error) {
	var troubles []metrics.Finding
	note := func(c code.Code, err error) {
		switch {
		case err == nil:
			return
		case errors.As(err, new(state.Damage)), errors.Is(err, metrics.ErrDamaged):
			c = code.StateDamage
		case errors.Is(err, state.ErrLocked):
			c = code.StateLock
		}
		// A busy lock is a note, whatever policy says: it is over by the next hook.
		troubles = append(troubles, metrics.Finding{Code: c, Own: c != code.StateLock, Detail: err.Error()})
	}
	if r.Drop.Found() { // first: it takes no time, and the rest may take all there is
		note(code.StateWrite, state.RemoveDrop(r.Run, r.Node, r.Drop))
	}
	files := metrics.Files{Var: r.Var, Textfile: r.Textfile}
	// A child that hangs on a dead disk keeps its lock until it is gone: those after it give up instead of piling up,
	// and leave the records where they are, as most likely the other directories hang as well.
	logged := r.alone(logLock, func() {
		if len(r.Log) > 0 {
			note(code.LogFailed, appendLog(r.LogDir, r.Log))
		}
		r.Counted.Findings = append(r.Counted.Findings, troubles...)
		note(code.StateWrite, metrics.Record(files, r.Counted))
	})
	if logged != nil {
		return append(troubles, metrics.Finding{Code: code.LogFailed, Own: true, Detail: logged.Error()}), nil
	}
	if r.Archive { // which waits for the disk: whoever is refused leaves it to the one that is at it
		_ = r.alone(diskLock, func() {
			note(code.StateWrite, state.Archive(r.Run, r.Var, r.Node, r.Now))
		})
	}
	return troubles, nil
}

// DiskFlag starts a program to do what a hook that has ended left it to do on the disk; paths.run follows.
const DiskFlag = "--disk"

// diskTroubles, below paths.run, is there where a process that nobody waited for had trouble at the disk.
const diskTroubles = "state/disk-troubles.json"

// Leave leaves the disk to a process that nobody waits for, and reports whether it could. Where one is at work still,
// or an earlier one had trouble, it does not: this hook is to wait, and to tell what it meets itself.
func (r DiskRequest) Leave() (left bool) {
	if os.Remove(filepath.Join(r.Run, diskTroubles)) == nil {
		return false
	}
	free, err := safefile.Lock(filepath.Join(r.Run, logLock), 0, true)
	if err != nil {
		return false
	}
	free()
	request, err := json.Marshal(r)
	return err == nil && child.Detach(nil, request, DiskFlag, r.Run) == nil
}

// ServeDisk does what Leave left to this process.
func ServeDisk(env Env) int {
	Confine(env)
	const limit = 5 * time.Second // on a disk that does not answer it stays, and those after it find the lock held
	trouble := func() int {
		_ = safefile.Replace(filepath.Join(env.Args[2], "state"), filepath.Base(diskTroubles), nil, 0o600)
		return 1
	}
	routine.Go(func(*routine.Panic) { env.Exit(1) }, func() {
		time.Sleep(limit)
		env.Exit(trouble())
	})
	var r DiskRequest
	if err := json.NewDecoder(io.LimitReader(env.Stdin, maxReply)).Decode(&r); err != nil {
		return 1
	}
	if troubles, _ := atTheDisk(r); len(troubles) > 0 {
		return trouble()
	}
	return 0
}

// alone does something under a lock, or gives safefile.ErrLocked.
func (r DiskRequest) alone(lock string, do func()) error {
	release, err := safefile.Lock(filepath.Join(r.Run, lock), diskWait, true)
	if errors.Is(err, safefile.ErrLocked) {
		return err
	}
	if err == nil { // where there is no state there is no lock, but all the more to log
		defer release()
	}
	do()
	return nil
}

// appendLog writes to root's own log directory, which it makes on first use and otherwise leaves as the site has it.
func appendLog(dir string, lines []byte) error {
	// Threat: /var/log may be writable by a group, which could put another directory here. Append opens the directory
	// itself and refuses one that is not root's or that others can write to.
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make log directory: %w", err)
	}
	return safefile.Append(dir, logFile, lines, maxLogBytes)
}

// Bounds on one line, so that no job can flood the log: at most about 20 KiB.
const (
	maxMessage = 512 // bytes of the message
	maxValue   = 256 // bytes of one value
)

// Entry is one line of Bookend's own log, as bytes: a child appends them, as anything on disk can sleep.
type Entry struct {
	At      time.Time // written in its own time zone
	Level   config.LogLevel
	Program string // "bookend-prolog"
	PID     int
	Message string
	Fields  map[string]any // by names that are constants of this program; values may come from outside
}

// Line returns the entry as one line of printable ASCII with its newline, or nil when c's level leaves it out.
func (e Entry) Line(c config.Log) []byte {
	const timestamp = "2006-01-02T15:04:05.000Z07:00"
	var line bytes.Buffer
	least, _ := logrus.ParseLevel(string(c.Level)) // the configuration has no other levels
	own, _ := logrus.ParseLevel(string(e.Level))
	logger := &logrus.Logger{
		Out: &line, Level: least,
		Formatter: &logrus.TextFormatter{TimestampFormat: timestamp, DisableColors: true, FullTimestamp: true},
	}
	if c.Format == config.JSON {
		logger.Formatter = &logrus.JSONFormatter{TimestampFormat: timestamp, DisableHTMLEscape: true}
	}
	fields := logrus.Fields{"program": safe(e.Program), "pid": e.PID}
	for name, value := range e.Fields {
		fields[string(report.Clean(name, 32))] = safe(value)
	}
	logger.WithTime(e.At).WithFields(fields).Log(own, string(report.Clean(e.Message, maxMessage)))
	return line.Bytes()
}

// safe keeps numbers and truth values, so that JSON has them as such; all else becomes clean text.
func safe(value any) any {
	switch v := value.(type) {
	case bool, int, uint32:
		return v
	case time.Duration:
		return v.Seconds()
	}
	return string(report.Clean(fmt.Sprint(value), maxValue))
}

// Syslog sends a line of Line to the log socket at path (/dev/log). It never waits: a log daemon that does not
// read is an error at once. No socket is no error, as containers and small nodes have none.
//
// The standard library's log/syslog waits on a full socket, and package net makes a hook 450 kB larger.
func (e Entry) Syslog(path string, line []byte) error {
	if len(line) == 0 {
		return nil
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("open log socket: %w", err)
	}
	defer unix.Close(fd)
	// Threat: a path that others can replace would get what the log says of jobs; configuration names it, root's.
	err = unix.Sendto(fd, e.frame(line), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, &unix.SockaddrUnix{Name: path})
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("send to log socket %q: %w", path, err)
	}
	return nil
}

// frame puts RFC 3164's head before the line, as local programs write it: without the host's name.
func (e Entry) frame(line []byte) []byte {
	const daemon = 3 << 3 // the facility
	severity := map[config.LogLevel]int{config.Error: 3, config.Warning: 4, config.Info: 6, config.Debug: 7}[e.Level]
	head := fmt.Sprintf("<%d>%s %s[%d]: ", daemon|severity, e.At.Format(time.Stamp), e.Program, e.PID)
	return append([]byte(head), bytes.TrimSuffix(line, []byte("\n"))...)
}
