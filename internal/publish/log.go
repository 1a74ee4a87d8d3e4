package publish

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"bookend/internal/config"
	"bookend/internal/node"
	"bookend/internal/safetext"
)

// Limits for one line, about 20 KiB at most, so that no job can flood the log.
const (
	maxMessage = 512 // bytes of the message
	maxValue   = 256 // bytes of one value
)

// Entry is one line of Bookend's own log. A child appends it, because anything on a disk can sleep.
type Entry struct {
	At      time.Time // written in its own time zone
	Level   config.LogLevel
	Program string // "bookend-prolog"
	PID     int
	Message string
	Fields  map[string]any // the names are constants of this program; values may come from outside
	// Found are the findings that the line is about, each a code and Slurm's number of its GPU, for systemd's journal.
	Found []Found
}

// Found is a finding as a reader of the journal selects it. Both are this program's own words; GPU may be empty.
type Found struct{ Code, GPU string }

// Line returns the entry as one line of printable ASCII with its newline, or nil if c's level leaves it out.
func (e Entry) Line(c config.Log) []byte {
	const timestamp = "2006-01-02T15:04:05.000Z07:00"
	var line bytes.Buffer
	least, _ := logrus.ParseLevel(string(c.Level)) // the configuration has no other levels
	own, _ := logrus.ParseLevel(string(e.Level))
	logger := &logrus.Logger{Out: &line, Level: least,
		Formatter: &logrus.TextFormatter{TimestampFormat: timestamp, DisableColors: true, FullTimestamp: true}}
	if c.Format == config.JSON {
		logger.Formatter = &logrus.JSONFormatter{TimestampFormat: timestamp, DisableHTMLEscape: true}
	}
	fields := logrus.Fields{"program": safe(e.Program), "pid": e.PID}
	for name, value := range e.Fields {
		fields[string(safetext.Clean(name, 32))] = safe(value)
	}
	logger.WithTime(e.At).WithFields(fields).Log(own, string(safetext.Clean(e.Message, maxMessage)))
	return line.Bytes()
}

// safe keeps numbers and truth values, so that they are such in JSON; anything else becomes clean text.
func safe(value any) any {
	switch v := value.(type) {
	case bool, int, uint32:
		return v
	case time.Duration:
		return v.Seconds()
	}
	return string(safetext.Clean(fmt.Sprint(value), maxValue))
}

// Note writes one line to Bookend's log for a program that is no hook; the same again only once an hour, if seldom.
func Note(a *node.Access, level config.LogLevel, text string, seldom bool) {
	if seldom {
		if say, _ := repeat(a.Store, text, a.Env.Clock.Boot()); !say {
			return
		}
	}
	e := newEntry(a, level, text)
	sendSyslog(a, e)
	if line := e.Line(a.Config.Log); a.Config.Log.File && len(line) > 0 {
		_ = DiskRequest{Run: a.Config.Paths.Run}.alone(logLock, func() { _ = appendLog(a.Config.Paths.Log, line) })
	}
}

// Syslog sends a line from Line to the log socket at path (/dev/log). It never waits: if the log daemon does not read,
// it returns an error at once. A missing socket is no error, as containers and small nodes have none. If the socket is
// that of systemd's journal, the fields go there one by one.
//
// The standard library's log/syslog waits on a full socket, and package net makes a hook 450 kB larger.
func (e Entry) Syslog(path string, line []byte) error {
	if len(line) == 0 {
		return nil
	}
	data := e.frame(line)
	if link, err := os.Readlink(path); err == nil && filepath.Base(link) == "dev-log" && filepath.IsAbs(link) {
		path, data = filepath.Join(filepath.Dir(link), "socket"), e.journal(line)
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("open log socket: %w", err)
	}
	defer unix.Close(fd)
	// Threat: another socket at path would get the log's lines about jobs. The path is from root's configuration.
	err = unix.Sendto(fd, data, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, &unix.SockaddrUnix{Name: path})
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("send to log socket %q: %w", path, err)
	}
	return nil
}

const daemon = 3 // the facility of RFC 3164

// frame adds the header of RFC 3164 as local programs write it: without the host name.
func (e Entry) frame(line []byte) []byte {
	head := fmt.Sprintf("<%d>%s %s[%d]: ", daemon<<3|e.severity(), e.At.Format(time.Stamp), e.Program, e.PID)
	return append([]byte(head), bytes.TrimSuffix(line, []byte("\n"))...)
}

func (e Entry) severity() int {
	return map[config.LogLevel]int{config.Error: 3, config.Warning: 4, config.Info: 6, config.Debug: 7}[e.Level]
}

// journal is the line in the journal's own form. No value has a newline, so none can add a field.
func (e Entry) journal(line []byte) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "MESSAGE=%s\nPRIORITY=%d\nSYSLOG_FACILITY=%d\nSYSLOG_IDENTIFIER=%s\nSYSLOG_PID=%d\n",
		bytes.TrimSuffix(line, []byte("\n")), e.severity(), daemon, safe(e.Program), e.PID)
	for field, name := range map[string]string{"JOB_ID": "job", "NODE": "node", "UID": "uid"} {
		if value, known := e.Fields[name]; known {
			fmt.Fprintf(&b, "BOOKEND_%s=%v\n", field, safe(value))
		}
	}
	for _, f := range e.Found {
		fmt.Fprintf(&b, "BOOKEND_CODE=%v\n", safe(f.Code))
		if f.GPU != "" {
			fmt.Fprintf(&b, "BOOKEND_GPU=%v\n", safe(f.GPU))
		}
	}
	return b.Bytes()
}
