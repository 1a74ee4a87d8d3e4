// Command bookend shows what Bookend's hooks have recorded on this node.
package main

import (
	"bufio"
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"bookend/internal/child"
	"bookend/internal/config"
	"bookend/internal/node"
	"bookend/internal/record"
	"bookend/internal/safetext"
	"bookend/internal/view"
)

var version = "unknown" // set by the linker

func main() {
	env := child.Env{Args: os.Args, Getenv: os.Getenv, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		EUID: os.Geteuid(), PID: os.Getpid(),
		Clock: child.SystemClock(), Exit: os.Exit, Version: version}
	if code, done := env.Serve(); done {
		os.Exit(code)
	}
	os.Exit(run(env, os.Args[1:]))
}

// app is one run of the command line: its environment, and the flags that several commands share.
type app struct {
	env   child.Env     // Stdout and Stderr escape what a terminal must not receive
	raw   *bufio.Writer // unfiltered standard output, for output that programs read; it keeps the first error
	node  string        // --node
	json  bool          // --json
	check bool          // --exit-code
	busy  func(text string) (done func() bool)
	clear string // what clears the terminal; empty if standard output is none
}

func run(env child.Env, args []string) int {
	a := &app{env: env, raw: bufio.NewWriter(env.Stdout), busy: env.Progress, clear: env.Clear()}
	a.env.Stdout, a.env.Stderr = safetext.Terminal(a.raw), safetext.Terminal(env.Stderr)
	root := rootCommand(a)
	root.SetArgs(append([]string{}, args...)) // with nil, cobra would take the arguments of the process
	// Cobra writes completion output unfiltered, for shells. Help and errors have writers of their own.
	root.SetIn(env.Stdin)
	root.SetOut(a.raw)
	root.SetErr(a.env.Stderr)
	return a.end(root.Execute())
}

func (a *app) perNode(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().StringVar(&a.node, "node", "", "the `NODE`'s name in Slurm, if several slurmd run on this host")
	return cmd
}

func (a *app) inJSON(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().BoolVar(&a.json, "json", false, "print JSON for programs (fields: docs/cli.md)")
	return cmd
}

// config returns the configuration in effect, and prints what is wrong with it.
func (a *app) config() config.Config {
	cfg, problem := node.LoadConfig(a.env)
	if problem != "" {
		a.warn(problem)
	}
	return cfg
}

// warn prints what does not keep the command from its answer.
func (a *app) warn(problem any) { fmt.Fprintf(a.env.Stderr, "bookend: %v\n", problem) }

func (a *app) records() (records, error) { return a.open(a.config()) }

// onRecords returns what runs a command that works on the node's records.
func (a *app) onRecords(do func(all records, args []string) error) func(*cobra.Command, []string) error {
	return func(_ *cobra.Command, args []string) error {
		all, err := a.records()
		if err != nil {
			return err
		}
		return do(all, args)
	}
}

// write prints a document as text or as JSON. If found is true, --exit-code makes it exit 1.
func (a *app) write(document view.Document, found bool) error {
	// Threat: a name that begins a line of its own, or commands the terminal. Names from outside are always shorter.
	document = safetext.KeepAll(document, 400)
	if !a.json {
		document.Text(a.env.Stdout)
	} else if err := view.Write(a.raw, document); err != nil {
		return err
	}
	return verdict(!a.check || !found)
}

// say writes a line that may contain text from outside. A path can have 4095 bytes.
func (a *app) say(format string, args ...any) {
	fmt.Fprintln(a.env.Stdout, safetext.Keep(fmt.Sprintf(format, args...), 8<<10))
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
	{exitUntold, "unknown: the driver did not answer (with --exit-code), or vet, test, reset or diagnose cannot tell"},
	{exitUsage, "invalid command line"},
}

// answers are the exit codes of a test's results.
var answers = map[record.Answer]int{record.No: exitTrouble, record.CannotTell: exitUntold}

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

// end prints the error, if there is one, and returns the exit code. A failed write of the answer is an error too.
func (a *app) end(err error) int {
	written := a.raw.Flush()
	e, known := errors.AsType[ending](err)
	if e.text == "" && (err == nil || known) && written != nil {
		err, known = fmt.Errorf("write standard output: %w", written), false
	}
	if err != nil && !known {
		e = ending{exitTrouble, fmt.Sprintf("bookend: %v", err)}
	}
	if e.text != "" {
		fmt.Fprintln(a.env.Stderr, e.text)
	}
	return e.code
}

func rootCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "bookend", Args: cobra.ArbitraryArgs, SilenceErrors: true, SilenceUsage: true,
		RunE: noCommand("a command"), Version: cmp.Or(a.env.Version, version)}
	cobra.EnableCommandSorting = false
	cmd.CompletionOptions.DisableDefaultCmd = true
	// Records contain text from outside and only root may read them, so a shell completes neither them nor file names.
	cmd.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	cmd.SetHelpCommand(helpCommand())
	cmd.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		fmt.Fprint(a.env.Stdout, help(cmd))
		if cmd.HasParent() {
			return // the exit codes are the same for all commands
		}
		fmt.Fprint(a.env.Stdout, "\nexit codes:\n")
		for _, e := range exits {
			fmt.Fprintf(a.env.Stdout, "  %-3d %s\n", e.code, e.text)
		}
	})
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return misused(cmd, err.Error()) })
	cmd.PersistentFlags().BoolP("help", "h", false, "show this text")
	cmd.SetVersionTemplate("bookend {{.Version}}\n")
	cmd.Flags().Bool("version", false, "print the version")
	for _, command := range []func(*app) *cobra.Command{statusCommand, showCommand, whyCommand, peaksCommand,
		historyCommand, snapshotCommand, explainCommand, baselineCommand, configCommand, doctorCommand, setupCommand,
		reportCommand, rmaCommand, quarantineCommand, releaseCommand, testCommand, resetCommand, diagnoseCommand,
		fleetCommand, sacctCommand, vetCommand, completionCommand, versionCommand} {
		cmd.AddCommand(command(a))
	}
	describe(cmd)
	return cmd
}

//go:embed help.txt
var helpTexts string

// describe gives commands their usage and texts: in help.txt, each below "# " and the usage. A text's first line is for
// lists of commands, the others are for the command's own help.
func describe(root *cobra.Command) {
	for text := range strings.SplitSeq(strings.TrimPrefix(helpTexts, "# "), "\n# ") {
		usage, text, _ := strings.Cut(strings.TrimSuffix(text, "\n"), "\n")
		short, text, _ := strings.Cut(text, "\n")
		if cmd, _, err := root.Find(strings.Fields(usage)[1:]); err == nil {
			long, examples, _ := strings.Cut("\n"+text, "\nexamples:\n")
			cmd.Use = strings.TrimPrefix(usage, strings.TrimSuffix(cmd.CommandPath(), cmd.Name()))
			cmd.Short, cmd.Long, cmd.Example = short, strings.TrimPrefix(long, "\n"), examples
		}
	}
}

func versionCommand(a *app) *cobra.Command {
	return &cobra.Command{Use: "version", Args: none,
		Run: func(*cobra.Command, []string) { fmt.Fprintf(a.env.Stdout, "bookend %s\n", a.env.Version) }}
}

// help returns a command's --help text, without the exit codes, which are the same for all commands.
func help(cmd *cobra.Command) string {
	long := cmp.Or(cmd.Long, strings.ToUpper(cmd.Short[:1])+cmd.Short[1:]+".")
	text := "usage: " + cmd.UseLine() + "\n\n" + long + "\n"
	if cmd.HasAvailableSubCommands() {
		text += "\ncommands:\n"
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() {
				text += fmt.Sprintf("  %-12s %s\n", c.Name(), c.Short)
			}
		}
	}
	if cmd.HasAvailableLocalFlags() {
		text += "\nflags:\n" + cmd.LocalFlags().FlagUsages()
	}
	if cmd.Example != "" {
		text += "\nexamples:\n" + cmd.Example + "\n"
	}
	return text
}

func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND]", Short: "show what a command does", Hidden: true, Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			of, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return noCommand("a command")(of, rest)
			}
			return of.Help()
		},
	}
}

// noCommand is the action of a command that needs a subcommand but was given none.
func noCommand(want string) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return misused(cmd, "want "+want)
		}
		cmd.SuggestionsMinimumDistance = 2
		meant := cmp.Or(config.DidYouMean(cmd.SuggestionsFor(args[0])), ": want "+want)
		return misused(cmd, fmt.Sprintf("no such command: %q%s", args[0], meant))
	}
}

// operands checks the number of arguments. If most is -1, there is no upper limit.
func operands(least, most int, want string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if n := len(args); n < least || most >= 0 && n > most {
			return misused(cmd, "want "+want)
		}
		return nil
	}
}

var none = operands(0, 0, "no arguments")

func completionCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "completion", Args: operands(1, 1, "bash, zsh or fish"), ValidArgs: []string{"bash", "zsh", "fish"},
		RunE: func(cmd *cobra.Command, args []string) error {
			// The script is written unfiltered: cobra generates all of it.
			write := map[string]func(io.Writer) error{"zsh": cmd.Root().GenZshCompletionNoDesc,
				"bash": func(w io.Writer) error { return cmd.Root().GenBashCompletionV2(w, false) },
				"fish": func(w io.Writer) error { return cmd.Root().GenFishCompletion(w, false) }}[args[0]]
			if write == nil {
				return misused(cmd, fmt.Sprintf("no such shell: %q: want bash, zsh or fish", args[0]))
			}
			return write(a.raw)
		},
	}
}
