package operation

import (
	"bytes"
	"fmt"
	"time"

	"bookend/internal/config"
	"bookend/internal/report"

	"github.com/sirupsen/logrus"
)

// Bounds on one line, so that no job can flood the log: at most about 20 KiB.
const (
	maxMessage = 512 // bytes of the message
	maxValue   = 256 // bytes of one value
)

// Fields are a line's values. Names are constants of this program; values may come from outside.
type Fields map[string]any

// Entry is one line of Bookend's own log to be, one for each hook run of a job with GPUs. It yields bytes; a child
// appends them to the file, as anything on disk can sleep.
type Entry struct {
	At      time.Time // written in its own time zone
	Level   config.LogLevel
	Program string // "bookend-prolog"
	PID     int
	Message string
	Fields  Fields
}

// Line returns the entry as one line of printable ASCII with its newline, or nil when c's level leaves it out.
func (e Entry) Line(c config.Log) []byte {
	var line bytes.Buffer
	logger := &logrus.Logger{Out: &line, Formatter: formatter(c.Format), Level: level(c.Level)}
	logger.WithTime(e.At).WithFields(e.clean()).Log(level(e.Level), string(report.Clean(e.Message, maxMessage)))
	return line.Bytes()
}

// clean bounds and cleans the fields.
func (e Entry) clean() logrus.Fields {
	fields := logrus.Fields{"program": safe(e.Program), "pid": e.PID}
	for name, value := range e.Fields {
		fields[string(report.Clean(name, 32))] = safe(value)
	}
	return fields
}

// safe keeps numbers and truth values, so that JSON has them as such; all else becomes clean text.
func safe(value any) any {
	switch v := value.(type) {
	case bool, int, int64, uint32, uint64:
		return v
	case time.Duration:
		return v.Seconds()
	case string:
		return string(report.Clean(v, maxValue))
	default:
		return string(report.Clean(fmt.Sprint(v), maxValue))
	}
}

const timestamp = "2006-01-02T15:04:05.000Z07:00"

func formatter(f config.LogFormat) logrus.Formatter {
	if f == config.JSON {
		return &logrus.JSONFormatter{TimestampFormat: timestamp, DisableHTMLEscape: true}
	}
	return &logrus.TextFormatter{TimestampFormat: timestamp, DisableColors: true, FullTimestamp: true}
}

func level(l config.LogLevel) logrus.Level {
	switch l {
	case config.Debug:
		return logrus.DebugLevel
	case config.Warning:
		return logrus.WarnLevel
	case config.Error:
		return logrus.ErrorLevel
	}
	return logrus.InfoLevel
}
