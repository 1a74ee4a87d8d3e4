package slurm

import (
	"strings"
	"testing"
)

func TestFirstHost(t *testing.T) {
	for list, want := range map[string]string{
		"n1":                     "n1",
		"n1,n2":                  "n1",
		"n[1-2]":                 "n1",
		"n[001-010,020],m3":      "n001",
		"n[3,7-9]":               "n3",
		"gpu-a[10-11].hpc":       "gpu-a10.hpc",
		"rack[0-1]n[2-3],x":      "rack0n2",
		"n[1-2]-ib,m[3-4]":       "n1-ib",
		"login,n[1-2":            "login",
		"":                       "",
		",n1":                    "",
		"n[":                     "",
		"n[]":                    "",
		"n[1-2":                  "",
		"n[a-b]":                 "",
		"tux[000x444]":           "", // box ranges of machines long gone
		"../x":                   "",
		"n]1":                    "",
		strings.Repeat("n", 300): "",
	} {
		if got := FirstHost(list); got != want {
			t.Errorf("FirstHost(%q) = %q, want %q", list, got, want)
		}
	}
}
