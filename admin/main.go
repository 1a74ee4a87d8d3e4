// Command bookend shows what Bookend's hooks have recorded on this node.
package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"bookend/internal/answer"
	"bookend/internal/config"
	"bookend/internal/operation"
	"bookend/internal/routine"
	"bookend/internal/stage"
)

// version is set by the linker.
var version = "unknown"

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
	a.env.Stdout, a.env.Stderr = answer.On(a.raw, colourful(env)), answer.Terminal(env.Stderr)
	root := a.root()
	root.SetArgs(append([]string{}, args...)) // of nil cobra would take those of the process
	// Completion and its scripts are for shells; help and errors have writers of their own.
	root.SetIn(env.Stdin)
	root.SetOut(a.raw)
	root.SetErr(a.env.Stderr)
	return a.ended(root.Execute())
}

// colourful reports whether standard output is a terminal that takes colours.
func colourful(env operation.Env) bool {
	f, is := env.Stdout.(*os.File)
	if term := env.Getenv("TERM"); !is || env.Getenv("NO_COLOR") != "" || term == "" || term == "dumb" {
		return false
	}
	_, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	return err == nil
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
		return answered(exitTrouble)
	}
	return nil
}

// config is the configuration, and says on the way what is wrong with it.
func (a *app) config() config.Config {
	cfg, problem := stage.LoadConfig(a.env)
	if problem != "" {
		fmt.Fprintf(a.env.Stderr, "bookend: %s\n", problem)
	}
	return cfg
}

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

var exits = []answer.ExitStatus{
	{Code: exitOK, Means: "success; also for help and version"},
	{Code: exitTrouble, Means: "failure, or something is wrong or was found (with --exit-code)"},
	{Code: exitNotFound, Means: "no such job, run, node, GPU or finding"},
	{Code: exitDenied, Means: "needs root, or the job belongs to another user"},
	{Code: exitUntold, Means: "unknown: the driver did not answer (with --exit-code)"},
	{Code: exitUsage, Means: "invalid command line"},
}

type misuse struct {
	cmd *cobra.Command
	why string
}

func (m misuse) Error() string {
	return fmt.Sprintf("%s: %s\nusage: %s\nmore: %[1]s --help", m.cmd.CommandPath(), m.why, m.cmd.UseLine())
}

func misused(cmd *cobra.Command, why string) error { return misuse{cmd, why} }

// notFound says that nothing is on record of what was asked for.
type notFound string

func (n notFound) Error() string { return "bookend: " + string(n) }

type denied string

func (d denied) Error() string { return "bookend: " + string(d) }

// answered is an exit code that is the answer itself: all was said.
type answered int

func (answered) Error() string { return "" }

// ended says what went wrong, if anything did, and gives the exit code. An answer that did not get out is none.
func (a *app) ended(err error) (code int) {
	if said := err == nil || errors.As(err, new(answered)); said && a.raw.err != nil {
		err = fmt.Errorf("write standard output: %w", a.raw.err)
	}
	var status answered
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &status):
		return int(status)
	case errors.As(err, new(misuse)):
		code = exitUsage
	case errors.As(err, new(notFound)):
		code = exitNotFound
	case errors.As(err, new(denied)):
		code = exitDenied
	default:
		err, code = fmt.Errorf("bookend: %w", err), exitTrouble
	}
	fmt.Fprintln(a.env.Stderr, err)
	return code
}
