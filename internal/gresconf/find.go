package gresconf

import (
	"path"

	"bookend/internal/config"
)

// Files are the two files of one configuration of Slurm's. gres.conf always lies beside slurm.conf.
type Files struct{ Slurm, Gres string }

// Find lists where the configuration of this node's slurmd may lie, likeliest first; the first whose slurm.conf is
// there is the one. gresConf is the key slurm.gres_conf: where it is set, or SLURM_CONF is, as slurmd sets it for its
// hooks, nothing else is looked at.
func Find(gresConf, slurmConf string) []Files {
	switch {
	case gresConf != "":
		return []Files{{path.Join(path.Dir(gresConf), slurmFile), gresConf}}
	case path.IsAbs(slurmConf):
		return []Files{{slurmConf, path.Join(path.Dir(slurmConf), gresFile)}}
	}
	var all []Files
	for _, folder := range config.SlurmFolders() {
		all = append(all, Files{path.Join(folder, slurmFile), path.Join(folder, gresFile)})
	}
	return all
}

const (
	slurmFile = "slurm.conf"
	gresFile  = "gres.conf"
)
