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
