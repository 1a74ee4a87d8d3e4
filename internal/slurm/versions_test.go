package slurm

import (
	"testing"
	"time"
)

func TestParseVersion(t *testing.T) {
	for text, want := range map[string]string{
		"slurm 22.05.8": "22.05.8", "slurm 21.08.8-2": "21.08.8", "slurm 25.11.0-0rc1": "25.11.0",
		"slurm-wlm 24.11.5": "24.11.5", "slurm 26.05": "26.05.0",
		"": "", "slurm": "", "bash 5.2.1": "", "slurm x.y": "",
	} {
		v, ok := ParseVersion(text)
		if got := v.String(); ok != (want != "") || ok && got != want {
			t.Errorf("ParseVersion(%q) = %s, %v, want %q", text, got, ok, want)
		}
	}
}

func TestHas(t *testing.T) {
	for version, want := range map[Version]bool{{24, 5, 8}: true, {24, 5}: true, {23, 11, 11}: false, Oldest: false, Newest: true} {
		if got := version.Has(SeveralHooks); got != want {
			t.Errorf("%s: %v, want %v", version, got, want)
		}
	}
}

func TestVersionOfAJob(t *testing.T) {
	for want, job := range map[string]Job{
		"22.05": {}, "23.02": {Start: time.Unix(1, 0)}, "25.11": {Start: time.Unix(1, 0), SLUID: "sCHNM7Y8WBK900"},
	} {
		if got := job.Version().Series(); got != want {
			t.Errorf("version of %+v is %s, want %s", job, got, want)
		}
	}
}
