package view

import (
	"cmp"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/safetext"
	"bookend/internal/slurm"
	"bookend/test/golden"
	"bookend/test/must"
)

// TestMain shows all times in one time zone, wherever the tests run.
func TestMain(m *testing.M) {
	time.Local = time.UTC
	os.Exit(m.Run())
}

const gpu0 = gpu.ID("GPU-0")

// heir is a job that got a GPU with 20 GiB of somebody else's on it and gave it back so.
func heir() record.Run {
	device := gpu.Device{ID: gpu0}
	seen := func(s record.State, v record.Verdict) record.End {
		return record.End{
			At: 100 * time.Second, Wall: time.Date(2026, 11, 21, 7, 35, 20, 0, time.Local),
			Snapshot: gpu.Snapshot{Readings: []gpu.Reading{{
				Device: device, Memory: gpu.Memory{Used: gpu.Bytes(20 << 30), Total: gpu.Bytes(80 << 30)},
				Processes: []gpu.Process{{PID: 70}},
			}}},
			Curves:  map[gpu.ID]record.Curve{gpu0: {State: s, Looks: 1, Settled: 200 * time.Millisecond}},
			Verdict: v,
		}
	}
	start := seen(record.Flat, record.Verdict{Action: config.Warn, Code: "BKD-DIRTY"})
	return record.Run{
		Job: slurm.Job{ID: 3, Node: "n1"}, Devices: []record.Assigned{{Index: 0, Device: device}},
		Start: &start, Ends: []record.End{seen(record.Clean, record.Verdict{})},
	}
}

// TestShow holds what is shown of a run, with heir's record changed, to testdata/show.txtar: the whole of the first, then
// the lines that the first has not.
func TestShow(t *testing.T) {
	first := ""
	golden.Archive(t, *update, "testdata/show.txtar", func(given string) string {
		r := heir()
		change := struct {
			Job        *slurm.Job  `json:"job"`
			Start, End *record.End // merged into what is there
		}{&r.Job, r.Start, &r.Ends[0]}
		must.Do(t, json.Unmarshal([]byte(given), &change))
		if r.Start = change.Start; change.End == nil {
			r.Ends = nil
		}
		var b strings.Builder
		safetext.KeepAll(NewShow("n1", "3", []record.Run{r}, []record.Run{r}, nil), 400).Text(&b)
		first = cmp.Or(first, b.String())
		if b.String() == first {
			return first
		}
		more := slices.DeleteFunc(strings.SplitAfter(b.String(), "\n"),
			func(l string) bool { return strings.Contains(first, l) })
		return strings.Join(more, "")
	})
}

// A user reads what a job's start and end reported, or what its recorder has found so far.
func TestOwnReport(t *testing.T) {
	for want, o := range map[string]OwnReport{
		"start: clean\nend: no report\n":                        NewOwnReport("node", "n1", "7", true, "", "", ""),
		"start: no report\nend:\n  all\n  done\n":               NewOwnReport("node", "n1", "7", false, "", "all\ndone", "half"),
		"start:\n  20.0 GiB in use\nso far:\n  peak 41.3 GiB\n": NewOwnReport("node", "n1", "7", false, "20.0 GiB in use", "", "peak 41.3 GiB"),
	} {
		var b strings.Builder
		o.Text(&b)
		if got := b.String(); got != "job 7 on n1\n"+want {
			t.Errorf("got\n%s, want\n%s", got, want)
		}
	}
}
