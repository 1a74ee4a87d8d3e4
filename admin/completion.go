package main

import (
	_ "embed"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// bashWords is what cobra's script for bash wants of the package bash-completion, for where that is not installed.
//
//go:embed completion.bash
var bashWords string

func completionCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "completion bash|zsh|fish", Short: "print the shell's completion script",
		Example: `  bookend completion bash >/usr/share/bash-completion/completions/bookend
  bookend completion zsh >/usr/local/share/zsh/site-functions/_bookend
  bookend completion fish >/usr/share/fish/vendor_completions.d/bookend.fish
  source <(bookend completion bash)    # in this shell alone`,
		Args:              operands(1, 1, "bash, zsh or fish"),
		ValidArgsFunction: firstOnly(fixed("bash", "zsh", "fish")),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.script(cmd, args[0])
		},
	}
}

// script writes a shell's script as it is: no terminal's escapes are in it but those of cobra's own.
func (a *app) script(cmd *cobra.Command, shell string) error {
	switch shell {
	case "bash":
		if _, err := io.WriteString(a.raw, bashWords); err != nil {
			return err
		}
		return cmd.Root().GenBashCompletionV2(a.raw, false)
	case "zsh":
		return cmd.Root().GenZshCompletionNoDesc(a.raw)
	case "fish":
		return cmd.Root().GenFishCompletion(a.raw, false)
	}
	return misused(cmd, fmt.Sprintf("no such shell: %q: want bash, zsh or fish", shell))
}
