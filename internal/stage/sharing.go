package stage

import (
	"errors"
	"io/fs"
	"os"
	"time"

	"bookend/internal/config"
	"bookend/internal/slurmconf"
	"bookend/internal/slurmd"
)

// sharingRequest crosses the pipe of opSharing. Slurm's files may lie on a file system that does not answer.
type sharingRequest struct {
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

var serveSharing = served(func(r sharingRequest) (Sharing, error) {
	answer := r.read()
	if _, err := os.Lstat(r.GresConf); r.GresConf != "" && errors.Is(err, fs.ErrNotExist) {
		answer.Missing = r.GresConf
	}
	return answer, nil
})

// read answers from Slurm's files, and says which of the two told.
func (r sharingRequest) read() (s Sharing) {
	s.Shared = slurmconf.Unknown
	for _, files := range slurmconf.Find(r.GresConf, r.SlurmConf) {
		slurm, err := slurmd.Read(files.Slurm)
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
		gres, err := slurmd.Read(files.Gres)
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
	answer, _ := ask[Sharing](opSharing, sharingRequest{cfg.Slurm.GresConf, env.Getenv("SLURM_CONF"), node}, sharingTime)
	return answer.GPUs
}

// ReadSharing answers for a node as its hooks do, from the configuration or else from Slurm's files. It waits for at
// most a second; a child's failure is an unknown answer.
func ReadSharing(env Env, cfg config.Config, node string) Sharing {
	return sharing(cfg.Slurm, env.Getenv("SLURM_CONF"), node, sharingTime)
}

func sharing(c config.Slurm, slurmConf, node string, timeout time.Duration) Sharing {
	const key = "slurm.shards"
	switch c.Shards {
	case config.ShardsYes:
		return Sharing{Answer: slurmconf.Answer{Shared: slurmconf.Yes, Why: "GPUs are given out in shards here (slurm.shards)"}, By: key}
	case config.ShardsNo:
		return Sharing{Answer: slurmconf.Answer{Shared: slurmconf.No}, By: key}
	}
	answer, err := ask[Sharing](opSharing, sharingRequest{GresConf: c.GresConf, SlurmConf: slurmConf, Node: node}, timeout)
	if err != nil {
		return Sharing{Answer: slurmconf.Answer{Shared: slurmconf.Unknown, Why: err.Error()}}
	}
	return answer
}

// sharers is what shared says.
type sharers struct{ why, unknown string }

// shared asks once.
func (h *hook) shared() (why, unknown string) {
	if h.sharing == nil {
		why, unknown := h.askSharing()
		h.sharing = &sharers{why, unknown}
	}
	return h.sharing.why, h.sharing.unknown
}

// askSharing says why others may use this job's GPUs legally, or why nobody can tell. Slurm's environment marks MPS alone:
// a job with a shard looks to its hooks like one with the whole GPU.
func (h *hook) askSharing() (why, unknown string) {
	for _, p := range h.cfg.Slurm.SharedPartitions {
		if p == h.job.Partition {
			return "its partition is configured as shared", ""
		}
	}
	if h.job.MPSPercent != "" {
		return "the job shares it through MPS", ""
	}
	answer := sharing(h.cfg.Slurm, h.env.Getenv("SLURM_CONF"), h.job.Node, h.left(sharingTime, h.reserve()))
	switch answer.Shared {
	case slurmconf.Yes:
		return answer.Why, ""
	case slurmconf.No:
		return "", ""
	}
	return "", answer.Why
}

// sharingTime is for two small files; a disk that takes longer counts as one that does not answer.
const sharingTime = time.Second
