package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

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
	write             bool
}

func setupCommand(a *app) *cobra.Command {
	var o toSetUp
	cmd := &cobra.Command{
		Use: "setup", Short: "print or write the lines for slurm.conf and the scripts that they name",
		Long: `Reads slurm.conf and prints the lines with which Slurm calls Bookend. They fit what the
site already has: its own scripts, NHC, Contain, X11, pyxis, configless nodes.
--write writes them to bookend.conf next to slurm.conf and the scripts to a directory
there, so that they reach every host as slurm.conf does. It changes no other file, and
keeps what it replaces as FILE.old, or FILE.old.2 and so on.`,
		Args: none,
	}
	f := cmd.Flags()
	f.StringVar(&o.conf, "slurm-conf", "", "the `FILE` slurm.conf, if it is not at Slurm's default path")
	f.StringVar(&o.version, "slurm", "", "the oldest `VERSION` of Slurm on the nodes, as 24.11; default: scontrol's")
	f.StringVar(&o.pyxis, "pyxis", "", "whether nodes have pyxis, `yes|no`; default: as this host's plugstack.conf")
	f.StringVar(&o.configless, "configless", "", "whether slurmctld sends slurm.conf to the nodes, `yes|no`; default: "+
		"as slurm.conf says")
	f.BoolVar(&o.write, "write", false, "write bookend.conf and the scripts")
	cmd.RunE = func(*cobra.Command, []string) error {
		for _, answer := range []string{o.pyxis, o.configless} {
			if !slices.Contains([]string{"", "yes", "no"}, answer) {
				return misused(cmd, fmt.Sprintf("want yes or no, not %q", answer))
			}
		}
		site, err := slurmSite(a, o)
		if err != nil {
			return err
		}
		return setup(a.env.Stdout, site, o.write)
	}
	return cmd
}

func setup(w io.Writer, site slurmconf.Site, write bool) error {
	plan, err := slurmconf.MakePlan(site)
	if err != nil {
		return fmt.Errorf("plan: %w", err)
	}
	type file struct{ name, text string }
	var files []file
	for _, s := range plan.Scripts {
		text, err := s.Render(shipped)
		if err != nil {
			return fmt.Errorf("make script %q: %w", s.Name, err)
		}
		files = append(files, file{s.Name, text})
	}
	files = append(files, file{slurmconf.Written, plan.Text}) // at the end: a line without its script would drain nodes
	var done []string
	for i := 0; write && i < len(files); i++ {
		what, err := put(filepath.Dir(site.Conf.Path), files[i].name, files[i].text)
		if err != nil {
			return err
		}
		done = append(done, what...)
	}
	printPlan(w, site, plan, done)
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
	return slurmconf.Site{Conf: conf, Version: version, Pyxis: pyxis, Sure: pyxis || o.pyxis != "",
		Local: o.configless == "no"}, err
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
			return conf, whole(conf)
		}
	}
	if named != "" {
		return conf, fmt.Errorf("read slurm.conf: %w", err)
	}
	return conf, fmt.Errorf("read slurm.conf: %w, nor is it in any of %s: name it with --slurm-conf", err,
		strings.Join(slurmconf.Dirs(), ", "))
}

// whole refuses a configuration that was not read completely, since settings in the unread part could be overridden.
func whole(conf slurmconf.Conf) error {
	for _, l := range conf.Lines {
		if why := l.Unreadable(); why != "" && filepath.Base(l.Include) != slurmconf.Written {
			return fmt.Errorf("read slurm.conf: %s: what is set there could be overridden", why)
		}
	}
	if _, ok := conf.Get("ClusterName"); !ok {
		return fmt.Errorf("read slurm.conf: %q has no ClusterName", conf.Path)
	}
	return nil
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

// shippedLine is the line of a script that an admin may replace, and configured is its replacement: a path.
var (
	shippedLine = regexp.MustCompile(`(?m)^#export BOOKEND_CONFIG=.*$`)
	configured  = regexp.MustCompile(`(?m)^export BOOKEND_CONFIG="?[\w./$-]+"?$`)
)

// put writes a file below the directory of slurm.conf unless it is already there, and returns what was done. It
// preserves an admin's setting in a script and keeps a copy of a file that it replaces.
func put(base, below, text string) ([]string, error) {
	done, err := openDirs(base, filepath.Dir(below))
	if err != nil {
		return done, fmt.Errorf("write scripts: %w", err)
	}
	path := filepath.Join(base, below)
	dir, name := filepath.Split(path)
	mode := os.FileMode(0o755)
	if name == slurmconf.Written {
		mode = 0o644
	}
	what := "new: " + path
	// Threat: a file that a user could have written: none of its lines is reused.
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return done, fmt.Errorf("read what is there: %w", err)
	}
	if err == nil {
		untrusted := safefile.Trusted(path)
		if set := configured.FindAll(old, -1); len(set) > 0 && untrusted == nil {
			text = shippedLine.ReplaceAllLiteralString(text, string(set[len(set)-1]))
		}
		info, err := os.Stat(path)
		if string(old) == text && untrusted == nil && err == nil && info.Mode().Perm() == mode {
			return append(done, "unchanged: "+path), nil
		}
		what, err = keep(path, old, text)
		if err != nil {
			return done, fmt.Errorf("keep what is there: %w", err)
		}
	}
	if err := safefile.Replace(dir, name, []byte(text), mode); err != nil {
		return done, fmt.Errorf("write %q: %w", path, err)
	}
	return append(done, what), nil
}

// openDirs makes the directories of a path below base, or corrects their mode, so that users can reach their task hooks
// whatever the umask is.
func openDirs(base, below string) (done []string, err error) {
	for rest := range strings.SplitSeq(below, "/") {
		path := filepath.Join(base, rest)
		info, err := os.Stat(path)
		base = path
		if rest == "." || err == nil && info.IsDir() && info.Mode().Perm()&0o055 == 0o055 {
			continue
		}
		// Threat: none from users: a link, or a parent that others can write to, is refused. The site may have made the
		// parent itself a link, hence the slash.
		if err := safefile.MakeDir(filepath.Dir(path)+"/", filepath.Base(path), 0o755); err != nil {
			return done, err
		}
		if info != nil {
			done = append(done, fmt.Sprintf("changed: %s, its mode was %#o", path, info.Mode().Perm()))
		}
	}
	return done, nil
}

// keep saves a file that is about to be replaced under the first free name next to it: earlier runs may have saved the
// site's own file there.
func keep(path string, old []byte, text string) (done string, err error) {
	if string(old) == text {
		return fmt.Sprintf("changed: %s, its owner or mode was wrong", path), nil
	}
	dir, name := filepath.Split(path)
	kept := name + ".old"
	for n := 2; ; n++ {
		// Threat: none: users cannot write here, or Replace refuses the new file.
		there, err := os.ReadFile(dir + kept)
		if errors.Is(err, fs.ErrNotExist) {
			there, err = old, safefile.Replace(dir, kept, old, 0o644)
		}
		if err != nil || bytes.Equal(there, old) {
			return fmt.Sprintf("changed: %s, what was there is %s", path, kept), err
		}
		kept = fmt.Sprintf("%s.old.%d", name, n)
	}
}

func printPlan(w io.Writer, site slurmconf.Site, plan slurmconf.Plan, done []string) {
	fmt.Fprintf(w, "Slurm %s, %s\n\n", site.Version.Series(), site.Conf.Path)
	if len(done) > 0 {
		fmt.Fprintf(w, "%s\n\nNext:\n", strings.Join(done, "\n"))
	} else {
		fmt.Fprintf(w, "%s\nNothing was written. Next: the same with --write, which writes these lines to %s/%s, "+
			"and %d scripts\n", plan.Text, filepath.Dir(site.Conf.Path), slurmconf.Written, len(plan.Scripts))
	}
	spread := "distribute all of it to every host, as you distribute slurm.conf"
	if plan.Sent {
		spread = "keep all of it next to slurmctld's slurm.conf, which sends it to the nodes; copy it to\n" +
			"  hosts that have a slurm.conf of their own"
	}
	restart := ""
	if !site.Version.Has(slurm.ConfiglessHooks) {
		restart = ", and restart slurmd on the nodes with GPUs"
	}
	fmt.Fprintf(w, "  %s\n  have this as the last line of slurm.conf, or paste the lines:\n\n    Include %s\n\n"+
		"  scontrol reconfigure%s\n  bookend doctor, on a node with GPUs\n", spread, plan.Include, restart)
	for _, s := range plan.Steps {
		fmt.Fprintf(w, "Note: %s\n", s)
	}
}
