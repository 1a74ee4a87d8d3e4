package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"

	"bookend/deploy"
	"bookend/internal/safefile"
	"bookend/internal/slurm"
	"bookend/internal/slurmcmd"
	"bookend/internal/slurmconf"
)

type toSetUp struct {
	conf, version     string
	pyxis, configless string // yes or no; if empty, read from this host's files
	write, diff       bool
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
	f := cmd.Flags()
	f.StringVar(&o.conf, "slurm-conf", "", "the `FILE` slurm.conf, if it is not at Slurm's default path")
	f.StringVar(&o.version, "slurm", "", "the oldest `VERSION` of Slurm on the nodes, as 24.11; default: scontrol's")
	f.StringVar(&o.pyxis, "pyxis", "", "whether nodes have pyxis, `yes|no`; default: as this host's plugstack.conf")
	f.StringVar(&o.configless, "configless", "", "whether slurmctld sends slurm.conf to the nodes, `yes|no`; default: "+
		"as slurm.conf says")
	f.BoolVar(&o.write, "write", false, "write bookend.conf and the scripts")
	f.BoolVar(&o.diff, "diff", false, "show as a unified diff what --write would change")
	cmd.RunE = func(*cobra.Command, []string) error {
		for _, answer := range []string{o.pyxis, o.configless} {
			if !slices.Contains([]string{"", "yes", "no"}, answer) {
				return misused(cmd, fmt.Sprintf("want yes or no, not %q", answer))
			}
		}
		if o.write && o.diff {
			return misused(cmd, "want --write or --diff, not both")
		}
		site, err := slurmSite(a, o)
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

// slurmSite reads slurm.conf, and what the options do not say of the site from this host's files.
func slurmSite(a *app, o toSetUp) (slurmconf.Site, error) {
	conf, err := readConf(a, o.conf)
	if err != nil {
		return slurmconf.Site{}, err
	}
	pyxis := o.pyxis == "yes" || o.pyxis == "" && slurmcmd.Pyxis(conf)
	version, err := slurmVersion(a, o.version, conf.Path)
	own, doubt := slurmcmd.Earlier(filepath.Dir(conf.Path))
	return slurmconf.Site{Conf: conf, Version: version, Pyxis: pyxis, Sure: pyxis || o.pyxis != "",
		Configless: o.configless, Own: own}, cmp.Or(err, doubt)
}

// readConf reads the named slurm.conf, else the first that is where Slurm looks for it.
func readConf(a *app, named string) (slurmconf.Conf, error) {
	places := slurmconf.Find("", a.env.Getenv("SLURM_CONF"))
	if named != "" {
		path, err := filepath.Abs(named)
		if err != nil {
			return slurmconf.Conf{}, err
		}
		places = []slurmconf.Files{{Slurm: path}}
	}
	var conf slurmconf.Conf
	var err error
	for _, place := range places {
		conf, err = slurmcmd.Read(place.Slurm)
		if err == nil {
			return conf, conf.Incomplete()
		}
	}
	if named != "" {
		return conf, fmt.Errorf("read slurm.conf: %w", err)
	}
	return conf, fmt.Errorf("read slurm.conf: %w, nor is it in any of %s: name it with --slurm-conf", err,
		strings.Join(slurmconf.Dirs(), ", "))
}

// slurmVersion returns the given version of Slurm, or that of this host.
func slurmVersion(a *app, given, conf string) (slurm.Version, error) {
	text, err := "slurm "+given, error(nil)
	if given == "" {
		// Threat: scontrol loads plugins that slurm.conf names: root runs it only with files that only root can write.
		err = safefile.Trusted(conf)
		if err == nil || a.env.EUID != 0 {
			text, err = slurmcmd.Version(a.config().Slurm.Scontrol, conf, slurmcmd.Patience)
		}
	}
	v, ok := slurm.ParseVersion(text)
	switch {
	case err != nil || !ok:
		return v, fmt.Errorf("read version of Slurm: %w: give the oldest on your nodes, such as --slurm 24.11",
			cmp.Or(err, fmt.Errorf("%.200q is none", text)))
	case !v.Has(slurm.Oldest):
		return v, fmt.Errorf("release %s of Slurm is not supported: Bookend needs %s or later", v.Series(),
			slurm.Oldest.Series())
	}
	return v, nil
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
