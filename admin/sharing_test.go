package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Both commands say where nothing can drain because nobody can tell whether GPUs are given out in shards.
func TestSharing(t *testing.T) {
	for name, tt := range map[string]struct {
		slurm       string // slurm.conf, none where it is empty
		gres        string // gres.conf, likewise
		key         string // below slurm:
		says        []string
		saysNothing bool // status has no trouble of it
	}{
		"no":             {"GresTypes=gpu\n", "", "", []string{"GPUs in shards: no, by DIR/slurm.conf: slurm.conf has GresTypes=gpu\n"}, true},
		"yes":            {"GresTypes=gpu,shard\nNodeName=n1 Gres=gpu:4,shard:16\n", "", "", []string{"GPUs in shards: yes, by DIR/slurm.conf: ", ": nothing on a card will drain or be tested\n"}, true},
		"in gres.conf":   {"Include nodes.conf\nGresTypes=gpu,shard\n", "Name=shard Count=4\n", "", []string{"GPUs in shards: yes, by DIR/gres.conf: gres.conf line 1"}, true},
		"unknown":        {"GresTypes=gpu,shard\nInclude nodes.conf\n", "", "", []string{"GPUs in shards: unknown: slurm.conf ", ": nothing on a card will drain or be tested\n"}, false},
		"included":       {"GresTypes=gpu,shard\nInclude parts.conf\n", "", "", []string{"GPUs in shards: yes, by DIR/slurm.conf: slurm.conf has Gres=gpu:4,shard:8"}, true},
		"no slurm.conf":  {"", "", "gres_conf: DIR/gres.conf", []string{"slurm.gres_conf: DIR/gres.conf does not exist\n", "GPUs in shards: unknown: no slurm.conf was found"}, false},
		"a missing file": {"GresTypes=gpu\n", "", "gres_conf: DIR/gres.conf", []string{"slurm.gres_conf: DIR/gres.conf does not exist\nGPUs in shards: no, by DIR/slurm.conf"}, true},
		"configured no":  {"GresTypes=gpu,shard\nInclude nodes.conf\n", "", `shards: "no"`, []string{"GPUs in shards: no, by slurm.shards\n"}, true},
		"configured yes": {"", "", `shards: "yes"`, []string{"GPUs in shards: yes, by slurm.shards: nothing on a card will drain or be tested\n"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			for file, text := range map[string]string{"slurm.conf": tt.slurm, "gres.conf": tt.gres, "parts.conf": "NodeName=n[1-2] Gres=gpu:4,shard:8\n"} {
				if text != "" {
					write(t, filepath.Join(n.dir, file), text, 0o644)
				}
			}
			config, err := os.ReadFile(n.config)
			must(t, err)
			write(t, n.config, string(config)+strings.ReplaceAll("slurm: {"+tt.key+"}\n", "DIR", n.dir), 0o644)
			slurmConf := filepath.Join(n.dir, "slurm.conf")
			check, status := bookendWith(slurmConf, n.config, "config", "check"), bookendWith(slurmConf, n.config, "status")
			for _, want := range tt.says {
				if want = strings.ReplaceAll(want, "DIR", n.dir); check.exit != 0 || !strings.Contains(check.out, want) {
					t.Errorf("lacks %q: %+v", want, check)
				}
			}
			const trouble = "  trouble: nothing on a card will drain or be tested, as whether GPUs are given out in shards is unknown: "
			if strings.Contains(status.out, trouble) == tt.saysNothing {
				t.Errorf("status: %+v", status)
			}
		})
	}
}
