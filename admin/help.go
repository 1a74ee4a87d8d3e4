package main

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

func (a *app) root() *cobra.Command {
	cmd := &cobra.Command{
		Use: "bookend [COMMAND]", Short: "show what Bookend recorded of this node's GPUs and jobs",
		Long: `Bookend records each GPU's memory and processes when a job starts and when it ends.
This program shows the records of this node. Root sees everything; other users
see their own jobs.`,
		Args: cobra.ArbitraryArgs, SilenceErrors: true, SilenceUsage: true,
		RunE: noCommand("a command"), Version: cmp.Or(a.env.Version, version),
	}
	cobra.EnableCommandSorting = false
	cmd.CompletionOptions.DisableDefaultCmd = true
	// Records contain text from outside and only root may read them, so a shell completes neither them nor file names.
	cmd.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	cmd.SetHelpCommand(helpCommand())
	cmd.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		fmt.Fprint(a.env.Stdout, help(cmd), "\nexit codes:\n")
		for _, e := range exits {
			fmt.Fprintf(a.env.Stdout, "  %-3d %s\n", e.code, e.text)
		}
	})
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return misused(cmd, err.Error()) })
	cmd.PersistentFlags().BoolP("help", "h", false, "show this text")
	cmd.SetVersionTemplate("bookend {{.Version}}\n")
	cmd.Flags().Bool("version", false, "print the version")
	cmd.AddCommand(a.statusCommand(), a.showCommand(), a.whyCommand(), a.historyCommand(), a.snapshotCommand(),
		a.explainCommand(), a.baselineCommand(), a.configCommand(), a.doctorCommand(), a.setupCommand(),
		a.reportCommand(), a.completionCommand(), &cobra.Command{
			Use: "version", Short: "print the version", Args: none,
			RunE: func(*cobra.Command, []string) error {
				_, err := fmt.Fprintf(a.env.Stdout, "bookend %s\n", a.env.Version)
				return err
			},
		})
	return cmd
}

// help returns a command's --help text, without the exit codes, which are the same for all commands.
func help(cmd *cobra.Command) string {
	text := "usage: " + cmd.UseLine() + "\n\n" + long(cmd) + "\n"
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

func long(cmd *cobra.Command) string {
	return cmp.Or(cmd.Long, strings.ToUpper(cmd.Short[:1])+cmd.Short[1:]+".")
}

func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND]", Short: "show what a command does", Hidden: true, Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			of, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return misused(cmd.Root(), fmt.Sprintf("no such command: %q", strings.Join(args, " ")))
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
		return misused(cmd, fmt.Sprintf("no such command: %q: want %s", args[0], want))
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

func none(cmd *cobra.Command, args []string) error { return operands(0, 0, "no arguments")(cmd, args) }

func (a *app) completionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "completion bash|zsh|fish", Short: "print the shell's completion script",
		Example: `  bookend completion bash >/usr/share/bash-completion/completions/bookend
  bookend completion zsh >/usr/local/share/zsh/site-functions/_bookend
  bookend completion fish >/usr/share/fish/vendor_completions.d/bookend.fish
  source <(bookend completion bash)    # in this shell alone`,
		Args: operands(1, 1, "bash, zsh or fish"), ValidArgs: []string{"bash", "zsh", "fish"},
		RunE: func(cmd *cobra.Command, args []string) error {
			// The script is written unfiltered: cobra generates all of it.
			switch args[0] {
			case "bash":
				return cmd.Root().GenBashCompletionV2(a.raw, false)
			case "zsh":
				return cmd.Root().GenZshCompletionNoDesc(a.raw)
			case "fish":
				return cmd.Root().GenFishCompletion(a.raw, false)
			}
			return misused(cmd, fmt.Sprintf("no such shell: %q: want bash, zsh or fish", args[0]))
		},
	}
}
