// Command bookend shows what Bookend's hooks have recorded on this node.
package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"bookend/internal/answer"
	"bookend/internal/config"
	"bookend/internal/operation"
	"bookend/internal/routine"
	"bookend/internal/stage"
)

var version = "unknown" // set by the linker

func main() {
	env := operation.Env{
		Args: os.Args, Getenv: os.Getenv,
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		EUID: os.Geteuid(), PID: os.Getpid(),
		Clock: routine.SystemClock(), Exit: os.Exit, Version: version,
	}
	if code, done := operation.ServeChild(env); done {
		os.Exit(code)
	}
	os.Exit(run(env, os.Args[1:]))
}

// app is one run of the command line: the outside world, and the flags that several commands have.
type app struct {
	env   operation.Env // its Stdout and Stderr let nothing through that no terminal should get
	raw   *sink         // standard output as it is: for what programs read
	node  string        // --node
	json  bool          // --json
	check bool          // --exit-code
}

// sink is standard output, and remembers that it failed: who writes for people looks at no error.
type sink struct {
	w   io.Writer
	err error
}

func (s *sink) Write(p []byte) (int, error) {
	n, err := s.w.Write(p)
	s.err = cmp.Or(s.err, err)
	return n, err
}

func run(env operation.Env, args []string) int {
	a := &app{env: env, raw: &sink{w: env.Stdout}}
	a.env.Stdout, a.env.Stderr = answer.Terminal(a.raw), answer.Terminal(env.Stderr)
	root := a.root()
	root.SetArgs(append([]string{}, args...)) // of nil cobra would take those of the process
	// Completion and its scripts are for shells; help and errors have writers of their own.
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

// write says the same to programs, or to people; found is whether --exit-code has something to tell.
func (a *app) write(document interface{ Text(w io.Writer) }, found bool) error {
	if !a.json {
		document.Text(a.env.Stdout)
	} else if err := answer.Write(a.raw, document); err != nil {
		return err
	}
	if a.check && found {
		return ending{code: exitTrouble}
	}
	return nil
}

func (a *app) config() config.Config {
	cfg, problem := stage.LoadConfig(a.env)
	if problem != "" {
		fmt.Fprintf(a.env.Stderr, "bookend: %s\n", problem)
	}
	return cfg
}

// Exit codes of this command line: none changes its meaning. docs/exit-codes.md has the same table.
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

// ending is how the command line ends but for success; one without a text is an answer itself: all was said.
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

// ended says what went wrong, if anything did, and gives the exit code. An answer that did not get out is none.
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
