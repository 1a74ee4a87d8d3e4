// Command bookend shows what Bookend's hooks have recorded on this node.
package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"bookend/internal/child"
	"bookend/internal/config"
	"bookend/internal/node"
	"bookend/internal/view"
)

var version = "unknown" // set by the linker

func main() {
	env := child.Env{
		Args: os.Args, Getenv: os.Getenv,
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		EUID: os.Geteuid(), PID: os.Getpid(),
		Clock: child.SystemClock(), Exit: os.Exit, Version: version,
	}
	if code, done := env.Serve(); done {
		os.Exit(code)
	}
	os.Exit(run(env, os.Args[1:]))
}

// app is one run of the command line: its environment, and the flags that several commands share.
type app struct {
	env   child.Env // Stdout and Stderr escape what a terminal must not receive
	raw   *sink     // unfiltered standard output, for output that programs read
	node  string    // --node
	json  bool      // --json
	check bool      // --exit-code
}

// sink is standard output. It keeps the first write error, because text output does not check for errors.
type sink struct {
	w   io.Writer
	err error
}

func (s *sink) Write(p []byte) (int, error) {
	n, err := s.w.Write(p)
	s.err = cmp.Or(s.err, err)
	return n, err
}

func run(env child.Env, args []string) int {
	a := &app{env: env, raw: &sink{w: env.Stdout}}
	a.env.Stdout, a.env.Stderr = view.Terminal(a.raw), view.Terminal(env.Stderr)
	root := a.root()
	root.SetArgs(append([]string{}, args...)) // with nil, cobra would take the arguments of the process
	// Cobra writes completion output unfiltered, for shells. Help and errors have writers of their own.
	root.SetIn(env.Stdin)
	root.SetOut(a.raw)
	root.SetErr(a.env.Stderr)
	return a.ended(root.Execute())
}

func (a *app) perNode(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().StringVar(&a.node, "node", "", "the `NODE`'s name in Slurm, if several slurmd run on this host")
	return cmd
}

func (a *app) inJSON(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().BoolVar(&a.json, "json", false, "print JSON for programs (fields: docs/cli.md)")
	return cmd
}

func (a *app) checks(cmd *cobra.Command, usage string) {
	cmd.Flags().BoolVar(&a.check, "exit-code", false, usage)
}

// write prints a document as text or as JSON. If found is true, --exit-code makes it exit 1.
func (a *app) write(document interface{ Text(w io.Writer) }, found bool) error {
	if !a.json {
		document.Text(a.env.Stdout)
	} else if err := view.Write(a.raw, document); err != nil {
		return err
	}
	if a.check && found {
		return ending{code: exitTrouble}
	}
	return nil
}

func (a *app) config() config.Config {
	cfg, problem := node.LoadConfig(a.env)
	if problem != "" {
		fmt.Fprintf(a.env.Stderr, "bookend: %s\n", problem)
	}
	return cfg
}

// Exit codes of this command line. They never change their meaning. docs/cli.md has the same table.
const (
	exitOK       = 0
	exitTrouble  = 1
	exitNotFound = 3
	exitDenied   = 4
	exitUntold   = 5
	exitUsage    = 64
)

var exits = []ending{
	{exitOK, "success; also for help and version"},
	{exitTrouble, "failure, or something is wrong or was found (with --exit-code)"},
	{exitNotFound, "no such job, run, node, GPU or finding"},
	{exitDenied, "needs root, or the job belongs to another user"},
	{exitUntold, "unknown: the driver did not answer (with --exit-code)"},
	{exitUsage, "invalid command line"},
}

// ending is an exit code other than success. Without a text, everything was already printed.
type ending struct {
	code int
	text string
}

func (e ending) Error() string { return e.text }

func misused(cmd *cobra.Command, why string) error {
	const form = "%s: %s\nusage: %s\nmore: %[1]s --help"
	return ending{exitUsage, fmt.Sprintf(form, cmd.CommandPath(), why, cmd.UseLine())}
}

func notFound(format string, args ...any) error {
	return ending{exitNotFound, "bookend: " + fmt.Sprintf(format, args...)}
}

func denied(format string, args ...any) error {
	return ending{exitDenied, "bookend: needs root: " + fmt.Sprintf(format, args...)}
}

// ended prints the error, if there is one, and returns the exit code. A failed write of the answer is an error too.
func (a *app) ended(err error) int {
	e := ending{exitTrouble, ""}
	switch known := errors.As(err, &e); {
	case e.text == "" && (err == nil || known) && a.raw.err != nil:
		e = ending{exitTrouble, fmt.Sprintf("bookend: write standard output: %v", a.raw.err)}
	case err == nil:
		return exitOK
	case !known:
		e.text = fmt.Sprintf("bookend: %v", err)
	case e.text == "":
		return e.code
	}
	fmt.Fprintln(a.env.Stderr, e.text)
	return e.code
}
