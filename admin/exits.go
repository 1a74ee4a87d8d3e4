package main

import (
	"errors"

	"github.com/spf13/cobra"
)

// Exit codes of this command line. Scripts rely on them: none changes its meaning. docs/exit-codes.md has the same
// table.
const (
	exitOK       = 0
	exitTrouble  = 1
	exitNotFound = 3
	exitDenied   = 4
	exitUntold   = 5
	exitUsage    = 64
)

// exits are what each means of every command.
var exits = []struct {
	code  int
	means string
}{
	{exitOK, "success; also for help and version"},
	{exitTrouble, "failure, or something is wrong or was found (with --exit-code)"},
	{exitNotFound, "no such job, run, node, GPU or finding"},
	{exitDenied, "needs root, or the job belongs to another user"},
	{exitUntold, "unknown: the driver did not answer (with --exit-code)"},
	{exitUsage, "invalid command line"},
}

// misuse is a command line that is not understood.
type misuse struct {
	cmd *cobra.Command
	why string
}

func (m misuse) Error() string { return m.why }

func misused(cmd *cobra.Command, why string) error { return misuse{cmd, why} }

// notFound says that nothing is on record of what was asked for.
type notFound string

func (n notFound) Error() string { return string(n) }

// denied says what only root may do.
type denied string

func (d denied) Error() string { return string(d) }

// answered is an exit code that is the answer itself: all was said.
type answered int

func (a answered) Error() string { return "answered" }

// exitOf is the exit code of a command that ended so.
func exitOf(err error) int {
	var code answered
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &code):
		return int(code)
	case errors.As(err, new(misuse)):
		return exitUsage
	case errors.As(err, new(notFound)):
		return exitNotFound
	case errors.As(err, new(denied)):
		return exitDenied
	}
	return exitTrouble
}
