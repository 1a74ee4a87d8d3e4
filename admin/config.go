package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"bookend/deploy"
	"bookend/internal/answer"
	"bookend/internal/backend"
	"bookend/internal/config"
	"bookend/internal/report"
	"bookend/internal/safefile"
	"bookend/internal/stage"
)

func configCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "config", Short: "show or check the configuration",
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return misused(cmd, fmt.Sprintf("no such command: %q", args[0]))
			}
			return misused(cmd, "want show or check")
		},
	}
	var syntax bool
	check := &cobra.Command{
		Use: "check [FILE]", Short: "check the configuration in effect, or a file before it is installed",
		Long: `Checks a configuration as the hooks do: its text, its owner and mode, and whether the
backend that it names starts and can load its libraries. With --syntax it checks only
the text of FILE, as any user and without Bookend's other programs: for a site's CI.`,
		Args: operands(0, 1, "check [FILE]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case !syntax:
				return a.checkConfig(args)
			case len(args) == 0:
				return misused(cmd, "--syntax: want a FILE")
			}
			return a.checkSyntax(args[0])
		},
		ValidArgsFunction: firstOnly(func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return []string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt
		}),
	}
	check.Flags().BoolVar(&syntax, "syntax", false, "check only the text of FILE")
	a.inJSON(check)
	cmd.AddCommand(a.configShow(), check)
	return cmd
}

// configShow is "bookend config show".
func (a *app) configShow() *cobra.Command {
	var defaults bool
	cmd := &cobra.Command{
		Use: "show", Short: "show every key in effect, where it is set, and what it means",
		Long: `Shows every key in effect, the line of the configuration that sets it, and what it
means in short. docs/config.md and bookend.yaml(5) have the full text.`,
		Args: none, RunE: func(*cobra.Command, []string) error { return a.showConfig(defaults) },
	}
	cmd.Flags().BoolVar(&defaults, "defaults", false, "show the defaults only")
	return cmd
}

// showConfig writes a key a paragraph.
func (a *app) showConfig(defaults bool) error {
	var data []byte
	path := "the defaults"
	if !defaults {
		path = cmp.Or(a.env.Getenv("BOOKEND_CONFIG"), config.DefaultFile)
		var err error
		// Threat: as for the hooks, whose configuration is shown: only what they would trust is.
		if data, err = safefile.ReadTrusted(path, config.MaxBytes); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("read configuration: %w", err)
		}
		a.config() // says what is wrong with it
	}
	fmt.Fprintf(a.env.Stdout, "# in effect: %s\n", report.Keep(path, maxLine))
	meanings := meanings()
	for _, s := range config.Settings(data) {
		from := "default"
		if s.Line > 0 {
			from = fmt.Sprintf("%s:%d", report.Keep(filepath.Base(path), maxLine), s.Line)
		}
		fmt.Fprintf(a.env.Stdout, "%s: %s  # %s\n", s.Key, report.Keep(s.Value, maxLine), from)
		if text := meanings[s.Key]; text != "" {
			fmt.Fprintf(a.env.Stdout, "    %s\n", text)
		}
	}
	return nil
}

// meanings are the first sentences of what the manual page says of each key.
func meanings() map[string]string {
	all := map[string]string{}
	for _, entry := range strings.Split(deploy.ConfigPage, "\n.TP\n\\fB")[1:] {
		head, text, _ := strings.Cut(entry, "\n")
		key, _, _ := strings.Cut(head, `\fP`)
		text, _, _ = strings.Cut(text, "\n")
		first, _, _ := strings.Cut(strings.ReplaceAll(text, `\`, ""), ". ")
		all[key] = strings.TrimSuffix(first, ".")
	}
	return all
}

// checkSyntax checks a file's text, whoever may write it.
func (a *app) checkSyntax(file string) error {
	c := checked{Config: answer.NewConfig(file)}
	// Threat: none: the file is opened as the user who asks, and nothing in it is used.
	data, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	cfg, problems := config.Parse(data)
	for _, p := range append(problems, cfg.Unused...) {
		c.Lines = append(c.Lines, answer.CheckedLine{Line: p.Line, Text: placed(file, p)})
	}
	c.Valid = len(problems) == 0
	c.Usable, c.Verdict = c.Valid, "configuration is not valid"
	if c.Valid {
		c.Verdict = fmt.Sprintf("configuration is valid: mode %s", cfg.Mode)
	}
	return a.sayChecked(c.Config)
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
	cfg, path, problems, err := stage.ReadConfig(env)
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
		c.Verdict = fmt.Sprintf("configuration %s valid: %s observe with the default policy", c.isNot, c.do)
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
	c.say(fmt.Sprintf("checked: %s: there, executable; only root can write it and the directories "+
		"above it", cfg.Backend))
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
