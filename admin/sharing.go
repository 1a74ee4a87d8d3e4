package main

import (
	"os"
	"strings"

	"bookend/internal/config"
	"bookend/internal/operation"
	"bookend/internal/slurm"
	"bookend/internal/slurmconf"
)

// detailWidth bounds what is quoted of Slurm's files and of errors.
const detailWidth = 300

// untold is the trouble of a node where nobody can tell whether GPUs are given out in shards; empty where one can.
func untold(env operation.Env, cfg config.Config, node string) string {
	answer := operation.NodeSharing(cfg.Slurm, env.Getenv("SLURM_CONF"), node, operation.SharingTime)
	if answer.Shared != slurmconf.Unknown {
		return ""
	}
	return "nothing on a GPU will drain or be tested, as whether GPUs are given out in shards is unknown: " +
		answer.Why + "; slurm.shards can say it"
}

// nodeOf is the node that is meant: the one named, the one with records, in a job the one that Slurm names, or the one
// called as this host is, which most are.
func nodeOf(env operation.Env, paths config.Paths, named string) string {
	if named != "" {
		return named
	}
	if nodes, err := recorded(paths); err == nil && len(nodes) == 1 {
		return nodes[0]
	}
	if node := env.Getenv("SLURMD_NODENAME"); slurm.ValidNode(node) {
		return node
	}
	host, _ := os.Hostname()
	short, _, _ := strings.Cut(host, ".")
	return short
}
