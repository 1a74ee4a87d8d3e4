package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"bookend/internal/ledger"
	"bookend/internal/slurm"
)

func TestMoment(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.Local)
	for text, want := range map[string]time.Time{
		"": {}, "90m": now.Add(-90 * time.Minute), "2h": now.Add(-2 * time.Hour), "3d": now.Add(-72 * time.Hour), "2w": now.Add(-14 * 24 * time.Hour), "30s": now.Add(-30 * time.Second),
		"2026-11-20": time.Date(2026, 11, 20, 0, 0, 0, 0, time.Local), "2026-11-20T08:30": time.Date(2026, 11, 20, 8, 30, 0, 0, time.Local),
		"2026-11-20 08:30:05": time.Date(2026, 11, 20, 8, 30, 5, 0, time.Local), "2026-11-20T08:00:00Z": time.Date(2026, 11, 20, 8, 0, 0, 0, time.UTC), "0d": now,
	} {
		if got, err := moment(text, now); err != nil || !got.Equal(want) {
			t.Errorf("%q: %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"soon", "d", "-1d", "3x", "3", "2026-13-01", "99999999d", "1.5h", " 3d", "4294967296s", "3d4h"} {
		if got, err := moment(text, now); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}

func FuzzMoment(f *testing.F) {
	for _, seed := range []string{"", "3d", "2026-11-21", "2026-11-21T08:00", "4294967295w", "-", "\x1b"} {
		f.Add(seed)
	}
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, text string) {
		at, err := moment(text, now)
		if err == nil && text != "" && len(text) < len("2006-01-02") && (at.After(now) || now.Sub(at) > longestAge*24*time.Hour) {
			t.Fatalf("%q is %v", text, at)
		}
	})
}

// The list has the newest first, by all filters, and never more than it is asked for.
func TestHistoryCommand(t *testing.T) {
	n := newNode(t) // job 1
	n.leaves(t, 42, "alice", 1000)
	n.leaves(t, 45, "bob", 1001)
	n.job(t, 43, cardB, false)
	ids := func(args ...string) (jobs []string) {
		t.Helper()
		got := bookend(0, n.config, append([]string{"history"}, args...)...)
		if got.exit != exitOK || got.err != "" {
			t.Fatalf("%q: %+v", args, got)
		}
		for line := range strings.Lines(got.out) {
			if f := strings.Fields(strings.TrimPrefix(line, "0001-01-01 ")); len(f) > 2 && f[0] != "last" && f[0] != "older" && f[0] != "no" {
				jobs = append(jobs, strings.Fields(line[19:])[0])
			}
		}
		return jobs
	}
	for line, want := range map[string][]string{
		"": {"40_2", "40_2", "1", "43"}, "--limit 1": {"40_2"}, "--user alice": {"40_2"}, "--user 1001": {"40_2"}, "--code orphan": {"40_2", "40_2"}, "--failed": {"40_2", "40_2"},
		"--gpu " + string(cardA): {"40_2", "40_2", "1"}, "--gpu 00000000:1B:00.0": {"40_2", "40_2"}, "--job 43": {"43"}, "--since 2h": {"40_2", "40_2", "43"}, "--until 2h": {"1", "43"},
		"--found --user bob": {"40_2"}, "--code BKD-GAP": nil, "--limit 0": {"40_2", "40_2", "1", "43"},
	} {
		got := ids(strings.Fields(line)...)
		slices.Sort(got)
		if want = slices.Sorted(slices.Values(want)); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
	if got := bookend(0, n.config, "history", "--limit", "2"); !strings.HasSuffix(got.out, "older runs not shown: 2 (--limit 0 shows all)\n") {
		t.Errorf("%s", got.out)
	}
	lemons := bookend(0, n.config, "history", "--lemons", "--exit-code")
	if want := "GPU 0  " + string(cardA) + "  NVIDIA H200  nvidia0\n  BKD-ORPHAN: process outlived its job\n    in 2 of its 3 runs, 2 jobs of 2 users, "; lemons.exit != exitTrouble || !strings.HasPrefix(lemons.out, want) {
		t.Errorf("%+v, want %q", lemons, want)
	}
}

func TestShowCommand(t *testing.T) {
	n := newNode(t)
	n.leaves(t, 42, "alice", 1000)
	for _, name := range []string{"42", "40_2", "40"} {
		if got := bookend(0, n.config, "show", name); got.exit != exitOK || !strings.HasPrefix(got.out, "job 40_2 (42) on n1, user alice (uid 1000), partition gpu\n  GPU 0  "+string(cardA)+"  NVIDIA H200  131072 MiB\n") {
			t.Errorf("%s: %+v", name, got)
		}
	}
	for _, name := range []string{"40_3", "40+2", "41"} {
		if got := bookend(0, n.config, "show", name); got.exit != exitNotFound || got.out != "" {
			t.Errorf("%s: %+v", name, got)
		}
	}
	clean := bookend(0, n.config, "show", "1", "--exit-code")
	if clean.exit != exitOK {
		t.Errorf("%+v", clean)
	}
	again := ledger.Run{Job: slurm.Job{ID: 1, Node: "n1", Start: time.Now()}, Start: &ledger.End{At: time.Hour, Wall: time.Now()}}
	must(t, n.store.Begin(again))
	got := bookend(0, n.config, "show", "1")
	if first, second, two := strings.Cut(got.out, "\n\njob 1 on n1"); !two || !strings.Contains(first, "\nend: ") || strings.Contains(first, "not yet") || !strings.HasSuffix(second, "\nend: not yet\n") {
		t.Errorf("two runs, the oldest first: %+v", got)
	}
}

func TestExplainCommand(t *testing.T) {
	for line, want := range map[string]string{
		"orphan":                  "BKD-ORPHAN: process outlived its job\n",
		"BKD-ORPHAN":              "\n  policy:  prolog warn, epilog drain, health check ",
		"10":                      "exit code 10 of Bookend's hooks: the node was drained: process outlived its job\n\nBKD-ORPHAN: ",
		"4":                       "exit code 4 of bookend itself: needs root",
		"0":                       "exit code 0 of Bookend's hooks: nothing to drain for\nexit code 0 of bookend itself: done",
		"137":                     "exit code 137 of Bookend's hooks: not a verdict: ",
		"Epilog error":            "drain reason: Epilog error\n  Slurm's own text: ",
		"epilog error [root@now]": "Slurm's own text: ",
		"BKD-GAP job=x by hand":   "it names a finding of Bookend's, and is not as Bookend writes it",
		"BKD-ORPHAN gpu=0 2518MiB pid=7 job=42 epilog; see: bookend show 42": "Bookend drained the node when job 42 ended, for what it found on GPU 0, 2518 MiB, held by process 7. bookend show 42 has the evidence",
		"BKD-LOST gpu=1 job=9 prolog; see: bookend show 9":                   "Bookend drained the node when job 9 began, for what it found on GPU 1. ",
	} {
		if got := bookend(1000, "", "explain", line); got.exit != exitOK || !strings.Contains(got.out, want) {
			t.Errorf("%q: %+v, want %q", line, got, want)
		}
	}
	for line, near := range map[string]string{"orfan": "BKD-ORPHAN", "BKD-RESDUE": "BKD-RESIDUE", "19": "", "nonsense": "", "": "", "\x1b[2J": ""} {
		got := bookend(1000, "", "explain", line)
		if got.exit != exitNotFound || got.out != "" || near != "" && !strings.Contains(got.err, " ("+near+"?)") || strings.Contains(got.err, "\x1b") {
			t.Errorf("%q: %+v", line, got)
		}
	}
}
