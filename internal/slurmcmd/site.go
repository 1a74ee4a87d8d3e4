package slurmcmd

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strings"

	"bookend/internal/safefile"
	"bookend/internal/slurm"
	"bookend/internal/slurmconf"
)

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
