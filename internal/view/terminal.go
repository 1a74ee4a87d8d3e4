package view

import (
	"bytes"
	"io"
	"strings"

	"bookend/internal/report"
)

// Screen is what a terminal can do.
type Screen struct {
	Colour bool
	Width  int // columns; 0: lines are as long as they are, as programs and pagers want them
}

// Terminal returns a writer that lets nothing but printable ASCII and the ends of lines through to w, and writes the
// rest as \xNN. Each text from outside is cleaned where a line is put together; this is for the one that somebody
// forgot. Threat: a name, or an argument, that tells an admin's terminal what to do.
func Terminal(w io.Writer) io.Writer { return On(w, Screen{}) }

// On is Terminal for a terminal that is known: with colour this package's own colours get through, and nothing else;
// lines that are too wide are broken at spaces.
func On(w io.Writer, s Screen) io.Writer { return &terminal{w, s} }

type terminal struct {
	w io.Writer
	Screen
}

// mostEscaped is how much longer a byte can become: \xNN.
const mostEscaped = 4

// Write makes terminal an io.Writer. Its count is of p's bytes. Lines are broken where they come as a whole.
func (t *terminal) Write(p []byte) (int, error) {
	var out bytes.Buffer
	for line := range bytes.Lines(p) {
		text, ended := bytes.CutSuffix(line, []byte("\n"))
		clean := t.clean(string(text))
		if ended && t.Width > 0 {
			clean = Fold(clean, t.Width, hangOf(clean, t.Width))
		}
		out.WriteString(clean)
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
	if !t.Colour {
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
