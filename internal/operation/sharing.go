package operation

import (
	"errors"
	"io/fs"
	"os"
	"time"

	"bookend/internal/config"
	"bookend/internal/slurmcmd"
	"bookend/internal/slurmconf"
)

// SharingRequest asks what Slurm's files say of a node's GPUs: they may lie on a file system that does not answer.
type SharingRequest struct {
	GresConf  string `json:"gres_conf"`  // configured; empty: where slurmd looks
	SlurmConf string `json:"slurm_conf"` // as slurmd told the hook
	Node      string `json:"node"`
}

// Sharing is whether GPUs are given out in shards or by MPS, and what says so.
type Sharing struct {
	slurmconf.Answer
	// By is the file, or the key of the configuration, that settles it; empty where nothing does.
	By string `json:"by,omitempty"`
	// Missing is the file that slurm.gres_conf names and that is not there; empty where it is, or none is named.
	Missing string `json:"missing,omitempty"`
	// GPUs is how many slurm.conf gives out of the node, 0 if it does not say.
	GPUs int `json:"gpus,omitempty"`
}

// SharingOf reads them.
var SharingOf = Operation[SharingRequest, Sharing]{"sharing", readSharing}

func readSharing(r SharingRequest) (Sharing, error) {
	answer := r.read()
	if _, err := os.Lstat(r.GresConf); r.GresConf != "" && errors.Is(err, fs.ErrNotExist) {
		answer.Missing = r.GresConf
	}
	return answer, nil
}

// read answers from Slurm's files, and says which of the two told.
func (r SharingRequest) read() (s Sharing) {
	s.Shared = slurmconf.Unknown
	for _, files := range slurmconf.Find(r.GresConf, r.SlurmConf) {
		slurm, err := slurmcmd.Read(files.Slurm)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			s.Why = err.Error()
			return s
		}
		if own := slurm.Node(r.Node); own.Unsure == "" {
			s.GPUs, _, _ = slurmconf.Count(own.Gres)
		}
		gres, err := slurmcmd.Read(files.Gres)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.Why = err.Error()
			return s
		}
		s.Answer = slurmconf.SharedGPUs(&slurm, &gres, r.Node)
		switch {
		case s.Shared == slurmconf.Unknown:
		case s.Shared == slurmconf.SharedGPUs(&slurm, nil, r.Node).Shared:
			s.By = files.Slurm
		default:
			s.By = files.Gres
		}
		return s
	}
	s.Why = "no slurm.conf was found (slurm.gres_conf, slurm.shards)"
	return s
}

// GPUCount is how many GPUs slurm.conf gives out of a node, 0 if that is not known. It waits for at most a second.
func GPUCount(env Env, cfg config.Config, node string) int {
	answer, _ := SharingOf.Ask(SharingRequest{cfg.Slurm.GresConf, env.Getenv("SLURM_CONF"), node}, SharingTime)
	return answer.GPUs
}

// ReadSharing answers for a node as its hooks do, from the configuration or else from Slurm's files. It waits for at
// most a second; a child's failure is an unknown answer.
func ReadSharing(env Env, cfg config.Config, node string) Sharing {
	return NodeSharing(cfg.Slurm, env.Getenv("SLURM_CONF"), node, SharingTime)
}

// NodeSharing is ReadSharing for a hook, which knows how long it can wait.
func NodeSharing(c config.Slurm, slurmConf, node string, timeout time.Duration) Sharing {
	const key = "slurm.shards"
	switch c.Shards {
	case config.ShardsYes:
		yes := slurmconf.Answer{Shared: slurmconf.Yes, Why: "GPUs are given out in shards here (slurm.shards)"}
		return Sharing{Answer: yes, By: key}
	case config.ShardsNo:
		return Sharing{Answer: slurmconf.Answer{Shared: slurmconf.No}, By: key}
	}
	answer, err := SharingOf.Ask(SharingRequest{GresConf: c.GresConf, SlurmConf: slurmConf, Node: node}, timeout)
	if err != nil {
		return Sharing{Answer: slurmconf.Answer{Shared: slurmconf.Unknown, Why: err.Error()}}
	}
	return answer
}

// SharingTime is for two small files; a disk that takes longer counts as one that does not answer.
const SharingTime = time.Second
