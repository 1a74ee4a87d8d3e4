package main

import (
	"fmt"
	"os"
	"slices"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"

	"bookend/deploy"
	"bookend/internal/slurmcmd"
)

type toSetUp struct {
	site        slurmcmd.SiteRequest
	write, diff bool
}

func setupCommand(a *app) *cobra.Command {
	var o toSetUp
	cmd := &cobra.Command{Use: "setup", Args: none}
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
		files, instructions, err := slurmcmd.Prepare(site, deploy.Script)
		if err != nil {
			return err
		}
		return o.use(a, files, instructions)
	}
	return cmd
}

// use shows what would change, or writes the files and says what is next.
func (o toSetUp) use(a *app, files []slurmcmd.Target, instructions func(done []string) string) (err error) {
	var done []string
	for i := 0; err == nil && i < len(files); i++ {
		if o.diff {
			fmt.Fprint(a.env.Stdout, preview(files[i]))
		} else if o.write {
			done, err = files[i].Put(done)
		}
	}
	if err == nil && !o.diff {
		fmt.Fprint(a.env.Stdout, instructions(done))
	}
	return err
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
