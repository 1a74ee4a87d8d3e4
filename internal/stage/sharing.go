package stage

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/config"
	"bookend/internal/gresconf"
)

// sharingRequest crosses the pipe of opSharing. Slurm's files may lie on a file system that does not answer.
type sharingRequest struct {
	GresConf  string `json:"gres_conf"`  // configured; empty: where slurmd looks
	SlurmConf string `json:"slurm_conf"` // as slurmd told the hook
	Node      string `json:"node"`
}

var serveSharing = served(func(r sharingRequest) (gresconf.Answer, error) {
	for _, files := range gresconf.Find(r.GresConf, r.SlurmConf) {
		slurm, err := readSlurms(files.Slurm)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return gresconf.Answer{Shared: gresconf.Unknown, Why: err.Error()}, nil
		}
		gres, err := readSlurms(files.Gres)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return gresconf.Answer{Shared: gresconf.Unknown, Why: err.Error()}, nil
		}
		return gresconf.Parse(slurm, gres, r.Node), nil
	}
	return gresconf.Answer{Shared: gresconf.Unknown, Why: "no slurm.conf was found (slurm.gres_conf, slurm.shards)"}, nil
})

// readSlurms reads a file of Slurm's. Threat: none that is not there already. Whoever can write slurmd's own
// configuration makes it run any program as root; a pipe or an endless file is what is kept out.
func readSlurms(path string) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	st, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() || st.Size() > gresconf.MaxBytes {
		return nil, fmt.Errorf("read %q: not a file of at most %d bytes", path, gresconf.MaxBytes)
	}
	return io.ReadAll(io.LimitReader(file, gresconf.MaxBytes))
}

// shared says why others may use this job's GPUs legally, or why nobody can tell. Slurm's environment marks MPS alone:
// a job with a shard looks to its hooks like one with the whole GPU.
func (h *hook) shared() (why, unknown string) {
	for _, p := range h.cfg.Slurm.SharedPartitions {
		if p == h.job.Partition {
			return "its partition is configured as shared", ""
		}
	}
	if h.job.MPSPercent != "" {
		return "the job shares it through MPS", ""
	}
	switch h.cfg.Slurm.Shards {
	case config.ShardsYes:
		return "GPUs are given out in shards here (slurm.shards)", ""
	case config.ShardsNo:
		return "", ""
	}
	request := sharingRequest{
		GresConf: h.cfg.Slurm.GresConf, SlurmConf: h.env.Getenv("SLURM_CONF"), Node: h.job.Node,
	}
	answer, err := ask[gresconf.Answer](opSharing, request, h.left(sharingTime, h.reserve()))
	if err != nil {
		return "", err.Error()
	}
	switch answer.Shared {
	case gresconf.Yes:
		return answer.Why, ""
	case gresconf.No:
		return "", ""
	}
	return "", answer.Why
}

// sharingTime is for two small files; a disk that takes longer counts as one that does not answer.
const sharingTime = time.Second
