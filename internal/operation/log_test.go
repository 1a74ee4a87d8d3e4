package operation

import (
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bookend/internal/config"

	"golang.org/x/sys/unix"
)

var entry = Entry{
	At:      time.Date(2026, 3, 4, 5, 6, 7, 89e6, time.FixedZone("", 3600)),
	Level:   config.Warning,
	Program: "bookend-epilog",
	PID:     77,
	Message: "job ended",
	Fields:  Fields{"job": uint32(1234), "took_seconds": 1500 * time.Millisecond, "code": "BKD-ORPHAN", "drained": false},
}

func TestLine(t *testing.T) {
	for format, want := range map[config.LogFormat]string{
		"": `time="2026-03-04T05:06:07.089+01:00" level=warning msg="job ended" code=BKD-ORPHAN drained=false ` +
			"job=1234 pid=77 program=bookend-epilog took_seconds=1.5\n",
		config.JSON: `{"code":"BKD-ORPHAN","drained":false,"job":1234,"level":"warning","msg":"job ended","pid":77,` +
			`"program":"bookend-epilog","time":"2026-03-04T05:06:07.089+01:00","took_seconds":1.5}` + "\n",
	} {
		if got := string(entry.Line(config.Log{Level: config.Info, Format: format})); got != want {
			t.Errorf("%q: got %s, want %s", format, got, want)
		}
	}
}

func TestLevel(t *testing.T) {
	order := []config.LogLevel{config.Debug, config.Info, config.Warning, config.Error}
	for i, least := range order {
		for j, level := range order {
			e := entry
			e.Level = level
			if logged := len(e.Line(config.Log{Level: least})) > 0; logged != (j >= i) {
				t.Errorf("level %s with log.level %s: logged %v", level, least, logged)
			}
		}
	}
}

func TestSyslog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	listener, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	for level, pri := range map[config.LogLevel]string{config.Debug: "<31>", config.Info: "<30>", config.Warning: "<28>", config.Error: "<27>"} {
		e := entry
		e.Level = level
		if err := e.Syslog(path, []byte("msg=hello\n")); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 1024)
		n, err := listener.Read(buf)
		want := pri + "Mar  4 05:06:07 bookend-epilog[77]: msg=hello"
		if err != nil || string(buf[:n]) != want {
			t.Errorf("got %q, %v, want %q", buf[:n], err, want)
		}
	}
}

func TestSyslogNeverWaits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	listener, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	for range 100_000 {
		if err = entry.Syslog(path, []byte("x\n")); err != nil {
			break
		}
	}
	if !errors.Is(err, unix.EAGAIN) {
		t.Errorf("a full socket gave %v", err)
	}
}

func TestSyslogWithoutDaemon(t *testing.T) {
	dir := t.TempDir()
	if err := entry.Syslog(filepath.Join(dir, "none"), []byte("x\n")); err != nil {
		t.Errorf("no socket: %v", err)
	}
	path := filepath.Join(dir, "dead")
	listener, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	if err := entry.Syslog(path, []byte("x\n")); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("dead daemon: %v", err)
	}
	if err := entry.Syslog("/"+strings.Repeat("x", 200), []byte("x\n")); !errors.Is(err, unix.EINVAL) {
		t.Errorf("a path too long for a socket gave %v", err)
	}
}
