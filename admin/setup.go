package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"bookend/deploy"
	"bookend/internal/child"
	"bookend/internal/safefile"
	"bookend/internal/slurm"
	"bookend/internal/slurmcmd"
	"bookend/internal/slurmconf"
)

func (a *app) setupCommand() *cobra.Command {
	var conf, version string
	var write bool
	cmd := &cobra.Command{
		Use: "setup", Short: "print or write the lines for slurm.conf and the scripts that they name",
		Long: `Reads slurm.conf and prints the lines with which Slurm calls Bookend. They fit what the
site already has: its own scripts, NHC, pam_slurm_adopt, X11, pyxis, configless nodes.
--write writes them to bookend.conf next to slurm.conf and the scripts to a directory
there, so that they reach every host as slurm.conf does. It changes no other file.`,
		Args: none, RunE: func(*cobra.Command, []string) error { return a.setup(conf, version, write) },
	}
	cmd.Flags().StringVar(&conf, "slurm-conf", "", "the `FILE` slurm.conf, if it is not at Slurm's default path")
	cmd.Flags().StringVar(&version, "slurm", "", "the oldest `VERSION` of Slurm on the nodes, such as 24.11; default: scontrol's")
	cmd.Flags().BoolVar(&write, "write", false, "write bookend.conf and the scripts")
	return cmd
}

func (a *app) setup(conf, version string, write bool) error {
	site, err := a.siteOf(conf, version)
	if err != nil {
		return err
	}
	plan := slurmconf.MakePlan(site)
	scripts := map[string]string{}
	for _, s := range plan.Scripts {
		if scripts[s.Name], err = s.Render(shipped); err != nil {
			return fmt.Errorf("make script %q: %w", s.Name, err)
		}
	}
	dir := filepath.Dir(site.Conf.Path)
	if write {
		if err := writePlan(dir, plan, scripts); err != nil {
			return err
		}
	}
	tellPlan(a.env.Stdout, site, plan, write)
	return nil
}

func shipped(name string) (string, error) {
	text, err := deploy.Hooks.ReadFile("slurm/hooks/" + name)
	return string(text), err
}

// siteOf reads what the site has.
func (a *app) siteOf(conf, version string) (s slurmconf.Site, err error) {
	places := slurmconf.Find("", a.env.Getenv("SLURM_CONF"))
	if conf != "" {
		path, err := filepath.Abs(conf)
		if err != nil {
			return s, err
		}
		places = []slurmconf.Files{{Slurm: path}}
	}
	for _, place := range places {
		if s.Conf, err = slurmcmd.Read(place.Slurm); err == nil {
			break
		}
	}
	if err != nil {
		return s, fmt.Errorf("read slurm.conf: %w: name it with --slurm-conf", err)
	}
	if s.Version, err = a.slurmVersion(version); err != nil {
		return s, err
	}
	s.Pyxis = slurmcmd.Pyxis(s.Conf)
	files, _ := filepath.Glob("/etc/pam.d/*")
	for _, file := range files {
		text, err := os.ReadFile(file)
		s.Adopts = s.Adopts || err == nil && bytes.Contains(text, []byte("pam_slurm_adopt"))
	}
	return s, nil
}

func (a *app) slurmVersion(text string) (slurm.Version, error) {
	if text == "" {
		const enough = 1 << 10
		res := child.Run(child.Spec{
			Path: a.config().Slurm.Scontrol, Args: []string{"-V"}, Env: []string{}, MaxOutput: enough,
			Timeout: 5 * time.Second,
		})
		text = string(res.Stdout)
	} else {
		text = "slurm " + text
	}
	v, ok := slurm.ParseVersion(text)
	if !ok {
		return v, fmt.Errorf("cannot read Slurm's version from %q: name it with --slurm", text)
	}
	return v, nil
}

// writePlan writes the scripts first: a line whose script is missing would drain a node.
func writePlan(dir string, plan slurmconf.Plan, scripts map[string]string) error {
	for name, text := range scripts {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("write scripts: %w", err)
		}
		if err := safefile.Replace(filepath.Dir(path), filepath.Base(path), []byte(text), 0o755); err != nil {
			return fmt.Errorf("write script %q: %w", name, err)
		}
	}
	if err := safefile.Replace(dir, "bookend.conf", []byte(plan.Text), 0o644); err != nil {
		return fmt.Errorf("write lines: %w", err)
	}
	return nil
}

func tellPlan(w io.Writer, site slurmconf.Site, plan slurmconf.Plan, written bool) {
	dir := filepath.Dir(site.Conf.Path)
	fmt.Fprintf(w, "Slurm %s, %s\n", site.Version.Series(), site.Conf.Path)
	for _, f := range plan.Found {
		fmt.Fprintf(w, "found: %s\n", f)
	}
	fmt.Fprintln(w)
	if written {
		fmt.Fprintf(w, "Written: %s/bookend.conf and %d scripts.\n\nNext:\n", dir, len(plan.Scripts))
	} else {
		fmt.Fprintf(w, "%s\nNothing was written. Next:\n  bookend setup --write, which writes these lines to "+
			"%s/bookend.conf, and the "+
			"%d scripts that they name\n", plan.Text, dir, len(plan.Scripts))
	}
	fmt.Fprintf(w, "  distribute both to every host, as you distribute slurm.conf\n"+
		"  add this as the last line of slurm.conf, or paste the lines themselves:\n\n    Include %s\n\n  scontrol "+
		"reconfigure",
		plan.Include)
	if !site.Version.Has(slurm.ConfiglessHooks) {
		fmt.Fprint(w, ", and restart slurmd on the nodes with GPUs")
	}
	fmt.Fprint(w, "\n  bookend doctor, on a node with GPUs\n")
	for _, s := range plan.Steps {
		fmt.Fprintf(w, "Note: %s\n", s)
	}
}
