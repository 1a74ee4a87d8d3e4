package answer

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/ledger"
	"bookend/internal/slurm"
)

func reading(n int, used uint64, processes ...gpu.Process) gpu.Reading {
	r := job(1, 1, 0, n).Ends[0].Snapshot.Readings[0]
	r.Memory.Used, r.Processes = gpu.Bytes(used), processes
	return r
}

// Memory is listed, the GPU's own, or unexplained; what is not known is null and says why.
func TestCards(t *testing.T) {
	epoch := gpu.Epoch{Boot: "b", Driver: "580", Module: "m"}
	live := job(20, 1, 5, 0)
	live.Ends = nil
	old := job(19, 1, 4, 1)
	old.Ends, old.Epoch, old.Start.Snapshot = nil, gpu.Epoch{Boot: "before"}, gpu.Snapshot{}
	s := Scene{
		At: func(d time.Duration) time.Time { return morning.Add(d) }, Epoch: epoch,
		Limits: finding.Limits{PerClient: 9 << 20},
		Runs:   []ledger.Run{found(job(10, 1, 1, 1), code.Orphan, 1, config.Warn, nil), job(11, 1, 2, 2), live, old},
		Now: gpu.Snapshot{Readings: []gpu.Reading{
			reading(2, 50<<20), reading(0, 109<<20, gpu.Process{PID: 7, Memory: gpu.Bytes(100 << 20)}),
			reading(1, 700<<20, gpu.Process{PID: 8, Memory: gpu.Unknown("no rights")}),
		}},
		Who: map[int]finding.Process{7: {PID: 7, Name: "a\x1b[2J", UID: 5, Start: time.Second,
			Cgroup: slurm.Owner{ID: 20}}},
		Baselines: map[gpu.ID]finding.Baseline{"GPU-2": {GPU: "GPU-2", Bytes: 30 << 20}},
	}
	cards := NewCards(s)
	if len(cards) != 3 || *cards[0].Index != 0 || *cards[1].Index != 1 || *cards[2].Index != 2 {
		t.Fatalf("%+v", cards)
	}
	if c := cards[0]; *c.ListedBytes != 100<<20 || *c.UnexplainedBytes != 0 || !slices.Equal(c.Jobs, []string{"20"}) ||
		c.Processes[0].Job != "20" ||
		strings.Contains(c.Processes[0].Name, "\x1b") || *c.Processes[0].UID != 5 || c.Last.Job != "20" ||
		len(c.Last.Codes) != 0 {
		t.Errorf("%+v", c)
	}
	if c := cards[1]; c.ListedBytes != nil || c.Unknown["listed_bytes"] != "no rights" || c.UnexplainedBytes != nil ||
		c.Unknown["unexplained_bytes"] == "" ||
		len(c.Jobs) != 0 || c.Processes[0].UID != nil || !slices.Equal(c.Last.Codes, []code.Code{code.Orphan}) {
		t.Errorf("%+v", c)
	}
	if c := cards[2]; *c.UnexplainedBytes != 20<<20 || c.Last.Job != "11" {
		t.Errorf("%+v", c)
	}
	s.Now.Readings = nil
	silent := NewCards(s)
	if len(silent) != 3 || silent[0].UsedBytes != nil || silent[0].Unknown["used_bytes"] == "" ||
		!slices.Equal(silent[0].Jobs, []string{"20"}) {
		t.Errorf("without a driver: %+v", silent)
	}
}

// explained is what is said of something by default.
func explained(what string) string {
	var b strings.Builder
	Explain(&b, what, config.Default(), nil)
	return b.String()
}

func TestExplanations(t *testing.T) {
	const may = "in mode enforce, if the policy says drain and the evidence is certain"
	for c, want := range map[code.Code]struct{ exit, drains string }{
		code.Orphan:   {"10 if it drains", may},
		code.BadEnv:   {"31 if it drains", may},
		code.Trespass: {"none of its own", "never: it is about a GPU that is not the hook's job's"},
		code.Throttle: {"none of its own", "never: it tells of a GPU and says nothing against it"},
		code.Output:   {"none of its own", "never: it is about a file in its user's hands"},
	} {
		got := explained(string(c))
		if !strings.Contains(got, "  drains:  "+want.drains+"\n") || !strings.Contains(got, "  exit:    "+want.exit+"\n") ||
			strings.Contains(got, "(default: ") {
			t.Errorf("%s: got\n%s\nwant %+v", c, got, want)
		}
	}
	for _, entry := range code.All() { // one text for each, none left out
		if got := explained(string(entry.Code)); strings.Count(got, "\n") != 7 ||
			strings.Contains(got, ": \n") {
			t.Errorf("%s:\n%s", entry.Code, got)
		}
	}
}

func TestCodeNames(t *testing.T) {
	for written, want := range map[string]code.Code{"BKD-ORPHAN": code.Orphan, "orphan": code.Orphan,
		" Bkd-Orphan ": code.Orphan, "st-write": code.StateWrite, "orfan": "", "": "", "BKD-": ""} {
		if got, ok := CodeOf(written); got != want || ok != (want != "") {
			t.Errorf("%q: %q", written, got)
		}
	}
	if got := codesIn("BKD-ORPHAN gpu=0 (BKD-GAP) XBKD-ECC BKD-NOPE"); !slices.Equal(got,
		[]code.Code{code.Orphan, code.Gap}) {
		t.Errorf("%v", got)
	}
	for n, want := range map[int]bool{0: true, 2: true, 10: true, 40: true, 137: true, 1: false, 20000: false, 256: false, -1: false} {
		if got := explained(fmt.Sprint(n)); want != strings.Contains(got, "of Bookend's hooks: ") {
			t.Errorf("exit status %d: %q", n, got)
		}
	}
}
