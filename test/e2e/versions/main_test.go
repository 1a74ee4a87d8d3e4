package main

import (
	"slices"
	"strings"
	"testing"

	"bookend/test/cluster"
	"bookend/test/must"
)

func TestChoose(t *testing.T) {
	can := must.Have(cluster.Tracks())(t)
	for _, tt := range []struct {
		slurm, track string
		branches     []string
		tracks       []cluster.Track
		fails        string
	}{
		{"all", "all", []string{"22.05", "24.11", "26.05"}, can, ""},
		{"26.05", "linuxproc", []string{"26.05"}, []cluster.Track{cluster.LinuxProc}, ""},
		{"26.05,22.05", "all", []string{"26.05", "22.05"}, can, ""},
		{"23.02", "all", nil, nil, `release "23.02"`},
		{"", "all", nil, nil, `release ""`},
		{"all", "pgid", nil, nil, `way to track "pgid"`},
	} {
		branches, tracks, err := choose(tt.slurm, tt.track)
		if tt.fails != "" {
			if err == nil || !strings.Contains(err.Error(), tt.fails) {
				t.Errorf("%q, %q: %v, want %q", tt.slurm, tt.track, err, tt.fails)
			}
			continue
		}
		if err != nil || !slices.Equal(branches, tt.branches) || !slices.Equal(tracks, tt.tracks) {
			t.Errorf("%q, %q: %q, %q, %v", tt.slurm, tt.track, branches, tracks, err)
		}
	}
}

func TestPaths(t *testing.T) {
	for _, tt := range []struct {
		version cluster.Version
		track   cluster.Track
		want    string
	}{
		{cluster.Version{Major: 26, Minor: 5}, cluster.LinuxProc, ""},
		{cluster.Version{Major: 26, Minor: 5}, cluster.CgroupV1, "job_N"},
		{cluster.Version{Major: 26, Minor: 5}, cluster.CgroupV2, "SLUID"},
		{cluster.Version{Major: 25, Minor: 11}, cluster.CgroupV2, "job_N"},
	} {
		if have := paths(tt.version, tt.track); have != tt.want {
			t.Errorf("%v, %s: %q, want %q", tt.version, tt.track, have, tt.want)
		}
	}
}
