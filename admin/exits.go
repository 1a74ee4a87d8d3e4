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
	{exitOK, "done; help and versions too"},
	{exitTrouble, "could not be done, or the answer is no: something is wrong, or was found where that was asked " +
		"for (--exit-code)"},
	{exitNotFound, "no such job, run, node, GPU or finding"},
	{exitDenied, "needs root, or the job is somebody else's"},
	{exitUntold, "could not tell: the driver gave no answer where that was asked for (--exit-code)"},
	{exitUsage, "wrong command line"},
}

// unreadable is why most commands end with exitTrouble.
const unreadable = "the records could not be read"

// exitsOf says more exactly what the codes of single commands mean, by the command's path; 0 and 64 go without saying.
var exitsOf = map[string]map[int]string{
	"bookend status": {
		exitTrouble:  unreadable + "; with --exit-code: a trouble, memory that nobody explains, or the node is drained",
		exitNotFound: "no such node, or no GPU job has run here yet", exitDenied: "needs root",
		exitUntold: "with --exit-code: the driver gave no answer, and nothing else is wrong",
	},
	"bookend show": {
		exitTrouble: unreadable + "; with --exit-code: something was found at one of the job's ends, or at its start " +
			"its GPUs were not clean",
		exitNotFound: "no record of that job",
		exitDenied:   "not root, and no report of a job of yours; or not root, with --exit-code",
	},
	"bookend history": {
		exitTrouble:  unreadable + "; with --exit-code: a run with findings, or a lemon, was listed",
		exitNotFound: "no such node, or no GPU job has run here yet", exitDenied: "needs root",
	},
	"bookend report": {
		exitTrouble:  unreadable + ", or the page not written: a file that is there is kept without --force",
		exitNotFound: "no such node or GPU, or no record at all",
		exitDenied:   "needs root, unless --records names a copy",
	},
	"bookend snapshot": {exitTrouble: "the driver could not be asked, or not to the end"},
	"bookend explain":  {exitNotFound: "no such finding, exit code or reason"},
	"bookend baseline": {exitTrouble: unreadable, exitNotFound: "no such node", exitDenied: "needs root"},
	"bookend baseline accept": {
		exitTrouble:  "refused, or the driver could not be asked: the message says why",
		exitNotFound: "no such node or GPU", exitDenied: "needs root",
	},
	"bookend baseline reset": {
		exitTrouble: unreadable, exitNotFound: "no such node or baseline", exitDenied: "needs root",
	},
	"bookend config check": {exitTrouble: "the hooks would not use the configuration, or could not work with it"},
	"bookend doctor":       {exitTrouble: "something is wrong or unknown", exitDenied: "needs root"},
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
