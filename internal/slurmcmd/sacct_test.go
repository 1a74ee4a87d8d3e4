package slurmcmd

import (
	"testing"

	"bookend/internal/slurm"
	"bookend/test/must"
)

func TestParseAccounting(t *testing.T) {
	for text, want := range map[string]Accounted{
		"42|FAILED|1:0|n1|||\n42.batch|FAILED|1:0|n1|cpu=00:00:02,gres/gpumem=36266M,mem=1.5G||\n42.0|FAILED|1:0|n1|gres/gpumem=1G||\n": {
			State: "FAILED", Exit: "1:0", Nodes: "n1", Memory: 36266 << 20, Comment: "|"},
		"42|REQUEUED|0:0|n1||\n42|COMPLETED|0:0|n2||BKD-ORPHAN\n42.batch|COMPLETED|0:0|n2||\n": {
			State: "COMPLETED", Exit: "0:0", Nodes: "n2", Comment: "BKD-ORPHAN"},
		"42_1|COMPLETED|0:0|n1||\n42_2|FAILED|1:0|n[1-2]||\n": {State: "COMPLETED", Exit: "0:0", Nodes: "n1", More: 1},
		"42|PENDING|0:0|None assigned||\n":                    {State: "PENDING", Exit: "0:0"},
		"42|RUNNING|0:0|n1|gres/gpumem=x,gres/gpumem=-1G|\n":  {State: "RUNNING", Exit: "0:0", Nodes: "n1"},
		"": {}, "garbage\n": {}, "42.batch|FAILED|1:0|n1||\n": {},
	} {
		got, err := parseAccounting(text, must.Have(slurm.ParseRef("42"))(t))
		if got != want || (err != nil) != (want == Accounted{}) {
			t.Errorf("%q: %+v, %v; want %+v", text, got, err, want)
		}
	}
}

func TestGPUMemory(t *testing.T) {
	for text, want := range map[string]uint64{"gres/gpumem=0": 0, "gres/gpumem=2048": 2048, "cpu=1,gres/gpumem=1.50G": 3 << 29,
		"gres/gpumem=141T": 141 << 40, "gres/gpumem=": 0, "gres/gpumem=G": 0, "gres/gpumem=1X": 0, "gres/gpumem=1e300": 0} {
		if got := gpuMemory(text); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}
