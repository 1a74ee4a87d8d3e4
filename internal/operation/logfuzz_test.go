package operation

import (
	"bytes"
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"testing"

	"bookend/internal/config"
)

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
