package config

import (
	"fmt"
	"strings"
	"testing"
)

// A setting has the line that sets it, and reads back as it is written.
func TestSettings(t *testing.T) {
	const text = `mode: enforce
settle:
  epilog: {max: 4s}
policy:
  epilog: {BKD-STRAY: warn, BKD-ORPHAN: note}
  partitions: {debug: {mode: observe}}
nvidia: {gpu_map: {1: GPU-b, 0: GPU-a}}
slurm: {shared_partitions: [a, b]}
`
	got := map[string]Setting{}
	for _, s := range Settings([]byte(text)) {
		got[s.Key] = s
	}
	for key, want := range map[string]Setting{
		"mode":                    {Value: "enforce", Line: 1},
		"settle.epilog.max":       {Value: "4s", Line: 3},
		"settle.prolog.max":       {Value: Default().Settle.Prolog.Max.String()},
		"policy.epilog":           {Value: "{BKD-ORPHAN: note, BKD-STRAY: warn}", Line: 5},
		"policy.partitions":       {Value: "{debug: {mode: observe}}", Line: 6},
		"nvidia.gpu_map":          {Value: "{0: GPU-a, 1: GPU-b}", Line: 7},
		"slurm.shared_partitions": {Value: "[a, b]", Line: 8},
		"thresholds.drain":        {Value: "512MiB"},
		"help_url":                {Value: `""`},
		"job_log.show":            {Value: "summary"},
	} {
		if want.Key = key; got[key] != want {
			t.Errorf("%s: got %+v, want %+v", key, got[key], want)
		}
	}
	var file strings.Builder
	for key, s := range got {
		if !strings.Contains(key, ".") {
			fmt.Fprintf(&file, "%s: %s\n", key, s.Value)
		}
	}
	if _, problems := Parse([]byte(file.String())); len(problems) > 0 {
		t.Errorf("%v in\n%s", problems, file.String())
	}
	for _, s := range Settings([]byte("mode: enforce\nnonsense: 1\n")) {
		if s.Key == "mode" && (s.Value != "observe" || s.Line != 0) {
			t.Errorf("of a file with a mistake: %+v", s)
		}
	}
}
