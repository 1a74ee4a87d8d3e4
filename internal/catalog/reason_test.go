package catalog

import (
	"strings"
	"testing"
)

func TestSlurmReasons(t *testing.T) {
	for text, want := range map[string]string{
		"gres/gpu count reported lower than configured (0 < 8)":                "gres/# count reported lower than configured",
		"GRES/gpu:h100 Count too low (7 < 8) [slurm@2026-11-29T12:00:00]":      "gres/# count too low",
		"gres/gpu type (h200) reported but not configured":                     "gres/# type (#) reported but not configured",
		"Kill task failed (JobId=5 StepId=batch)":                              "Kill task failed",
		"   Reason=Not responding [slurm@2026-11-29T12:00:00]":                 "Not responding",
		"Low RealMemory (reported:5 < 95.00% of configured:10), Low CPUs":      "Low RealMemory|Low CPUs",
		"disk swap : reboot issued":                                            "reboot issued",
		"Low socket*core*thre root      2026-11-29T12:00:00 n[1-4]":            "Low socket*core*thread count",
		"gres/gpu count repor slurm     2026-11-29T12:00:00 n1":                "gres/# count reported lower than configured",
		"Reported active features (a,b) are not a superset of currently (a,c)": "Reported active features ...",
		"":                             "",
		"Not resp":                     "",
		"Not responding to ping":       "",
		"ipmi not responding":          "",
		"reboot":                       "",
		"gres/gpu":                     "",
		"gres/ count too low":          "",
		"[root@x]":                     "",
		"Prolog error in our script 7": "",
	} {
		var got []string
		for _, r := range SlurmReasons(text) {
			got = append(got, r.Form)
		}
		if strings.Join(got, "|") != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	for line := range strings.Lines(reasonsFile) {
		forms, after, ok := strings.Cut(line, " | ")
		if !ok {
			continue // the head
		}
		for form := range strings.SplitSeq(forms, "; ") {
			text := strings.NewReplacer("#", "x", " ...", "").Replace(form)
			found := SlurmReasons(text)
			if len(found) != 1 || found[0].Form != form || found[0].Meaning+" | "+found[0].Remedy+"\n" != after {
				t.Errorf("%q: %+v", text, found)
			}
		}
	}
}
