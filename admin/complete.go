package main

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"bookend/internal/code"
)

// Completion offers commands, flags, fixed words and findings. What stands in a node's records is text from outside,
// and root's: no shell gets it to complete with.

type completer = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective)

// fixed completes words that do not depend on the node.
func fixed(words ...string) completer {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return words, cobra.ShellCompDirectiveNoFileComp
	}
}

// firstOnly completes the first operand alone.
func firstOnly(complete completer) completer {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return complete(cmd, args, typed)
	}
}

// completeCodes offers findings, with and without what all of them begin with, in the case that is typed.
func completeCodes(_ *cobra.Command, _ []string, typed string) (words []string, _ cobra.ShellCompDirective) {
	const prefix = "BKD-"
	upper := strings.ToUpper(typed)
	short := !strings.HasPrefix(prefix, upper) && !strings.HasPrefix(upper, prefix)
	for _, e := range code.All() {
		word := string(e.Code)
		if short {
			word = strings.TrimPrefix(word, prefix)
		}
		if typed != upper {
			word = strings.ToLower(word)
		}
		if strings.HasPrefix(word, typed) {
			words = append(words, word+"\t"+e.Title)
		}
	}
	return words, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}

// offerNothing keeps shells from offering files for commands that take no operand.
func offerNothing(cmd *cobra.Command) {
	if cmd.ValidArgsFunction == nil {
		cmd.ValidArgsFunction = fixed()
	}
	for _, c := range cmd.Commands() {
		offerNothing(c)
	}
}

// unquoted takes from the flags' descriptions the marks by which --help knows what is to be put there.
func unquoted(cmd *cobra.Command) {
	cmd.InitDefaultHelpFlag()
	plain := func(f *pflag.Flag) { _, f.Usage = flagWords(f) }
	cmd.Flags().VisitAll(plain)
	cmd.PersistentFlags().VisitAll(plain)
	for _, c := range cmd.Commands() {
		unquoted(c)
	}
}
