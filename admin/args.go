package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"

	"bookend/internal/stage"
)

// call is a command's part of the command line, read.
type call struct {
	node  string   // --node, where the command has it
	force bool     // --force, likewise
	json  bool     // --json, likewise
	args  []string // all that is no flag
	of    command
}

// read reads a command's arguments: flags may stand before, after and between the others. Where the command is not
// to go on, done is true and exit its exit code.
func (c command) read(env stage.Env, args []string) (_ call, exit int, done bool) {
	flags := flag.NewFlagSet(c.name, flag.ContinueOnError)
	flags.SetOutput(io.Discard) // what is wrong is said once, below
	got := call{of: c}
	if c.perNode {
		flags.StringVar(&got.node, "node", "", "")
	}
	if c.forced {
		flags.BoolVar(&got.force, "force", false, "")
	}
	if c.inJSON {
		flags.BoolVar(&got.json, "json", false, "")
	}
	for {
		err := flags.Parse(args)
		switch {
		case errors.Is(err, flag.ErrHelp):
			fmt.Fprint(env.Stdout, c.help())
			return got, exitOK, true
		case err != nil:
			return got, c.misused(env, err.Error()), true
		}
		if flags.NArg() == 0 {
			break
		}
		got.args, args = append(got.args, flags.Arg(0)), flags.Args()[1:]
	}
	if n := len(got.args); n < c.least || n > c.most {
		return got, c.misused(env, "want "+cmp.Or(c.operands, "no arguments")), true
	}
	return got, exitOK, false
}

func (c command) misused(env stage.Env, why string) int {
	fmt.Fprintf(env.Stderr, "bookend %s: %s\n%s", c.name, why, c.help())
	return exitUsage
}

func (c command) help() string {
	text := "usage: bookend " + c.usage() + "\n" + c.summary + "\n" + c.details
	if c.perNode {
		text += "  --node NODE  the node's name in Slurm, where several slurmd share this host\n"
	}
	if c.forced {
		text += "  --force      accept although a job has the card\n"
	}
	if c.inJSON {
		text += "  --json       for programs\n"
	}
	return text
}

func (c command) usage() string {
	text := c.name
	if c.operands != "" {
		text += " " + c.operands
	}
	if c.perNode {
		text += " [--node NODE]"
	}
	if c.inJSON {
		text += " [--json]"
	}
	return text
}
