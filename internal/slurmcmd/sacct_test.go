package slurmcmd

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"bookend/internal/slurm"
	"bookend/test/must"
)

func TestParseAccounting(t *testing.T) {
	for text, want := range map[string]Accounted{
		"42|FAILED|1:0|n1|||\n42.batch|FAILED|1:0|n1|cpu=00:00:02,gres/gpumem=36266M,mem=1.5G||\n42.0|FAILED|1:0|n1|gres/gpumem=1G||\n": {
			Job: "42", State: "FAILED", Exit: "1:0", Nodes: "n1", Memory: 36266 << 20, Comment: "|"},
		"42|REQUEUED|0:0|n1||\n42.batch|CANCELLED|0:0|n1|gres/gpumem=9G|\n42|COMPLETED|0:0|n2||BKD-ORPHAN\n42.batch|COMPLETED|0:0|n2||\n": {
			Job: "42", State: "COMPLETED", Exit: "0:0", Nodes: "n2", Comment: "BKD-ORPHAN"},
		"42_1|COMPLETED|0:0|n1|gres/gpumem=9G|\n42_2|FAILED|1:0|n[1-2]||\n42_2.batch|FAILED|1:0|n1|gres/gpumem=1G|\n42_3|COMPLETED|0:0|n1|gres/gpumem=9G|\n": {
			Job: "42_2", State: "FAILED", Exit: "1:0", Nodes: "n[1-2]", Memory: 1 << 30, More: 2},
		"42_1|REQUEUED|0:0|n1||\n42_1|COMPLETED|0:0|n2||\n":  {Job: "42_1", State: "COMPLETED", Exit: "0:0", Nodes: "n2"},
		"42|PENDING|0:0|None assigned||\n":                   {Job: "42", State: "PENDING", Exit: "0:0"},
		"42|RUNNING|0:0|n1|gres/gpumem=x,gres/gpumem=-1G|\n": {Job: "42", State: "RUNNING", Exit: "0:0", Nodes: "n1"},
		"": {}, "garbage\n": {}, "42.batch|FAILED|1:0|n1||\n": {},
	} {
		got, err := parseAccounting(text, must.Have(slurm.ParseRef("42"))(t))
		if got != want || (err != nil) != (want == Accounted{}) {
			t.Errorf("%q: %+v, %v; want %+v", text, got, err, want)
		}
	}
}

// The one task that failed is found in a large array too.
func TestAccountingOfArray(t *testing.T) {
	dir := t.TempDir()
	script := "#!/bin/sh\nseq -f '42_%g|COMPLETED|0:0|n1||' 0 4999\necho '42_5000|FAILED|1:0|n2||'\n"
	must.Do(t, os.WriteFile(filepath.Join(dir, "sacct"), []byte(script), 0o700))
	slurmOf := Scontrol{Path: filepath.Join(dir, "scontrol"), Time: func() time.Duration { return 10 * time.Second }}
	got, err := slurmOf.Accounting(must.Have(slurm.ParseRef("42"))(t), 1000)
	must.Not(t, err != nil || got.Job != "42_5000" || got.More != 5000, "%+v, %v", got, err)
}

func TestGPUMemory(t *testing.T) {
	for text, want := range map[string]uint64{"gres/gpumem=0": 0, "gres/gpumem=2048": 2048, "cpu=1,gres/gpumem=1.50G": 3 << 29,
		"gres/gpumem=141T": 141 << 40, "gres/gpumem=": 0, "gres/gpumem=G": 0, "gres/gpumem=1X": 0, "gres/gpumem=1e300": 0} {
		if got := gpuMemory(text); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

// The last job is that of the latest end: sacct lists them in the order of their numbers.
func TestLastOf(t *testing.T) {
	for text, want := range map[string]string{
		"2026-11-30T03:00:01|7\n2026-11-30T04:00:00|8_3\n2026-11-29T23:00:00|9+1\nUnknown|10\n": "8_3",
		"": "", "Unknown|10\n": "", "|4\n": "",
	} {
		ref, err := lastOf(text)
		must.Be(t, text, ref.Text, want)
		must.Be(t, text, err == nil, want != "")
	}
}
