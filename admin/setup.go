package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"

	"bookend/deploy"
	"bookend/internal/slurmcmd"
	"bookend/internal/slurmconf"
)

type toSetUp struct {
	site        slurmcmd.SiteRequest
	write, diff bool
}

func setupCommand(a *app) *cobra.Command {
	var o toSetUp
	cmd := &cobra.Command{
		Use: "setup", Short: "print or write the lines for slurm.conf and the scripts that they name",
		Long: `Reads slurm.conf and prints the lines with which Slurm calls Bookend. They fit what the
site already has: its own scripts, NHC, Contain, X11, pyxis, configless nodes.
--write writes them to bookend.conf next to slurm.conf and the scripts to a directory
there, so that they reach every host as slurm.conf does. It changes no other file, and
keeps what it replaces as FILE.old, or FILE.old.2 and so on. --diff shows what it would
change, and changes nothing.`,
		Args: none,
	}
	f, s := cmd.Flags(), &o.site
	f.StringVar(&s.Conf, "slurm-conf", "", "the `FILE` slurm.conf, if it is not at Slurm's default path")
	f.StringVar(&s.Version, "slurm", "", "the oldest `VERSION` of Slurm on the nodes, as 24.11; default: scontrol's")
	f.StringVar(&s.Pyxis, "pyxis", "", "whether nodes have pyxis, `yes|no`; default: as this host's plugstack.conf")
	f.StringVar(&s.Configless, "configless", "", "whether slurmctld sends slurm.conf to the nodes, `yes|no`; default: "+
		"as slurm.conf says")
	f.BoolVar(&o.write, "write", false, "write bookend.conf and the scripts")
	f.BoolVar(&o.diff, "diff", false, "show as a unified diff what --write would change")
	cmd.RunE = func(*cobra.Command, []string) error {
		for _, answer := range []string{s.Pyxis, s.Configless} {
			if !slices.Contains([]string{"", "yes", "no"}, answer) {
				return misused(cmd, fmt.Sprintf("want yes or no, not %q", answer))
			}
		}
		if o.write && o.diff {
			return misused(cmd, "want --write or --diff, not both")
		}
		s.Environ, s.Root = a.env.Getenv("SLURM_CONF"), a.env.EUID == 0
		if s.Version == "" {
			s.Scontrol = a.config().Slurm.Scontrol
		}
		site, err := s.Read()
		if err != nil {
			return err
		}
		return setup(a.env.Stdout, site, o)
	}
	return cmd
}

func setup(w io.Writer, site slurmconf.Site, o toSetUp) error {
	plan, err := slurmconf.MakePlan(site)
	if err != nil {
		return fmt.Errorf("plan: %w", err)
	}
	var done []string
	for _, s := range plan.Scripts {
		text, err := s.Render(shipped)
		if err != nil {
			return fmt.Errorf("make script %q: %w", s.Name, err)
		}
		file, err := slurmcmd.Compare(filepath.Dir(site.Conf.Path), s.Name, text)
		if err != nil {
			return err
		}
		if o.diff {
			fmt.Fprint(w, preview(file))
		}
		if o.write {
			done, err = file.Put(done)
		}
		if err != nil {
			return err
		}
	}
	if !o.diff {
		fmt.Fprint(w, plan.Instructions(site, done))
	}
	return nil
}

func shipped(name string) (string, error) {
	text, err := deploy.Hooks.ReadFile("slurm/hooks/" + name)
	return string(text), err
}

// preview returns what a write would change, nothing if that is nothing.
func preview(f slurmcmd.Target) string {
	from := os.DevNull
	if f.There {
		from = f.Path
	}
	text := string(diff.Diff(from, f.Old, f.Path, []byte(f.Text)))
	if f.There && !f.Right {
		text += fmt.Sprintf("owner and mode of %s: root, %#o\n", f.Path, f.Mode)
	}
	return text
}
