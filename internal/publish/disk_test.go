package publish

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/config"
	"bookend/internal/safefile"
	"bookend/test/must"
)

var entry = Entry{
	At:    time.Date(2026, 3, 4, 5, 6, 7, 89e6, time.FixedZone("", 3600)),
	Level: config.Warning, Program: "bookend-epilog", PID: 77, Message: "job ended",
	Fields: map[string]any{"job": uint32(1234), "took_seconds": 1500 * time.Millisecond, "code": "BKD-ORPHAN", "drained": false},
}

func TestLine(t *testing.T) {
	for format, want := range map[config.LogFormat]string{
		"": `time="2026-03-04T05:06:07.089+01:00" level=warning msg="job ended" code=BKD-ORPHAN drained=false ` +
			"job=1234 pid=77 program=bookend-epilog took_seconds=1.5\n",
		config.JSON: `{"code":"BKD-ORPHAN","drained":false,"job":1234,"level":"warning","msg":"job ended","pid":77,` +
			`"program":"bookend-epilog","time":"2026-03-04T05:06:07.089+01:00","took_seconds":1.5}` + "\n",
	} {
		must.Be(t, fmt.Sprint(format), string(entry.Line(config.Log{Level: config.Info, Format: format})), want)
	}
	order := []config.LogLevel{config.Debug, config.Info, config.Warning, config.Error}
	for i, least := range order {
		for j, level := range order {
			e := entry
			e.Level = level
			must.Be(t, "level", len(e.Line(config.Log{Level: least})) > 0, (j >= i))
		}
	}
}

// A log daemon gets each line with its severity; one that does not read is an error at once, and none at all is no
// error, as containers and small nodes have none.
func TestSyslog(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "log")
	listener := must.Have(net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"}))(t)
	for level, pri := range map[config.LogLevel]string{
		config.Debug: "<31>", config.Info: "<30>", config.Warning: "<28>", config.Error: "<27>",
	} {
		e := entry
		e.Level = level
		must.Do(t, e.Syslog(path, []byte("msg=hello\n")))
		buf := make([]byte, 1024)
		n, err := listener.Read(buf)
		want := pri + "Mar  4 05:06:07 bookend-epilog[77]: msg=hello"
		must.Not(t, err != nil || string(buf[:n]) != want, "got %q, %v, want %q", buf[:n], err, want)
	}
	var err error
	for range 100_000 {
		if err = entry.Syslog(path, []byte("x\n")); err != nil {
			break
		}
	}
	must.Fail(t, "a full socket", err, unix.EAGAIN)
	listener.Close()
	for at, want := range map[string]error{
		filepath.Join(dir, "none"): nil, path: unix.ECONNREFUSED, "/" + strings.Repeat("x", 200): unix.EINVAL,
	} {
		must.Fail(t, at, entry.Syslog(at, []byte("x\n")), want)
	}
}

// systemd's journal gets the fields one by one, and no value can add one.
func TestJournal(t *testing.T) {
	dir := t.TempDir()
	listener := must.Have(net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "socket"), Net: "unixgram"}))(t)
	path := filepath.Join(dir, "log")
	must.Do(t, os.Symlink(filepath.Join(dir, "dev-log"), path))
	e := entry
	e.Fields = map[string]any{"job": uint32(42), "node": "n1\nMESSAGE=forged", "other": 7}
	e.Found = []Found{{"BKD-ORPHAN", "0"}, {"BKD-CONFIG", ""}}
	must.Do(t, e.Syslog(path, []byte("msg=hello\n")))
	buf := make([]byte, 1024)
	n := must.Have(listener.Read(buf))(t)
	got := strings.Split(string(buf[:n]), "\n")
	slices.Sort(got)
	want := []string{"", "BOOKEND_CODE=BKD-CONFIG", "BOOKEND_CODE=BKD-ORPHAN", "BOOKEND_GPU=0", "BOOKEND_JOB_ID=42",
		`BOOKEND_NODE=n1\x0aMESSAGE=forged`, "MESSAGE=msg=hello", "PRIORITY=4", "SYSLOG_FACILITY=3",
		"SYSLOG_IDENTIFIER=bookend-epilog", "SYSLOG_PID=77"}
	must.Not(t, !slices.Equal(got, want), "got %q\nwant %q", got, want)
	must.Do(t, os.Remove(filepath.Join(dir, "socket")))
	must.Do(t, e.Syslog(path, []byte("x\n")))
}

// textLine is the head of a line that nobody can forge: time, level, then the message, if any, in quotes or as one
// word.
var textLine = regexp.MustCompile(`^time="2026-03-04T[0-9:.+]+" level=warning (msg=("([^"\\]|\\.)*"|[^ "]+) )?`)

// An entry is one line of printable ASCII, whatever is in it, and its head is this program's.
func FuzzLine(f *testing.F) {
	f.Add("job ended", "a b", "x=y")
	f.Add("two\nlines \x1b[31m \xff", "\u202e\x00", "time")
	f.Add(strings.Repeat("long", 5000), strings.Repeat("\n", 5000), "level")
	f.Add("\" level=error msg=\"forged", "\"\\", "msg")
	f.Fuzz(func(t *testing.T, message, value, name string) {
		e := entry
		e.Message, e.Fields = message, map[string]any{"name": value, name: errors.New(value)}
		for _, format := range []config.LogFormat{config.Text, config.JSON} {
			line := e.Line(config.Log{Level: config.Info, Format: format})
			body, ok := bytes.CutSuffix(line, []byte("\n"))
			must.Not(t, !ok || len(line) > 20<<10,
				"line of %d bytes ends in %q", len(line), line[max(0, len(line)-10):])
			i := bytes.IndexFunc(body, func(r rune) bool { return r < ' ' || r > '~' })
			must.Not(t, i >= 0, "byte %d of %q", i, body)
			var fields map[string]any
			switch {
			case format == config.JSON: // whose level and time are those it was made with
				err := json.Unmarshal(body, &fields)
				if at, _ := fields["time"].(string); err != nil || fields["level"] != "warning" || !strings.HasPrefix(at, "2026-03-04T") {
					t.Fatalf("%v: %s", err, body)
				}
			case !textLine.Match(body), message != "" && len(textLine.FindSubmatch(body)[1]) == 0:
				t.Fatalf("line %q", body)
			}
			frame := e.frame(line)
			must.Not(t, !bytes.HasPrefix(frame, []byte("<")) || bytes.ContainsAny(frame, "\n\x00"), "frame %q", frame)
		}
	})
}

// Many hooks at once wait for their turn at the disk; a lock that does not change hands is that of a disk that hangs.
func TestTurnsAtTheDisk(t *testing.T) {
	for name, tt := range map[string]struct {
		changes, free int // how often the lock changes hands, and at which try it is free
		want          error
	}{
		"free":              {0, 1, nil},
		"held for long":     {0, 2, safefile.ErrLocked},
		"a queue":           {100, 50, nil},
		"a queue that ends": {3, 50, safefile.ErrLocked},
	} {
		tries := 0
		err := inTurn(func() error {
			if tries++; tries >= tt.free {
				return nil
			}
			return safefile.ErrLocked
		}, func() time.Time { return time.Unix(int64(min(tries, tt.changes)), 0) })
		must.Not(t, !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil), "%s: %v", name, err)
	}
}

// What says that something takes too long is let finish, also if that has ended meanwhile.
func TestWithin(t *testing.T) {
	within(time.Hour, func() {}, func() { t.Error("it was in time") })
	began, said := make(chan bool), false
	within(0, func() { <-began }, func() {
		began <- true
		time.Sleep(time.Millisecond) // in which a caller that does not wait goes on
		said = true
	})
	must.Not(t, !said, "it was not waited for")
}
