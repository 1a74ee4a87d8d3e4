package main

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// teller writes the story: headings, commands with their output, and each expectation as it is met.
type teller struct {
	out    io.Writer
	in     *bufio.Reader
	colour bool
	steps  int
	held   int // expectations met
	read   []reading
}

// reading is a text that a user has read.
type reading struct{ who, text string }

const (
	bold  = "1"
	green = "32"
	red   = "31"
	dim   = "2"
	width = 78
)

func (t *teller) paint(style, text string) string {
	if !t.colour {
		return text
	}
	return "\x1b[" + style + "m" + text + "\x1b[0m"
}

// step begins a new part of the story.
func (t *teller) step(format string, args ...any) {
	t.steps++
	title := fmt.Sprintf("%d. %s", t.steps, fmt.Sprintf(format, args...))
	fmt.Fprintf(t.out, "\n\n%s\n%s\n", t.paint(bold, title), t.paint(bold, strings.Repeat("=", len(title))))
}

// say writes a paragraph, wrapped.
func (t *teller) say(format string, args ...any) {
	fmt.Fprintln(t.out)
	line := ""
	for _, word := range strings.Fields(fmt.Sprintf(format, args...)) {
		if len(line)+1+len(word) > width && line != "" {
			fmt.Fprintln(t.out, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	fmt.Fprintln(t.out, line)
}

// typed shows a command as its user would type it, and what it answered.
func (t *teller) typed(who, command, output string) {
	prompt := who + "$ "
	if who == "root" {
		prompt = "root# "
	} else {
		t.read = append(t.read, reading{who, output})
	}
	fmt.Fprintf(t.out, "\n  %s%s\n", t.paint(dim, prompt), t.paint(bold, command))
	for line := range strings.Lines(output) {
		fmt.Fprintln(t.out, strings.TrimRight("    "+line, " \n"))
	}
}

// expect tells whether an expectation was met. One that was not ends the story.
func (t *teller) expect(checks ...check) error {
	fmt.Fprintln(t.out)
	for _, c := range checks {
		if !c.met {
			fmt.Fprintf(t.out, "  %s %s\n", t.paint(red, "FAIL"), c.what)
			return fmt.Errorf("%s\nexpected: %s\nseen: %s", c.what, c.want, c.seen)
		}
		t.held++
		fmt.Fprintf(t.out, "  %s   %s\n", t.paint(green, "ok"), c.what)
	}
	return nil
}

// note writes a label and something to copy, as root.
func (t *teller) note(label, text string) {
	fmt.Fprintf(t.out, "  %s %s\n", t.paint(dim, fmt.Sprintf("%-14s", label+":")), text)
}

// pause waits for Enter.
func (t *teller) pause(hint string) {
	fmt.Fprintf(t.out, "\n  %s Enter goes on. ", hint)
	_, _ = t.in.ReadString('\n') // without a terminal nobody is there to wait for
	fmt.Fprintln(t.out)
}
