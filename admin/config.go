package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/spf13/cobra"

	"bookend/internal/answer"
	"bookend/internal/backend"
	"bookend/internal/config"
	"bookend/internal/report"
	"bookend/internal/session"
)

func configCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "config", Short: "is a configuration valid and root's, can the hooks start the backend, and drain",
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return misused(cmd, fmt.Sprintf("no such command: %q", args[0]))
			}
			return misused(cmd, "want check [FILE]")
		},
	}
	check := &cobra.Command{
		Use: "check [FILE]", Short: "check the configuration in force, or another before it is installed",
		Long: `Checks a configuration as the hooks would: its text, whether root may trust it,
and whether they can start the backend that it names and load its libraries.`,
		Args: operands(0, 1, "check [FILE]"),
		RunE: func(_ *cobra.Command, args []string) error { return a.checkConfig(args) },
		ValidArgsFunction: firstOnly(func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return []string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt
		}),
	}
	a.inJSON(check)
	cmd.AddCommand(check)
	return cmd
}

// checked is what a check of a configuration has come to; is and do word what holds of it, or would.
type checked struct {
	answer.Config
	is, isNot, do string
}

func (c *checked) say(texts ...string) {
	for _, t := range texts {
		c.Lines = append(c.Lines, answer.CheckedLine{Text: t})
	}
}

// checkConfig checks a configuration as the hooks would. One line for each mistake, the verdict last.
func (a *app) checkConfig(args []string) error {
	c, env := checked{is: "is", isNot: "is not", do: "the hooks"}, a.env
	if len(args) == 1 {
		file, err := filepath.Abs(args[0])
		if err != nil {
			return err
		}
		env.Getenv = naming(file, env.Getenv)
		c.is, c.isNot, c.do = "would be", "would not be", "the hooks would"
	}
	cfg, path, problems, err := session.ReadConfig(env)
	c.Config = answer.NewConfig(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && len(args) == 0 && path == config.DefaultFile:
		c.Verdict = path + ": missing: shipped defaults in force"
	case err != nil:
		c.say(err.Error())
		c.Verdict = fmt.Sprintf("configuration %s used: %s observe with the shipped defaults", c.isNot, c.do)
	case len(problems) > 0:
		for _, p := range problems {
			c.Lines = append(c.Lines, answer.CheckedLine{Line: p.Line, Text: placed(path, p)})
		}
		c.Verdict = fmt.Sprintf("configuration %s valid: %s observe with the shipped policy", c.isNot, c.do)
	default:
		c.Valid = true
		for _, p := range cfg.Unused {
			c.Lines = append(c.Lines, answer.CheckedLine{Line: p.Line, Text: placed(path, p)})
		}
		c.startable(cfg, path)
	}
	return a.sayChecked(c.Config)
}

func (a *app) sayChecked(c answer.Config) error {
	c.Verdict = string(report.Keep(c.Verdict, maxLine))
	for i := range c.Lines {
		c.Lines[i].Text = string(report.Keep(c.Lines[i].Text, maxLine))
	}
	err := a.write(func() any { return c }, func(w io.Writer) {
		for _, l := range c.Lines {
			fmt.Fprintln(w, l.Text)
		}
		fmt.Fprintln(w, c.Verdict)
	})
	if err == nil && !c.Usable {
		return answered(exitTrouble)
	}
	return err
}

// maxLine is more than any line of a check has: a path may have 4095 bytes.
const maxLine = 8 << 10

// naming is an environment in which BOOKEND_CONFIG names a file.
func naming(file string, getenv func(string) string) func(string) string {
	return func(name string) string {
		if name == "BOOKEND_CONFIG" {
			return file
		}
		return getenv(name)
	}
}

// placed writes a mistake as editors and their users expect it: FILE:LINE: what.
func placed(path string, p config.Problem) string {
	line := p.Line
	p.Line = 0
	if line == 0 {
		return path + ": " + p.String()
	}
	return fmt.Sprintf("%s:%d: %s", path, line, p)
}

// startable ends the check of a valid configuration with whether the hooks can work with it.
func (c *checked) startable(cfg config.Config, path string) {
	c.say(fmt.Sprintf("checked: %s: every key; only root can write it and the directories above it", path))
	p := backend.Params{Path: cfg.Backend, Root: true}
	if t := backend.Check(p, cfg.NVIDIA.ForLooks()); t != nil {
		c.unusable(*t, "the hooks cannot start the backend and would look at no GPU")
		return
	}
	c.say(fmt.Sprintf("checked: %s: there, executable; only root can write it and the directories above it", cfg.Backend))
	if t := backend.Check(p, cfg.NVIDIA.ForTests()); t != nil {
		c.unusable(*t, "the hooks would test no GPU")
		return
	}
	c.say("not checked: the driver and Slurm; bookend doctor looks at both")
	c.Usable, c.Verdict = true, fmt.Sprintf("configuration %s valid: mode %s, backend %s", c.is, cfg.Mode, cfg.Backend)
}

func (c *checked) unusable(t backend.Trouble, what string) {
	c.say(fmt.Sprintf("%s: %s", t.Code, t.Detail))
	c.Verdict = fmt.Sprintf("configuration %s valid, but %s", c.is, what)
}
