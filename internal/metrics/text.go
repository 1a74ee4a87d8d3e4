package metrics

import (
	"bytes"
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"bookend/internal/catalog"
	"bookend/internal/record"
	"bookend/internal/safetext"
)

// The names of the families: one prefix, base units, _total for what only grows.
const (
	hookRuns      = "bookend_hook_runs_total"
	findings      = "bookend_findings_total"
	ownErrors     = "bookend_own_errors_total"
	drains        = "bookend_drains_total"
	heldDrains    = "bookend_held_drains_total"
	lastRun       = "bookend_last_run_timestamp_seconds"
	lastOwnErrors = "bookend_last_run_own_errors"
	hookTime      = "bookend_hook_duration_seconds"
	settleTime    = "bookend_settle_seconds"
	modeInfo      = "bookend_mode_info"
	buildInfo     = "bookend_build_info"
	peakShare     = "bookend_job_gpu_peak_ratio"
	busyShare     = "bookend_job_gpu_busy_ratio"
	unusedGPUs    = "bookend_job_gpus_unused_total"
	recorded      = "bookend_jobs_recorded_total"
	outOfMemory   = "bookend_jobs_out_of_memory_total"

	usedBytes        = "bookend_gpu_used_bytes"
	unexplainedBytes = "bookend_gpu_unexplained_bytes"
	leakedBytes      = "bookend_gpu_leaked_bytes"
	gpuJobInfo       = "bookend_gpu_job_info"
	gpuQuarantined   = "bookend_gpu_quarantined"
)

type family struct {
	kind, help string
	labels     []string
	// from lists the label values that are shown from the start, as 0, so that the first event is an increase.
	from   [][]string
	bounds []float64 // the upper bounds of a histogram's buckets, in its unit
}

// The bounds of histograms. A hook without leftovers takes 0.05 to 0.5 s; the default deadlines are 5 and 15 s. Memory
// that is freed at all is freed within 0.4 s, or 3 s if workers notice late (measured).
var (
	hookBounds   = []float64{0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15}
	settleBounds = []float64{0.1, 0.2, 0.4, 0.8, 1.6, 3, 6, 12}
	shareBounds  = []float64{0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 1}
)

//go:embed families.txt
var familyTable string

// families has the rows of families.txt, by name.
var families = sync.OnceValue(func() map[string]family {
	all := map[string]family{}
	from := map[string][][]string{hookRuns: runsFrom, findings: everySerious(), ownErrors: everyOwnCode(),
		drains: everyHook, heldDrains: everyHook, hookTime: jobHooks, settleTime: jobHooks,
		recorded: {{Whole}, {Part}, {Nothing}}, outOfMemory: everyCause()}
	bounds := map[string][]float64{hookTime: hookBounds, settleTime: settleBounds, peakShare: shareBounds,
		busyShare: shareBounds}
	for _, f := range catalog.Rows(familyTable, 4) {
		all[f[0]] = family{f[1], f[3], strings.Fields(f[2]), from[f[0]], bounds[f[0]]}
	}
	return all
})

// The values of labels that are shown from the start.
var (
	jobHooks  = [][]string{{string(Prolog)}, {string(Epilog)}}
	everyHook = append(slices.Clone(jobHooks), []string{string(HealthCheck)})
	runsFrom  = [][]string{{string(Prolog), string(catalog.ToDrain)}, {string(Epilog), string(catalog.ToDrain)}}
)

func everyOwnCode() (all [][]string) {
	for _, e := range catalog.All() {
		if (e.Scope == catalog.Own || e.Scope == catalog.Driver) && e.Severity != catalog.Note {
			all = append(all, []string{string(e.Code)})
		}
	}
	return all
}

func everyCause() (all [][]string) {
	for _, n := range append(record.Causes(), record.CauseUnknown) {
		all = append(all, []string{string(n)})
	}
	return all
}

// everySerious is what alerts are about: only with a 0 before it is the first of a node an increase.
func everySerious() (all [][]string) {
	for _, e := range catalog.All() {
		for _, hook := range []Hook{Prolog, Epilog, HealthCheck} {
			if e.Severity == catalog.Serious {
				all = append(all, []string{string(e.Code), string(hook)})
			}
		}
	}
	return all
}

// maxLabel is the longest value of a label, in bytes.
const maxLabel = 64

// text renders the counts in Prometheus' text format, version 0.0.4, without time stamps: node_exporter refuses them.
func text(b book, version string) []byte {
	b.Samples = slices.Clone(b.Samples)
	*b.at(buildInfo, version) = 1
	if b.Mode != "" {
		*b.at(modeInfo, string(b.Mode)) = 1
	}
	var out bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(families())) {
		f := families()[name]
		for _, labels := range f.from {
			b.at(name, labels...)
		}
		var lines []string
		for _, s := range b.Samples {
			if s.Name == name {
				lines = append(lines, f.lines(s))
			}
		}
		slices.Sort(lines)
		if len(lines) > 0 {
			fmt.Fprintf(&out, "# HELP %s %s\n# TYPE %s %s\n%s", name, f.help, name, f.kind, strings.Join(lines, ""))
		}
	}
	return out.Bytes()
}

// lines returns a sample's lines: for a histogram cumulative buckets, sum and count, in the order Prometheus requires.
func (f family) lines(s sample) string {
	var pairs []string
	for i, value := range s.Labels {
		pairs = append(pairs, f.labels[i]+"="+quoted(value))
	}
	labels, value := strings.Join(pairs, ","), strconv.FormatFloat(s.Value, 'f', -1, 64)
	if f.bounds == nil {
		return strings.Replace(fmt.Sprintf("%s{%s} %s\n", s.Name, labels, value), "{}", "", 1)
	}
	text, total := "", uint64(0)
	for i := range len(f.bounds) + 1 {
		bound := "+Inf"
		if i < len(f.bounds) {
			bound = strconv.FormatFloat(f.bounds[i], 'f', -1, 64)
		}
		if len(s.Counts) > 0 {
			total += s.Counts[i]
		}
		text += fmt.Sprintf("%s_bucket{%s,le=%s} %d\n", s.Name, labels, quoted(bound), total)
	}
	return text + fmt.Sprintf("%s_sum{%s} %s\n%s_count{%s} %d\n", s.Name, labels, value, s.Name, labels, total)
}

func quoted(value string) string {
	clean := string(safetext.Clean(value, maxLabel))
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(clean) + `"`
}
