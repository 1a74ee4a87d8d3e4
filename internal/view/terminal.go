package view

import (
	"bytes"
	"io"

	"bookend/internal/report"
)

// Terminal returns a writer that lets nothing but printable ASCII and the ends of lines through to w, and writes the rest
// as \xNN. Each text from outside is cleaned where a line is put together; this is for the one that somebody forgot.
// Threat: a name, or an argument, that tells an admin's terminal what to do.
func Terminal(w io.Writer) io.Writer { return terminal{w} }

type terminal struct{ w io.Writer }

// mostEscaped is how much longer a byte can become: \xNN.
const mostEscaped = 4

// Write makes terminal an io.Writer. Its count is of p's bytes.
func (t terminal) Write(p []byte) (int, error) {
	var out bytes.Buffer
	for line := range bytes.Lines(p) {
		text, ended := bytes.CutSuffix(line, []byte("\n"))
		out.WriteString(string(report.Keep(string(text), mostEscaped*len(text))))
		if ended {
			out.WriteByte('\n')
		}
	}
	if _, err := t.w.Write(out.Bytes()); err != nil {
		return 0, err
	}
	return len(p), nil
}
