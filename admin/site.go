package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"bookend/deploy"
	"bookend/internal/answer"
	"bookend/internal/backend"
	"bookend/internal/config"
	"bookend/internal/doctor"
	"bookend/internal/inventory"
	"bookend/internal/operation"
	"bookend/internal/report"
	"bookend/internal/safefile"
	"bookend/internal/stage"
	"bookend/internal/wire"
)

func (a *app) configCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "config", Short: "show or check the configuration",
		Args: cobra.ArbitraryArgs, RunE: noCommand("show or check"),
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
	}
	check.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveDefault) // files
	check.Flags().BoolVar(&syntax, "syntax", false, "check only the text of FILE")
	cmd.AddCommand(a.configShow(), a.inJSON(check))
	return cmd
}

func (a *app) configShow() *cobra.Command {
	var defaults bool
	cmd := &cobra.Command{
		Use: "show", Short: "show every key in effect, where it is set, and what it means",
		Long: `Shows every key in effect as a configuration that can be used, with the line that sets
it and what it means in short. docs/config.md and bookend.yaml(5) have the full text.`,
		Args: none, RunE: func(*cobra.Command, []string) error { return a.showConfig(defaults) },
	}
	cmd.Flags().BoolVar(&defaults, "defaults", false, "show the defaults only")
	return cmd
}

// showConfig writes a configuration that says all that is in effect.
func (a *app) showConfig(defaults bool) error {
	path := cmp.Or(a.env.Getenv("BOOKEND_CONFIG"), config.DefaultFile)
	var data []byte
	from := "the defaults"
	if !defaults {
		var err error
		// Threat: as for the hooks, whose configuration is shown: only what they would trust is.
		data, err = safefile.ReadTrusted(path, config.MaxBytes)
		switch _, problems := config.Parse(data); {
		case errors.Is(err, fs.ErrNotExist):
			from += "; " + path + " is missing"
		case err != nil:
			return fmt.Errorf("read configuration: %w", err)
		case len(problems) > 0:
			a.config() // says what is wrong with it
			from += "; " + path + " has mistakes"
		default:
			from = path
		}
	}
	fmt.Fprintf(a.env.Stdout, "# in effect: %s\n", report.Keep(from, maxLine))
	var in []string
	meanings := meanings()
	for _, s := range config.Settings(data) {
		names := strings.Split(s.Key, ".")
		last := len(names) - 1
		for i, section := range names[:last] {
			if i >= len(in) || in[i] != section {
				in = append(in[:i:i], section)
				fmt.Fprintf(a.env.Stdout, "%*s%s:\n", 2*i, "", section)
			}
		}
		in = names[:last]
		set := "default"
		if s.Line > 0 {
			set = fmt.Sprintf("%s:%d", report.Keep(filepath.Base(path), maxLine), s.Line)
		}
		fmt.Fprintf(a.env.Stdout, "%*s%s: %s  # %s; %s\n", 2*last, "", names[last], report.Keep(s.Value, maxLine), set,
			meanings[s.Key])
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

func (a *app) checkSyntax(file string) error {
	c := checked{Config: answer.NewConfig(file)}
	// Threat: none: the file is opened as the user who asks, and nothing in it is used.
	data, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	cfg, problems := config.Parse(data)
	c.mistaken(file, problems)
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

func (c *checked) say(text string) { c.Lines = append(c.Lines, answer.CheckedLine{Text: text}) }

// mistaken lists what is wrong with a file as editors and their users expect it: FILE:LINE: what.
func (c *checked) mistaken(path string, problems []config.Problem) {
	for _, p := range problems {
		line := answer.CheckedLine{Line: p.Line}
		p.Line = 0
		line.Text = path + ": " + p.String()
		if line.Line > 0 {
			line.Text = fmt.Sprintf("%s:%d: %s", path, line.Line, p)
		}
		c.Lines = append(c.Lines, line)
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
		env.Getenv = func(name string) string {
			if name == "BOOKEND_CONFIG" {
				return file
			}
			return a.env.Getenv(name)
		}
		c.is, c.isNot, c.do = "would be", "would not be", "the hooks would"
	}
	cfg, path, problems, err := stage.ReadConfig(env)
	c.Config = answer.NewConfig(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && len(args) == 0 && path == config.DefaultFile:
		c.Verdict = path + ": missing: the defaults are in effect"
	case err != nil:
		c.say(err.Error())
		c.Verdict = fmt.Sprintf("configuration %s used: %s observe with the defaults", c.isNot, c.do)
	case len(problems) > 0:
		c.mistaken(path, problems)
		c.Verdict = fmt.Sprintf("configuration %s valid: %s observe with the default policy", c.isNot, c.do)
	default:
		c.Valid = true
		c.startable(cfg, path)
	}
	return a.sayChecked(c.Config)
}

func (a *app) sayChecked(c answer.Config) error {
	c.Path, c.Verdict = string(report.Keep(c.Path, maxLine)), string(report.Keep(c.Verdict, maxLine))
	for i := range c.Lines {
		c.Lines[i].Text = string(report.Keep(c.Lines[i].Text, maxLine))
	}
	if err := a.write(c, false); err != nil || c.Usable {
		return err
	}
	return answered(exitTrouble)
}

// maxLine is more than any line of a check has: a path may have 4095 bytes.
const maxLine = 8 << 10

// startable ends the check of a valid configuration with whether the hooks can work with it.
func (c *checked) startable(cfg config.Config, path string) {
	c.say(fmt.Sprintf("checked: %s: every key; only root can write it and the directories above it", path))
	var programs []string
	for _, v := range inventory.Present(cfg.Paths.Sys) {
		program, options := cfg.BackendOf(v.Name, wire.Snapshot)
		p := backend.Params{Path: program, Root: true}
		if t := backend.Check(p, options); t != nil {
			c.unusable(*t, "the hooks cannot start the backend and would look at no GPU")
			return
		}
		c.say(fmt.Sprintf("checked: %s: there, executable; only root can write it and the directories "+
			"above it", program))
		p.Path, options = cfg.BackendOf(v.Name, wire.Probe)
		if t := backend.Check(p, options); cfg.Tests(v.Name) && t != nil {
			c.unusable(*t, "the hooks would test no GPU")
			return
		}
		programs = append(programs, program)
	}
	c.say("not checked: the driver and Slurm; bookend doctor looks at both")
	c.Usable = true
	c.Verdict = fmt.Sprintf("configuration %s valid: mode %s, backend %s", c.is, cfg.Mode, strings.Join(programs, ", "))
}

func (c *checked) unusable(t backend.Trouble, what string) {
	c.say(fmt.Sprintf("%s: %s", t.Code, t.Detail))
	c.Verdict = fmt.Sprintf("configuration %s valid, but %s", c.is, what)
}

func (a *app) doctorCommand() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use: "doctor", Short: "check the installation and show how to fix it",
		Long: `Checks owners and modes, slurm.conf, the driver and its GPUs, and the rest of the node.
It changes nothing. It prints what is wrong, why it matters and how to fix it, and how
many checks are ok. bookend config check lists every mistake of a configuration.`,
		Args: none, RunE: func(*cobra.Command, []string) error { return a.examine(all) },
	}
	cmd.Flags().BoolVar(&all, "all", false, "show the checks that are ok, too")
	return a.inJSON(cmd)
}

// examine says of everything that makes an installation wrong or slow whether it is as it must be. What may hang is
// looked at in children.
func (a *app) examine(all bool) error {
	if a.env.EUID != 0 {
		return denied("needs root: only root may look at all of it: run as root")
	}
	node := site(a.env)
	results := doctor.Examine(node, doctor.Patience)
	if !a.json {
		doctor.Print(a.env.Stdout, node.NodeName, results, all)
	} else if err := doctor.PrintJSON(a.raw, results); err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	if doctor.Fails(results) {
		return answered(exitTrouble)
	}
	return nil
}

// site is this node as its configuration describes it. No key says where the hooks are: slurm.conf does. They are
// looked for beside the backend, then where they are installed.
func site(env operation.Env) doctor.Site {
	cfg, path, problems, err := stage.ReadConfig(env)
	s := doctor.Site{
		Clock:  env.Clock,
		Config: cfg, ConfigPath: path,
		Programs: slices.Compact([]string{filepath.Dir(cfg.Backend), filepath.Dir(config.Default().Backend)}),
		NVML:     inventory.Installed("libnvidia-ml.so.1"), CUDA: inventory.Installed("libcuda.so.1"),
		Version: env.Version, Root: "/", SlurmConf: env.Getenv("SLURM_CONF"),
		NodeName: cmp.Or(env.Getenv("SLURMD_NODENAME"), nodeOf(env, cfg.Paths, "")),
	}
	switch {
	case errors.Is(err, fs.ErrNotExist) && path == config.DefaultFile: // as the rule says
	case err != nil:
		s.Mistake = "not used: " + err.Error()
	case len(problems) > 0:
		s.Mistake = fmt.Sprintf("not valid: %s (1 of %d)", problems[0], len(problems))
	}
	if s.Self, err = os.Executable(); err != nil {
		s.Self = os.Args[0]
	}
	return s
}

func (a *app) explainCommand() *cobra.Command {
	return &cobra.Command{
		Use: "explain CODE|EXITCODE|XID|REASON", Short: "explain a finding, an exit code, an Xid or a drain reason",
		Long: `Explains a finding by its code (BKD-ORPHAN, or orphan): what it means, what to do, what
the policy does with it, and its exit code. It also explains one of Bookend's exit codes
(10), an Xid, which is an error of the NVIDIA driver (xid79), and a drain reason as
sinfo -R shows it.`,
		Example: "  bookend explain orphan\n  bookend explain 10\n  bookend explain xid79\n  bookend explain " +
			"\"Epilog error\"",
		Args: operands(1, -1, "a finding, an exit code, an Xid or a drain reason"),
		RunE: func(_ *cobra.Command, args []string) error { return a.explain(strings.Join(args, " ")) },
	}
}

func (a *app) explain(what string) error {
	here, _ := stage.LoadConfig(a.env) // its problems are config check's
	if !answer.Explain(a.env.Stdout, what, here, exits) {
		return notFound(fmt.Sprintf("no such finding, exit status, Xid or drain reason: %q; docs/findings.md has "+
			"all findings, and NVIDIA lists all Xids", what))
	}
	return nil
}
