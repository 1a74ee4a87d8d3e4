package scontrol

import (
	"errors"
	"os"
	"strings"
	"testing"
)

// An update that slurmctld refuses is told, with its own words.
func TestDrainRefused(t *testing.T) {
	c, log := script(t, idle, "case $* in *State=DRAIN*) echo denied >&2; exit 1;; esac")
	if err := c.Drain("n1", "BKD-X"); err == nil || !strings.Contains(err.Error(), "denied") {
		t.Errorf("%v, want scontrol's message", err)
	}
	if _, err := os.Stat(log); !errors.Is(err, os.ErrNotExist) {
		t.Error("it was updated all the same")
	}
}
