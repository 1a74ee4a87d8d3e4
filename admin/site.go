package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"bookend/internal/config"
	"bookend/internal/doctor"
	"bookend/internal/node"
	"bookend/internal/safefile"
	"bookend/internal/view"
)

func configCommand(a *app) *cobra.Command {
	var syntax, defaults bool
	check := &cobra.Command{
		Use: "check", Args: operands(0, 1, "check [FILE]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case !syntax:
				return checkConfig(a, args)
			case len(args) == 0:
				return misused(cmd, "--syntax: want a FILE")
			}
			return checkSyntax(a, args[0])
		},
	}
	check.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveDefault) // file names
	check.Flags().BoolVar(&syntax, "syntax", false, "check only the text of FILE")
	show := &cobra.Command{Use: "show",
		Args: none, RunE: func(*cobra.Command, []string) error { return showConfig(a, defaults) }}
	show.Flags().BoolVar(&defaults, "defaults", false, "show the defaults only")
	cmd := &cobra.Command{Use: "config", Args: cobra.ArbitraryArgs, RunE: noCommand("show or check")}
	cmd.AddCommand(show, check)
	return cmd
}

func showConfig(a *app, defaults bool) error {
	path := cmp.Or(a.env.Getenv("BOOKEND_CONFIG"), config.DefaultFile)
	var data []byte
	from := "the defaults"
	if !defaults {
		var err error
		// Threat: a file that the hooks would not trust: like them, this reads only a trusted one.
		data, err = safefile.ReadTrusted(path, config.MaxBytes)
		switch _, problems := config.Parse(data); {
		case errors.Is(err, fs.ErrNotExist):
			from += "; " + path + " is missing"
		case err != nil:
			return fmt.Errorf("read configuration: %w", err)
		case len(problems) > 0:
			a.config() // prints what is wrong with it
			from += "; " + path + " has mistakes"
		default:
			from = path
		}
	}
	doctor.ShowConfig(a.say, data, path, from)
	return nil
}

func checkSyntax(a *app, file string) error {
	// Threat: none: the file is opened as the calling user, and nothing in it is used.
	data, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	return verdict(doctor.CheckSyntax(a.say, file, data))
}

// checkConfig checks a configuration as the hooks would.
func checkConfig(a *app, args []string) error {
	env := a.env
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
	}
	cfg, path, problems, err := node.ReadConfig(env)
	return verdict(doctor.CheckConfig(a.say, cfg, path, env.Getenv("SLURM_CONF"), problems, err))
}

// verdict is the exit code of a check that has written what is wrong.
func verdict(ok bool) error {
	if ok {
		return nil
	}
	return ending{code: exitTrouble}
}

func doctorCommand(a *app) *cobra.Command {
	var all bool
	cmd := &cobra.Command{Use: "doctor",
		Args: none, RunE: func(*cobra.Command, []string) error { return examine(a, all) }}
	cmd.Flags().BoolVar(&all, "all", false, "show the checks that are ok, too")
	return a.inJSON(cmd)
}

func examine(a *app, all bool) error {
	if a.env.EUID != 0 {
		return denied("only root can read all that doctor checks")
	}
	defer a.busy(fmt.Sprintf("bookend: checking; each check has up to %v", doctor.Patience))()
	site := doctor.SiteOf(a.env)
	site.NodeName = cmp.Or(site.NodeName, nodeOf(a.env, site.Config.Paths, ""))
	report := doctor.NewReport(view.Version, "doctor", site.NodeName,
		doctor.Examine(site, doctor.Patience, doctor.Checks()), all)
	return cmp.Or(a.write(report, false), verdict(!report.Fails()))
}
