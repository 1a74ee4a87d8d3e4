package joblog

import (
	"bytes"
	"strings"
	"testing"

	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/oom"
	"bookend/internal/report"
	"bookend/internal/settle"
	"bookend/internal/slurm"
)

const message = "RuntimeError: CUDA error: out of memory\n"

// printed is a report as it stands in a job's log.
func printed(lines []report.Safe) string {
	var b strings.Builder
	for _, l := range lines {
		b.WriteString("| " + string(l) + "\n")
	}
	return b.String()
}

func found(t *testing.T, text string) []oom.Message {
	t.Helper()
	s := NewSearch(strings.NewReader(text), int64(len(text)))
	must(t, s.Tail())
	return s.Messages
}

// A requeued job that goes on in its old file: what its earlier run said there is not this run's. Only an end report,
// which this run does not have yet, divides them.
func TestSearchEarlierRun(t *testing.T) {
	scene := report.Scene{
		Node: "n1", Job: slurm.Job{ID: 7, Node: "n1"},
		Cards: []finding.Card{{Device: gpu.Device{ID: "GPU-1"}}},
		Now:   finding.Side{Curves: map[gpu.ID]settle.Curve{"GPU-1": {State: settle.Clean}}},
	}
	for name, tt := range map[string]struct {
		before string
		found  int
	}{
		"end report":                      {message + "\n" + printed(report.End(scene)), 0},
		"end report with a finding":       {message + "\n" + printed(report.End(unclean(scene))), 0},
		"end report after a start's":      {message + "\n" + printed(report.Start(unclean(scene))) + printed(report.End(unclean(scene))), 0},
		"start report":                    {message + "\n" + printed(report.Start(scene)), 1},
		"start report with a finding":     {message + "\n" + printed(report.Start(unclean(scene))), 1},
		"what a task hook says":           {message + "\n| bookend: process 7 (python) still uses a GPU at the end of your script\n", 1},
		"end report behind no line's end": {message + "step 7/9\n" + printed(report.End(scene)), 0},
	} {
		if got := found(t, tt.before+"\nanother line\n"); len(got) != tt.found {
			t.Errorf("%s: %d found in %q", name, len(got), tt.before)
		}
		got := found(t, tt.before+"\n"+message)
		if len(got) != 1 || got[0].Count != 1+tt.found {
			t.Errorf("%s: %+v in %q", name, got, tt.before)
		}
	}
}

func unclean(s report.Scene) report.Scene {
	s.Findings = []finding.Finding{{Code: code.Residue, GPU: "GPU-1", Bytes: gpu.Bytes(3 << 30), Observed: "3 GiB", Expected: "0"}}
	return s
}

// What follows an end report is this run's, whatever it is, as long as nobody but Bookend speaks as Bookend does.
func FuzzThisRun(f *testing.F) {
	for _, seed := range []string{"", "\n", "another line\n", "\n\n| bookend: process 7\n", "| bookend", "\r\n\r\n"} {
		f.Add([]byte(seed))
	}
	const earlier = message + "\n| bookend: GPU 0 of n1 left clean by your job\n"
	f.Fuzz(func(t *testing.T, said []byte) {
		if bytes.Contains(append([]byte("\n"), said...), append([]byte("\n"), ours...)) {
			return
		}
		if got := thisRun(append([]byte(earlier), said...)); !bytes.Equal(got, said) {
			t.Errorf("%q of %q", got, said)
		}
		if got := thisRun(said); !bytes.Equal(got, said) {
			t.Errorf("without a report: %q of %q", got, said)
		}
	})
}
