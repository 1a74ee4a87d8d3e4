package scontrol

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A real line of Slurm 22.05, shortened; the drained one has a reason with a bracket in it.
const (
	idle    = "NodeName=n1 Arch=x86_64 CoresPerSocket=8 CPUAlloc=0 State=IDLE ThreadsPerCore=1 Partitions=main BootTime=2026-11-21T06:29:01 \n"
	drained = "NodeName=n1 Arch=x86_64 State=IDLE+DRAIN ThreadsPerCore=1 Partitions=main Reason=disk [sda] slow [root@2026-11-21T07:00:00]\n"
	mine    = "NodeName=n1 Arch=x86_64 State=IDLE+DRAIN ThreadsPerCore=1 Partitions=main Reason=BKD-ORPHAN GPU 0 [root@2026-11-21T07:00:00]\n"
	bare    = "NodeName=n1 Arch=x86_64 State=MIXED+DRAIN ThreadsPerCore=1 Partitions=main\n"
)

func TestParseNode(t *testing.T) {
	tests := []struct {
		line, state, reason string
		ours                bool
	}{
		{idle, "IDLE", "", true},
		{drained, "IDLE+DRAIN", "disk [sda] slow", false},
		{mine, "IDLE+DRAIN", "BKD-ORPHAN GPU 0", true},
		{bare, "MIXED+DRAIN", "", false},
		{"", "", "", false},
		{"Node n1 not found\n", "", "", false},
	}
	for _, tt := range tests {
		state, reason := parseNode(tt.line)
		if state != tt.state || reason != tt.reason || ours(state, reason) != tt.ours {
			t.Errorf("%.60q: state %q, reason %q, ours %v; want %q, %q, %v", tt.line, state, reason, ours(state, reason), tt.state, tt.reason, tt.ours)
		}
	}
}

// script stands for scontrol: it answers "show" with a file and writes down an "update".
func script(t *testing.T, show, extra string) (Command, string) {
	t.Helper()
	dir := t.TempDir()
	log := filepath.Join(dir, "update")
	text := fmt.Sprintf("#!/bin/sh\n%s\ncase $* in *show*) printf '%%s' '%s';; *) printf '%%s\\n' \"$@\" \"$SLURM_CONF\" >%s;; esac\n", extra, show, log)
	path := filepath.Join(dir, "scontrol")
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return Command{Path: path, Conf: "/etc/slurm/x.conf", Timeout: 10 * time.Second}, log
}

func TestDrain(t *testing.T) {
	c, log := script(t, idle, "")
	if err := c.Drain("n1", "BKD-ORPHAN gpu=0"); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(log)
	if want := "update\nNodeName=n1\nState=DRAIN\nReason=BKD-ORPHAN gpu=0\n/etc/slurm/x.conf\n"; err != nil || string(got) != want {
		t.Errorf("scontrol was told %q (%v), want %q", got, err, want)
	}
}

func TestDrainLeavesOthersReasonAlone(t *testing.T) {
	for _, line := range []string{drained, bare} {
		c, log := script(t, line, "")
		if err := c.Drain("n1", "BKD-X"); !errors.Is(err, ErrForeign) {
			t.Errorf("Drain = %v, want %v", err, ErrForeign)
		}
		if _, err := os.Stat(log); !errors.Is(err, os.ErrNotExist) {
			t.Error("an update was sent")
		}
	}
}

func TestDrainFails(t *testing.T) {
	hung, _ := script(t, idle, "exec sleep 1000")
	hung.Timeout = 100 * time.Millisecond
	refused, _ := script(t, idle, "exit 1")
	untrusted, log := script(t, idle, "")
	untrusted.Root = true
	if err := os.Chmod(untrusted.Path, 0o777); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]Command{"hung": hung, "refused": refused, "untrusted": untrusted, "missing": {Path: "/nonexistent/scontrol", Timeout: time.Second}} {
		if err := c.Drain("n1", "BKD-X"); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := os.Stat(log); !errors.Is(err, os.ErrNotExist) {
		t.Error("an untrusted scontrol was run")
	}
}
