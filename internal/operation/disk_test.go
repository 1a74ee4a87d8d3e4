package operation

import (
	"bytes"
	"encoding/json"
	"errors"
	"net"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/config"
)

var entry = Entry{
	At:    time.Date(2026, 3, 4, 5, 6, 7, 89e6, time.FixedZone("", 3600)),
	Level: config.Warning, Program: "bookend-epilog", PID: 77, Message: "job ended",
	Fields: Fields{"job": uint32(1234), "took_seconds": 1500 * time.Millisecond, "code": "BKD-ORPHAN", "drained": false},
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

// A log daemon gets each line with its severity; one that does not read is an error at once, and none at all is no
// error, as containers and small nodes have none.
func TestSyslog(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "log")
	listener, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	for level, pri := range map[config.LogLevel]string{
		config.Debug: "<31>", config.Info: "<30>", config.Warning: "<28>", config.Error: "<27>",
	} {
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
	for range 100_000 {
		if err = entry.Syslog(path, []byte("x\n")); err != nil {
			break
		}
	}
	if !errors.Is(err, unix.EAGAIN) {
		t.Errorf("a full socket: got %v, want %v", err, unix.EAGAIN)
	}
	listener.Close()
	for at, want := range map[string]error{
		filepath.Join(dir, "none"): nil, path: unix.ECONNREFUSED, "/" + strings.Repeat("x", 200): unix.EINVAL,
	} {
		if err := entry.Syslog(at, []byte("x\n")); !errors.Is(err, want) {
			t.Errorf("%.40s: got %v, want %v", at, err, want)
		}
	}
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
		e.Message, e.Fields = message, Fields{"name": value, name: errors.New(value)}
		for _, format := range []config.LogFormat{config.Text, config.JSON} {
			line := e.Line(config.Log{Level: config.Info, Format: format})
			body, ok := bytes.CutSuffix(line, []byte("\n"))
			if !ok || len(line) > 20<<10 {
				t.Fatalf("line of %d bytes ends in %q", len(line), line[max(0, len(line)-10):])
			}
			if i := bytes.IndexFunc(body, func(r rune) bool { return r < ' ' || r > '~' }); i >= 0 {
				t.Fatalf("byte %#x in %q", body[i], body)
			}
			switch {
			case format == config.JSON:
				head(t, body)
			case !textLine.Match(body), message != "" && len(textLine.FindSubmatch(body)[1]) == 0:
				t.Fatalf("line %q", body)
			}
			if frame := e.frame(line); !bytes.HasPrefix(frame, []byte("<")) || bytes.ContainsAny(frame, "\n\x00") {
				t.Fatalf("frame %q", frame)
			}
		}
	})
}

// head: the level and the time of an entry are those it was made with.
func head(t *testing.T, body []byte) {
	t.Helper()
	var fields map[string]any
	if err := json.Unmarshal(body, &fields); err != nil {
		t.Fatalf("not JSON: %v: %s", err, body)
	}
	if at, _ := fields["time"].(string); fields["level"] != "warning" || !strings.HasPrefix(at, "2026-03-04T") {
		t.Fatalf("head of %s", body)
	}
}
