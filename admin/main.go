// Command bookend shows what Bookend's hooks have recorded on this node.
package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"bookend/internal/clock"
	"bookend/internal/doctor"
	"bookend/internal/finding"
	"bookend/internal/stage"
	"bookend/internal/view"
)

// version is set by the linker.
var version = "unknown"

// Exit codes of this command line; docs/exit-codes.md explains them.
const (
	exitOK       = 0
	exitTrouble  = 1 // it could not be done, or what was checked would not work; the message says why
	exitNotFound = 3 // no such job, node or GPU
	exitUsage    = 64
)

type command struct {
	name        string
	operands    string // as usage shows them, flags among them that belong to one of them
	least, most int    // how many of them
	perNode     bool   // has --node
	forced      bool   // has --force
	inJSON      bool   // has --json
	summary     string
	run         func(stage.Env, call) int
	details     string // for its own help, one line each
}

func commands() []command {
	const names = "  GPU          a UUID, a PCI bus id, nvidiaN, or a number that means one card only: bookend snapshot shows them\n"
	return []command{
		{"show", "JOBID", 1, 1, true, false, false, "both ends of a job (1234, 1234_7, a SLUID)", show, ""},
		{"status", "", 0, 0, true, false, false, "the node at a glance, from its records; asks no driver", status, ""},
		{"snapshot", "", 0, 0, false, false, false, "ask the driver now: each GPU's memory and processes", snapshot, ""},
		{"baseline", "[accept GPU [--force] | reset GPU|all]", 0, 2, true, true, false, "what the cards carry without any job; accept it for a card, or forget it", baseline,
			names + fmt.Sprintf("  accept       up to %d MiB that are on the card now count as its own until the driver is reloaded\n", finding.MaxBaseline>>20) +
				"  reset        they no longer do; all: on no card\n"},
		{"config", "check [FILE]", 1, 2, true, false, false, "is a configuration valid and root's, can the hooks start the backend, and drain", configure, ""},
		{"doctor", "", 0, 0, false, false, true, "everything that makes an installation wrong or slow, and the line that puts it right", examine,
			"  It looks at owners and modes, slurm.conf and what it leaves out, the driver and its cards, and the rest of the\n" +
				"  node, and changes nothing. Each mistake of a configuration is for bookend config check.\n"},
		{"version", "", 0, 0, false, false, false, "version of this program", showVersion, ""},
	}
}

func main() {
	env := stage.Env{
		Args: os.Args, Getenv: os.Getenv,
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		EUID: os.Geteuid(), PID: os.Getpid(),
		Clock: clock.System(), Exit: os.Exit, Version: version,
	}
	if code, done := stage.ServeChild(env, doctor.Operations()); done {
		os.Exit(code)
	}
	os.Exit(run(env, os.Args[1:]))
}

func run(env stage.Env, args []string) int {
	raw := env.Stdout
	env.Stdout, env.Stderr = view.Terminal(env.Stdout), view.Terminal(env.Stderr)
	if len(args) == 0 {
		fmt.Fprint(env.Stderr, usage())
		return exitUsage
	}
	name := args[0]
	switch name {
	case "help", "--help", "-help", "-h":
		fmt.Fprint(env.Stdout, usage())
		return exitOK
	case "--version", "-version":
		name = "version"
	}
	for _, c := range commands() {
		if c.name != name {
			continue
		}
		got, exit, done := c.read(env, args[1:])
		if done {
			return exit
		}
		if got.json { // it has its own escapes, and is no terminal's
			env.Stdout = raw
		}
		return c.run(env, got)
	}
	fmt.Fprintf(env.Stderr, "bookend: no such command: %q\n%s", name, usage())
	return exitUsage
}

func usage() string {
	var b strings.Builder
	b.WriteString("usage: bookend COMMAND [ARGUMENTS]\n")
	for _, c := range commands() {
		text := c.usage()
		if len(text) > 28 {
			text += fmt.Sprintf("\n%30s", "")
		}
		fmt.Fprintf(&b, "  %-28s %s\n", text, c.summary)
	}
	return b.String()
}

// fail says why a command could not be carried out.
func fail(env stage.Env, err error) int {
	fmt.Fprintf(env.Stderr, "bookend: %v\n", err)
	if errors.As(err, new(notFound)) {
		return exitNotFound
	}
	return exitTrouble
}

func showVersion(env stage.Env, _ call) int {
	fmt.Fprintf(env.Stdout, "bookend %s\n", env.Version)
	return exitOK
}
