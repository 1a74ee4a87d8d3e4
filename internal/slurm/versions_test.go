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
	for _, tt := range []struct {
		version Version
		feature Feature
		want    bool
	}{
		{Version{24, 5, 8}, SeveralHooks, true},
		{Version{24, 5}, SeveralHooks, true},
		{Version{23, 11, 11}, SeveralHooks, false},
		{Oldest, TellsStart, false},
		{Version{27, 5, 1}, EndsOnce, true},
	} {
		if got := tt.version.Has(tt.feature); got != tt.want {
			t.Errorf("%s has %q: %v, want %v", tt.version, tt.feature, got, tt.want)
		}
	}
	for feature, first := range since {
		if !Oldest.Before(first) || Newest.Before(first) {
			t.Errorf("%q is of %s, not of a version later than %s and up to %s", feature, first, Oldest, Newest)
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
