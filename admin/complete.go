package main

import (
	"github.com/spf13/cobra"
)

// Completion offers commands, flags and fixed words. What stands in a node's records is text from outside,
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

// offerNothing keeps shells from offering files for commands that take no operand.
func offerNothing(cmd *cobra.Command) {
	if cmd.ValidArgsFunction == nil {
		cmd.ValidArgsFunction = fixed()
	}
	for _, c := range cmd.Commands() {
		offerNothing(c)
	}
}
