package slurmcmd

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"bookend/internal/safefile"
	"bookend/internal/slurm"
	"bookend/internal/slurmconf"
)

// Earlier returns the site's own scripts that those of an earlier setup run: see slurmconf.Earlier. If these are not
// root's alone it is an error, as without them the new ones would run the site's own no more.
func Earlier(dir string) (map[string]string, error) {
	scripts := func(read func(path string, limit int64) ([]byte, error)) map[string]string {
		return slurmconf.Earlier(func(name string) []byte {
			text, _ := read(filepath.Join(dir, name), slurmconf.MaxBytes)
			return text
		})
	}
	// Threat: a script that a user could have written would have root run another: what it has is compared only.
	own, all := scripts(safefile.ReadTrusted), scripts(func(path string, limit int64) ([]byte, error) {
		at, err := filepath.EvalSymlinks(path)
		if err != nil {
			return nil, err
		}
		return safefile.ReadGiven(at, limit)
	})
	if !maps.Equal(all, own) {
		return nil, fmt.Errorf("the files of an earlier bookend setup in %q run your own scripts, but users could "+
			"have changed them: look at them, then chown -R root and chmod -R go-w what is there, and try again", dir)
	}
	return own, nil
}

// Target is a file below the directory of slurm.conf as bookend setup wants it, and as it is.
type Target struct {
	Path         string
	Text         string // as wanted
	Mode         os.FileMode
	Old          []byte // as it is
	was          os.FileMode
	There, Right bool   // a file is there; its owner and mode are right
	base, below  string // Path's two parts
}

// Prepare returns the files that a site needs, and what to tell the admin once those in done are written.
func Prepare(site slurmconf.Site, shipped func(name string) (string, error)) (
	files []Target, instructions func(done []string) string, err error,
) {
	plan, err := slurmconf.MakePlan(site)
	if err != nil {
		return nil, nil, fmt.Errorf("plan: %w", err)
	}
	for _, s := range plan.Scripts {
		text, err := s.Render(shipped)
		if err != nil {
			return nil, nil, fmt.Errorf("make script %q: %w", s.Name, err)
		}
		file, err := Compare(filepath.Dir(site.Conf.Path), s.Name, text)
		if err != nil {
			return nil, nil, err
		}
		files = append(files, file)
	}
	return files, func(done []string) string { return plan.Instructions(site, done) }, nil
}

// Compare reads a file that is about to be written. An admin's setting in a script is kept.
func Compare(base, below, text string) (Target, error) {
	f := Target{base: base, below: below, Path: filepath.Join(base, below), Text: text, Mode: 0o755}
	if below == slurmconf.Written {
		f.Mode = 0o644
	}
	info, err := os.Stat(f.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err == nil {
		// Threat: a file that a user could have written: none of its lines is reused.
		f.Old, err = os.ReadFile(f.Path)
	}
	if err != nil {
		return f, fmt.Errorf("read what is there: %w", err)
	}
	trusted := safefile.Trusted(f.Path) == nil
	if trusted {
		f.Text = slurmconf.WithSetting(text, f.Old)
	}
	f.was, f.There, f.Right = info.Mode().Perm(), true, trusted && info.Mode().Perm() == f.Mode
	return f, nil
}

// Put writes a file unless it is already there, and adds what it did. It keeps a copy of a file that it replaces.
func (f Target) Put(done []string) ([]string, error) {
	dirs, err := openDirs(f.base, filepath.Dir(f.below))
	done = append(done, dirs...)
	what := "new: " + f.Path
	switch {
	case err != nil:
		return done, fmt.Errorf("write scripts: %w", err)
	case f.Right && string(f.Old) == f.Text:
		return append(done, "unchanged: "+f.Path), nil
	case f.There:
		what, err = keep(f.Path, f.Old, f.Text, f.was&0o644)
	}
	if err != nil {
		return done, fmt.Errorf("keep what is there: %w", err)
	}
	dir, name := filepath.Split(f.Path)
	if err := safefile.Replace(dir, name, []byte(f.Text), f.Mode); err != nil {
		return done, fmt.Errorf("write %q: %w", f.Path, err)
	}
	return append(done, what), nil
}

// openDirs makes the directories of a path below base, or corrects their mode: users must reach their task hooks.
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

// keep saves a file under the first free name next to it: earlier runs may have saved the site's own file there.
func keep(path string, old []byte, text string, mode os.FileMode) (done string, err error) {
	if string(old) == text {
		return fmt.Sprintf("changed: %s, its owner or mode was wrong", path), nil
	}
	dir, name := filepath.Split(path)
	kept := name + ".old"
	for n := 2; ; n++ {
		// Threat: none: users cannot write here, or Replace refuses the new file.
		there, err := os.ReadFile(dir + kept)
		if errors.Is(err, fs.ErrNotExist) {
			there, err = old, safefile.Replace(dir, kept, old, mode)
		}
		if err != nil || bytes.Equal(there, old) {
			return fmt.Sprintf("changed: %s, what was there is %s", path, kept), err
		}
		kept = fmt.Sprintf("%s.old.%d", name, n)
	}
}

// SiteRequest is what an admin says of a site. Whatever is empty is read from this host's files.
type SiteRequest struct {
	Conf, Environ     string // slurm.conf, and SLURM_CONF
	Version, Scontrol string // of the oldest Slurm on the nodes, as "24.11"; the path of the program that has it
	Pyxis, Configless string // yes or no
	Root              bool   // this process is root
}

// Read reads slurm.conf, and from this host's files what the request does not say.
func (r SiteRequest) Read() (slurmconf.Site, error) {
	conf, err := r.conf()
	if err != nil {
		return slurmconf.Site{}, err
	}
	pyxis := r.Pyxis == "yes" || r.Pyxis == "" && Pyxis(conf)
	version, err := r.version(conf.Path)
	own, doubt := Earlier(filepath.Dir(conf.Path))
	return slurmconf.Site{Conf: conf, Version: version, Pyxis: pyxis, Sure: pyxis || r.Pyxis != "",
		Configless: r.Configless, Own: own}, cmp.Or(err, doubt)
}

// conf reads the named slurm.conf, else the first that is where Slurm looks for it.
func (r SiteRequest) conf() (slurmconf.Conf, error) {
	places := slurmconf.Find("", r.Environ)
	if r.Conf != "" {
		path, err := filepath.Abs(r.Conf)
		if err != nil {
			return slurmconf.Conf{}, err
		}
		places = []slurmconf.Files{{Slurm: path}}
	}
	var conf slurmconf.Conf
	var err error
	for _, place := range places {
		conf, err = Read(place.Slurm)
		if err == nil {
			return conf, conf.Incomplete()
		}
	}
	if r.Conf != "" {
		return conf, fmt.Errorf("read slurm.conf: %w", err)
	}
	return conf, fmt.Errorf("read slurm.conf: %w, nor is it in any of %s: name it with --slurm-conf", err,
		strings.Join(slurmconf.Dirs(), ", "))
}

// version returns the given version of Slurm, or that of this host.
func (r SiteRequest) version(conf string) (slurm.Version, error) {
	text, err := "slurm "+r.Version, error(nil)
	if r.Version == "" {
		// Threat: scontrol loads plugins that slurm.conf names: root runs it only with files that only root can write.
		err = safefile.Trusted(conf)
		if err == nil || !r.Root {
			text, err = Version(r.Scontrol, conf, Patience)
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
