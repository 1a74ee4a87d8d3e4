package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// help is what --help says of a command.
func help(cmd *cobra.Command) string {
	var b strings.Builder
	line := func(text string) { fmt.Fprintln(&b, text) }
	line("usage: " + usage(cmd))
	for paragraph := range strings.SplitSeq(cmp.Or(cmd.Long, cmd.Short), "\n\n") {
		fmt.Fprintln(&b)
		line(paragraph)
	}
	if subs := visible(cmd); len(subs) > 0 {
		fmt.Fprintln(&b, "\ncommands:")
		for _, c := range subs {
			line(fmt.Sprintf("  %-12s %s", c.Name(), c.Short))
		}
	}
	fmt.Fprintln(&b, "\nflags:")
	eachFlag(cmd, func(f *pflag.Flag) {
		name, text := flagWords(f)
		line(fmt.Sprintf("  %-16s %s", name, text))
	})
	if cmd.Example != "" {
		fmt.Fprintf(&b, "\nexamples:\n%s\n", cmd.Example)
	}
	fmt.Fprintln(&b, "\nexit codes:")
	for _, e := range exits {
		line(fmt.Sprintf("  %-3d %s", e.code, e.means))
	}
	return b.String()
}

// flagWords are a flag as it is written, and what it does.
func flagWords(f *pflag.Flag) (name, text string) {
	value, text := pflag.UnquoteUsage(f)
	return strings.TrimSpace("--" + f.Name + " " + valueName(f, value)), strings.TrimPrefix(text, value+": ")
}

// usage is a command's synopsis.
func usage(cmd *cobra.Command) string {
	line := cmd.CommandPath()
	if _, operands, has := strings.Cut(cmd.Use, " "); has {
		line += " " + operands
	}
	if len(visible(cmd)) > 0 {
		line += " [COMMAND]"
	}
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Name == "help" || f.Name == "version" || f.Hidden {
			return
		}
		name, _ := flagWords(f)
		line += " [" + name + "]"
	})
	return line
}

func valueName(f *pflag.Flag, name string) string {
	if f.Value.Type() == "bool" {
		return ""
	}
	return name
}

// eachFlag visits a command's own flags, then those of all commands.
func eachFlag(cmd *cobra.Command, visit func(*pflag.Flag)) {
	shown := func(f *pflag.Flag) {
		if !f.Hidden {
			visit(f)
		}
	}
	cmd.LocalFlags().VisitAll(shown)
	cmd.InheritedFlags().VisitAll(shown)
}

func visible(cmd *cobra.Command) []*cobra.Command {
	return slices.DeleteFunc(slices.Clone(cmd.Commands()), func(c *cobra.Command) bool {
		return c.Hidden || !c.IsAvailableCommand()
	})
}

// describe words what cobra words itself as this program does, in all commands.
func describe(cmd *cobra.Command) {
	cmd.InitDefaultHelpFlag()
	f := cmd.Flags().Lookup("help")
	f.Usage, f.Shorthand = "show this text", "h"
	cmd.DisableAutoGenTag, cmd.DisableFlagsInUseLine = true, true
	for _, c := range cmd.Commands() {
		describe(c)
	}
}

// helpCommand is "bookend help COMMAND".
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND]", Short: "show what a command does", Hidden: true, Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			of, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 || of == nil {
				return misused(cmd.Root(), fmt.Sprintf("no such command: %q", strings.Join(args, " ")))
			}
			of.InitDefaultHelpFlag()
			return of.Help()
		},
	}
}

// operands makes a command take so many of them; of most -1 any number.
func operands(least, most int, want string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if n := len(args); n < least || most >= 0 && n > most {
			return misused(cmd, "want "+want)
		}
		return nil
	}
}

// none makes a command take no operands.
func none(cmd *cobra.Command, args []string) error { return operands(0, 0, "no arguments")(cmd, args) }
