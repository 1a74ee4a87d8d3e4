package answer

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"bookend/internal/config"
	"bookend/internal/diagnosis"
	"bookend/internal/gpu"
	"bookend/internal/report"
)

const (
	nameWidth = 48  // of names from outside in a line
	textWidth = 400 // of what is quoted
	timestamp = "2006-01-02 15:04:05"
)

// Terminal returns a writer that lets nothing but printable ASCII and the ends of lines through to w, and writes the
// rest as \xNN. Each text from outside is cleaned where a line is put together; this is for the one that was forgotten.
// Threat: a name, or an argument, that tells an admin's terminal what to do.
func Terminal(w io.Writer) io.Writer { return On(w, false) }

// On is Terminal for one that may show colours: this package's own get through, and nothing else.
func On(w io.Writer, colour bool) io.Writer { return &terminal{w, colour} }

type terminal struct {
	w      io.Writer
	colour bool
}

// mostEscaped is how much longer a byte can become: \xNN.
const mostEscaped = 4

// Write makes terminal an io.Writer. Its count is of p's bytes.
func (t *terminal) Write(p []byte) (int, error) {
	var out bytes.Buffer
	for line := range bytes.Lines(p) {
		text, ended := bytes.CutSuffix(line, []byte("\n"))
		out.WriteString(t.clean(string(text)))
		if ended {
			out.WriteByte('\n')
		}
	}
	if _, err := t.w.Write(out.Bytes()); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (t *terminal) clean(text string) string {
	if !t.colour {
		return string(report.Keep(text, mostEscaped*len(text)))
	}
	var out strings.Builder
	for text != "" {
		plain, colour, rest := cutColour(text)
		out.WriteString(string(report.Keep(plain, mostEscaped*len(plain))))
		out.WriteString(colour)
		text = rest
	}
	return out.String()
}

// ink writes words in colour where the paper takes it, and plainly elsewhere. Colour says nothing that the words do
// not.
type ink bool

// All escape sequences that reach a terminal: SGR, which moves no cursor and asks for no answer.
const (
	bold   = "\x1b[1m"
	red    = "\x1b[31m"
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	normal = "\x1b[0m"
)

// inkOf is the ink for what is written to w.
func inkOf(w io.Writer) ink {
	t, ok := w.(*terminal)
	return ink(ok && t.colour)
}

func (i ink) in(colour, text string) string {
	if !i || text == "" {
		return text
	}
	return colour + text + normal
}

// action colours a text by what policy made of it.
func (i ink) action(a config.Action, text string) string {
	switch a {
	case config.Drain:
		return i.in(red, text)
	case config.Warn:
		return i.in(yellow, text)
	}
	return text
}

// verdict colours a text by a hook's outcome.
func (i ink) verdict(v Verdict, text string) string {
	switch {
	case v.Exit != 0 || v.Held != "":
		return i.in(red, text)
	case v.Code == "":
		return i.in(green, text)
	}
	return i.action(v.Action, text)
}

// cutColour cuts a text at the first of this package's colours.
func cutColour(text string) (plain, colour, rest string) {
	at := len(text)
	for _, c := range []string{bold, red, green, yellow, normal} {
		if i := strings.Index(text, c); i >= 0 && i < at {
			at, colour = i, c
		}
	}
	return text[:at], colour, text[at+len(colour):]
}

// table writes lines of cells that tabs divide, in columns.
func table(w io.Writer, lines ...string) {
	var b bytes.Buffer
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, l := range lines {
		fmt.Fprintln(t, l)
	}
	t.Flush()
	for line := range strings.Lines(b.String()) {
		fmt.Fprintln(w, strings.TrimRight(line, " \n"))
	}
}

// Figure words bytes, or says that they are unknown.
func Figure(f gpu.Figure) string {
	if !f.Known() {
		return size(nil)
	}
	return size(&f.Bytes)
}

// size is Figure for what a document has: null where it is unknown.
func size(bytes *uint64) string {
	if bytes == nil {
		return "unknown"
	}
	return diagnosis.Size(*bytes)
}

// cut is a text from outside for one line; name is a short one.
func cut(text string) string { return string(report.Keep(text, textWidth)) }

func name(text string) string { return string(report.Keep(text, nameWidth)) }

// stamp is a moment, or says that it is unknown.
func stamp(t *time.Time) string {
	if t == nil {
		return "unknown"
	}
	return t.Local().Format(timestamp)
}

// span words a duration.
func span(d time.Duration) string {
	switch d = d.Round(time.Second); {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%02dh", int(d.Hours())/24, int(d.Hours())%24)
}

func count(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s%s", n, one, more)
}
