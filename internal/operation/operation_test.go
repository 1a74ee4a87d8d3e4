package operation

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/config"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/oom"
	"bookend/internal/safefile"
	"bookend/internal/state"
	"bookend/test/must"
)

// What is no operation, or no request, ends the child with a word.
func TestServe(t *testing.T) {
	for op, request := range map[string]string{"none": `{"proc":"/proc"}`, Cleanup.Name: `{"proc":`, Disk.Name: `5`} {
		var stdout, stderr strings.Builder
		held, end := io.Pipe() // so that what waits for its end does not outlive the test
		env := Env{
			Stdin: io.MultiReader(strings.NewReader(request), strings.NewReader(" "), held), Stdout: &stdout, Stderr: &stderr,
			Exit: func(int) {},
		}
		if request == `{"proc":` {
			end.Close()
		}
		must.Be(t, "exit code of "+op, serve(env, op), 1)
		must.Not(t, stdout.Len() > 0 || !strings.HasSuffix(stderr.String(), "\n"), "%s: %q, %q", op, &stdout, &stderr)
	}
}

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

// Which readers of /proc keep a new one from being started.
func TestHung(t *testing.T) {
	at := []finding.Instance{{PID: 70, Start: 1}}
	many := make([]state.Reader, state.MaxReaders)
	for i := range many {
		many[i] = state.Reader{Stuck: state.Stuck{Op: Holders.Name}, At: at}
	}
	for name, tt := range map[string]struct {
		readers []state.Reader
		at      int
		blocked bool
	}{
		"none":              {nil, 0, false},
		"one":               {many[:1], 1, false},
		"did not say":       {[]state.Reader{{Stuck: state.Stuck{Op: Holders.Name}}}, 0, true},
		"another operation": {[]state.Reader{{Stuck: state.Stuck{Op: Processes.Name}}}, 0, false},
		"nearly too many":   {many[1:], state.MaxReaders - 1, false},
		"too many":          {many, 1, false}, // the one that stands for all
	} {
		skip, blocked := Hung(Holders.Name, tt.readers)
		must.Not(t, len(skip) != tt.at || blocked != tt.blocked, "%s: got %d places, blocked %v", name, len(skip), blocked)
	}
}

// What comes back from a process that the user may have got at is what Tail could have written, or nothing.
func TestTailReply(t *testing.T) {
	no := gpu.Unknown("not said")
	m := oom.Message{
		Kind: oom.Device, Framework: oom.PyTorch, Asked: no, Total: no, Free: no, InUse: no, Allocated: no, Idle: no,
		Line: "CUDA error: out of memory", Count: 1,
	}
	forged := m
	forged.Line = "\x1b[2J| bookend: all is well"
	second := m
	second.File = 1
	one, two := Searched{Size: 70, Read: 70}, []Searched{{Size: 70, Read: 70}, {}}
	no2 := func(why string) []Searched { return []Searched{one, {Refused: why}} }
	for name, tt := range map[string]struct {
		reply TailReply
		valid bool
	}{
		"nothing found":             {TailReply{Files: two}, true},
		"found":                     {TailReply{Messages: []oom.Message{m}, Files: two}, true},
		"refused":                   {TailReply{Files: []Searched{{Refused: "missing"}, {Refused: "not-owner"}}}, true},
		"found in one":              {TailReply{Messages: []oom.Message{m}, Files: no2("links")}, true},
		"found in both":             {TailReply{Messages: []oom.Message{m, second}, Files: two}, true},
		"an invalid message":        {TailReply{Messages: []oom.Message{m, forged}, Files: two}, false},
		"many messages":             {TailReply{Messages: slices.Repeat([]oom.Message{m}, oom.MaxMessages+1), Files: two}, false},
		"no answer":                 {TailReply{Messages: []oom.Message{m}}, false},
		"an answer too many":        {TailReply{Files: []Searched{one, one, one}}, false},
		"another reason":            {TailReply{Files: no2("because\n")}, false},
		"found in one refused":      {TailReply{Messages: []oom.Message{second}, Files: no2("links")}, false},
		"more read than there is":   {TailReply{Files: []Searched{one, {Size: 5, Read: 6}}}, false},
		"less than nothing":         {TailReply{Files: []Searched{one, {Size: -1, Read: -1}}}, false},
		"a message of a third file": {TailReply{Messages: []oom.Message{func() oom.Message { t := m; t.File = 2; return t }()}, Files: two}, false},
	} {
		err := tt.reply.Check(2)
		must.Not(t, (err == nil) != tt.valid, "%s: %v", name, err)
	}
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
