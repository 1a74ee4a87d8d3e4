package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"bookend/internal/answer"
	"bookend/internal/config"
	"bookend/internal/operation"
	"bookend/internal/stage"
)

// app is one run of the command line: the outside world, and the flags that several commands have.
type app struct {
	env  operation.Env // its Stdout and Stderr let nothing through that no terminal should get
	raw  *sink         // standard output as it is: for what programs read
	node string        // --node
	json bool          // --json
}

// sink is standard output, and remembers that it failed: who writes for people looks at no error.
type sink struct {
	w   io.Writer
	err error
}

func (s *sink) Write(p []byte) (int, error) {
	n, err := s.w.Write(p)
	if err != nil && s.err == nil {
		s.err = err
	}
	return n, err
}

// run carries out a command line and returns the exit code.
func run(env operation.Env, args []string) int {
	a := &app{env: env, raw: &sink{w: env.Stdout}}
	a.env.Stdout, a.env.Stderr = answer.On(a.raw, colourful(env)), answer.Terminal(env.Stderr)
	root := a.root()
	if args == nil {
		args = []string{} // else cobra takes those of the process
	}
	root.SetArgs(args)
	// Completion and its scripts are for shells; help and errors have writers of their own.
	root.SetIn(env.Stdin)
	root.SetOut(a.raw)
	root.SetErr(a.env.Stderr)
	return a.ended(root.Execute())
}

// root is the tree of commands: a file each.
func (a *app) root() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bookend",
		Short: "show what Bookend recorded of this node's GPUs and jobs",
		Long: `Bookend records each GPU's memory and processes when a job starts and when it ends.
This program shows the records of this node. Root sees everything; other users
see their own jobs.`,
		Args: cobra.ArbitraryArgs, SilenceErrors: true, SilenceUsage: true, DisableAutoGenTag: true,
		TraverseChildren: false,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return misused(cmd, "want a command")
			}
			return misused(cmd, fmt.Sprintf("no such command: %q", args[0]))
		},
	}
	cobra.EnableCommandSorting = false
	cmd.CompletionOptions.DisableDefaultCmd = true
	cmd.SetHelpCommand(helpCommand())
	cmd.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		fmt.Fprint(a.env.Stdout, help(cmd))
	})
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return misused(cmd, err.Error()) })
	cmd.InitDefaultHelpFlag()
	for _, make := range commands {
		cmd.AddCommand(make(a))
	}
	cmd.Version = cmp.Or(a.env.Version, version)
	cmd.SetVersionTemplate("bookend {{.Version}}\n")
	cmd.InitDefaultVersionFlag()
	cmd.Flags().Lookup("version").Usage = "print the version"
	describe(cmd)
	offerNothing(cmd)
	return cmd
}

// commands are all there are, in the order of the help. One more is a file and a line here.
var commands = []func(*app) *cobra.Command{
	statusCommand, showCommand, historyCommand, snapshotCommand, explainCommand, baselineCommand, configCommand,
	doctorCommand, setupCommand, reportCommand, completionCommand, versionCommand,
}

// perNode gives a command --node.
func (a *app) perNode(cmd *cobra.Command) {
	cmd.Flags().StringVar(&a.node, "node", "", "`NODE`: the node's name in Slurm, if several slurmd run on this host")
}

// inJSON gives a command --json.
func (a *app) inJSON(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&a.json, "json", false, "print JSON for programs (fields: docs/cli.md)")
}

// write says the same to programs, or to people.
func (a *app) write(document func() any, words func(io.Writer)) error {
	if a.json {
		return answer.Write(a.raw, document())
	}
	words(a.env.Stdout)
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

// ended says what went wrong, if anything did, and gives the exit code. An answer that did not get out is none.
func (a *app) ended(err error) int {
	if said := err == nil || errors.As(err, new(answered)); said && a.raw.err != nil {
		err = fmt.Errorf("write standard output: %w", a.raw.err)
	}
	if err == nil {
		return exitOK
	}
	var wrong misuse
	switch {
	case errors.As(err, &wrong):
		fmt.Fprintf(a.env.Stderr, "%s: %s\nusage: %s\nmore: %s --help\n", wrong.cmd.CommandPath(), wrong.why,
			usage(wrong.cmd), wrong.cmd.CommandPath())
	case errors.As(err, new(answered)): // said already
	default:
		fmt.Fprintf(a.env.Stderr, "bookend: %v\n", err)
	}
	return exitOf(err)
}
