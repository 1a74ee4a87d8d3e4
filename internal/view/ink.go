package view

import (
	"fmt"
	"io"
	"strings"

	"bookend/internal/answer"
	"bookend/internal/config"
)

// ink writes words in colour where the paper takes it, and plainly elsewhere. Colour says nothing that the words do
// not.
type ink bool

// colours are all escape sequences that reach a terminal: SGR, which moves no cursor and asks for no answer.
const (
	bold   = "\x1b[1m"
	dim    = "\x1b[2m"
	red    = "\x1b[31m"
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	normal = "\x1b[0m"
)

var colours = [...]string{bold, dim, red, green, yellow, normal}

// inkOf is the ink for what is written to w.
func inkOf(w io.Writer) ink {
	t, ok := w.(*terminal)
	return ink(ok && t.Colour)
}

// widthOf is how wide what is drawn on w may be: usual is for paper of which nobody knows.
func widthOf(w io.Writer) int {
	const usual = 80
	if t, ok := w.(*terminal); ok && t.Width > 0 {
		return max(t.Width, narrowest)
	}
	return usual
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
func (i ink) verdict(v answer.Verdict, text string) string {
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
	for at := strings.IndexByte(text, '\x1b'); at >= 0 && at < len(text); {
		for _, c := range colours {
			if strings.HasPrefix(text[at:], c) {
				return text[:at], c, text[at+len(c):]
			}
		}
		next := strings.IndexByte(text[at+1:], '\x1b')
		if next < 0 {
			break
		}
		at += 1 + next
	}
	return text, "", ""
}

// seen is how many columns a text takes.
func seen(text string) int {
	n := 0
	for text != "" {
		plain, _, rest := cutColour(text)
		n += len(plain)
		text = rest
	}
	return n
}

// padded fills a text up to a width, whatever colours are in it.
func padded(text string, width int) string {
	return fmt.Sprintf("%s%*s", text, max(0, width-seen(text)), "")
}
