package main

import (
	"os"
	"strings"

	"bookend/internal/config"
	"bookend/internal/gresconf"
	"bookend/internal/report"
	"bookend/internal/slurm"
	"bookend/internal/stage"
)

// detailWidth bounds what is quoted of Slurm's files and of errors.
const detailWidth = 300

// sharingLines say for "bookend config check" whether GPUs are given out in shards: where they are, or where nobody can
// tell, nothing on a card drains, and no card is tested.
func sharingLines(env stage.Env, cfg config.Config, node string) []string {
	answer := stage.ReadSharing(env, cfg, nodeOf(env, cfg.Paths, node))
	var out []string
	if answer.Missing != "" {
		out = append(out, "slurm.gres_conf: "+string(report.Clean(answer.Missing, detailWidth))+" does not exist")
	}
	text := "GPUs in shards: " + string(answer.Shared)
	if answer.By != "" {
		text += ", by " + string(report.Clean(answer.By, detailWidth))
	}
	if answer.Why != "" && answer.By != "slurm.shards" {
		text += ": " + string(report.Clean(answer.Why, detailWidth))
	}
	if answer.Shared != gresconf.No {
		text += ": nothing on a card will drain or be tested"
	}
	return append(out, text)
}

// untold is the trouble of a node where nobody can tell whether GPUs are given out in shards; empty where one can.
func untold(env stage.Env, cfg config.Config, node string) string {
	answer := stage.ReadSharing(env, cfg, node)
	if answer.Shared != gresconf.Unknown {
		return ""
	}
	return "nothing on a card will drain or be tested, as whether GPUs are given out in shards is unknown: " +
		answer.Why + "; slurm.shards can say it"
}

// nodeOf is the node that is meant: the one named, the one with records, in a job the one that Slurm names, or the one
// called as this host is, which most are.
func nodeOf(env stage.Env, paths config.Paths, named string) string {
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
