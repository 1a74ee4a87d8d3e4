package metrics

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/report"
)

// The families, by their names: one prefix, base units, _total for what only grows.
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
	leftByJobs    = "bookend_gpu_left_by_jobs_bytes_total"
	probes        = "bookend_probe_tests_total"
	probeGap      = "bookend_gpu_probe_gap_bytes"
	lastGiven     = "bookend_gpu_last_given_timestamp_seconds"
	modeInfo      = "bookend_mode_info"
	buildInfo     = "bookend_build_info"

	usedBytes        = "bookend_gpu_used_bytes"
	unexplainedBytes = "bookend_gpu_unexplained_bytes"
	leakedBytes      = "bookend_gpu_leaked_bytes"
	driverKeepers    = "bookend_driver_kept_open_processes"
	checkSeconds     = "bookend_health_check_duration_seconds"
)

// family is one metric with all its samples.
type family struct {
	name, kind, help string
	labels           []string
	// from lists the label values that are shown from the start, as 0, so that the first event is an increase.
	from func() [][]string
	// bounds are the upper bounds of a histogram's buckets, in the family's unit.
	bounds []float64
}

var families = []family{
	{name: hookRuns, kind: "counter", labels: []string{"hook", "action"}, from: everyAction,
		help: "Runs of Bookend's hooks for jobs with GPUs, and of its health check, by the strongest action that " +
			"policy took."},
	{name: findings, kind: "counter", labels: []string{"code", "hook"},
		help: "Findings of all kinds, by code and hook."},
	{name: ownErrors, kind: "counter", labels: []string{"code"}, from: everyOwnCode,
		help: "Troubles of Bookend itself or of the driver as a whole, by finding code; without those that policy " +
			"ignores or only notes."},
	{name: drains, kind: "counter", labels: []string{"hook"}, from: everyJobHook,
		help: "Runs that drained the node by their exit code."},
	{name: heldDrains, kind: "counter", labels: []string{"hook"}, from: everyJobHook,
		help: "Runs that would have drained the node: observe mode, or a job restarted too often."},
	{name: lastRun, kind: "gauge", labels: []string{"hook"},
		help: "When the hook last ran for a job with GPUs, or the health check, in seconds since 1970."},
	{name: lastOwnErrors, kind: "gauge", labels: []string{"hook"},
		help: "How many troubles of Bookend itself or of the driver as a whole the hook's last run met."},
	{name: hookTime, kind: "histogram", labels: []string{"hook"}, from: everyJobHook, bounds: hookBounds,
		help: "How long hooks of jobs with GPUs took until they were counted, which is before their records reach " +
			"the disk."},
	{name: settleTime, kind: "histogram", labels: []string{"hook"}, from: everyJobHook, bounds: settleBounds,
		help: "How long the memory of a job's card took to come to rest, clean or not, from the hook's first look " +
			"on; cards that did not are left out."},
	{name: leftByJobs, kind: "counter", labels: cardLabels,
		help: "Memory that jobs left on the card when they ended, after it came to rest, added up over the ends of " +
			"jobs."},
	{name: probes, kind: "counter", labels: []string{"result"}, from: everyResult,
		help: "Test allocations, by result."},
	{name: probeGap, kind: "gauge", labels: cardLabels,
		help: "How much of the card's free memory could not be had in one block at its last test allocation."},
	{name: lastGiven, kind: "gauge", labels: cardLabels,
		help: "When a hook of a job that was given the card last ran, in seconds since 1970; after 30 days without " +
			"one the card's counts are forgotten."},
	{name: usedBytes, kind: "gauge", labels: cardLabels,
		help: "Memory in use on the card when the health check last looked, in bytes."},
	{name: unexplainedBytes, kind: "gauge", labels: cardLabels,
		help: "Memory in use that no listed process accounts for, nor what the card carries without any job, when " +
			"the health check last looked, in bytes."},
	{name: leakedBytes, kind: "gauge", labels: cardLabels,
		help: "Memory found on the card while no job had it, when the health check last looked, in bytes; 0 on a " +
			"clean card and on a job's."},
	{name: driverKeepers, kind: "gauge",
		help: "Processes that belong to no job, are not systemd services and keep the GPU driver open, as counted " +
			"by the health check once an hour. GPU memory without a listed process may belong to them, so it is " +
			"reported but does not drain the node. bookend doctor names them (driver-open) and says what to do."},
	{name: checkSeconds, kind: "gauge", help: "How long the last health check took, without its outputs."},
	{name: modeInfo, kind: "gauge", labels: []string{"mode"},
		help: "Always 1; mode is what the configuration said at the last run: observe or enforce."},
	{name: buildInfo, kind: "gauge", labels: []string{"version"},
		help: "Always 1; version is that of the hook that ran last."},
}

// familyOf finds a family by its name.
func familyOf(name string) (family, bool) {
	i := slices.IndexFunc(families, func(f family) bool { return f.name == name })
	if i < 0 {
		return family{}, false
	}
	return families[i], true
}

// cardLabels name a card: Slurm's number, empty where that is not certain, and the vendor's id.
var cardLabels = []string{"gpu", "uuid"}

func everyJobHook() [][]string { return [][]string{{string(Prolog)}, {string(Epilog)}} }

func everyResult() (all [][]string) {
	for _, r := range []gpu.ProbeResult{gpu.ProbeOK, gpu.ProbeGap, gpu.ProbeBlocked, gpu.ProbeBroken,
		gpu.ProbeSkipped} {
		all = append(all, []string{string(r)})
	}
	return all
}

func everyAction() (all [][]string) {
	for _, hook := range hooks {
		for _, action := range []config.Action{config.Ignore, config.Note, config.Warn, config.Drain} {
			if hook != HealthCheck || action != config.Drain {
				all = append(all, []string{string(hook), string(action)})
			}
		}
	}
	return all
}

func everyOwnCode() (all [][]string) {
	for _, e := range code.All() {
		if (e.Scope == code.Own || e.Scope == code.Driver) && e.Severity != code.Note {
			all = append(all, []string{string(e.Code)})
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
	for _, f := range families {
		if f.from != nil {
			for _, labels := range f.from() {
				b.at(f.name, labels...)
			}
		}
		lines := f.lines(b)
		if len(lines) == 0 {
			continue
		}
		fmt.Fprintf(&out, "# HELP %s %s\n# TYPE %s %s\n%s", f.name, f.help, f.name, f.kind, strings.Join(lines, ""))
	}
	return out.Bytes()
}

// lines are the family's samples, sorted.
func (f family) lines(b book) (lines []string) {
	for _, s := range b.Samples {
		if s.Name != f.name {
			continue
		}
		if f.bounds != nil {
			lines = append(lines, f.histogram(s))
			continue
		}
		lines = append(lines, fmt.Sprintf("%s%s %s\n", f.name, braced(f.pairs(s)), number(s.Value)))
	}
	slices.Sort(lines)
	return lines
}

func (f family) pairs(s sample) (pairs []string) {
	for i, value := range s.Labels {
		pairs = append(pairs, fmt.Sprintf("%s=%s", f.labels[i], quoted(value)))
	}
	return pairs
}

// braced are a sample's labels, nothing where it has none.
func braced(pairs []string) string {
	if len(pairs) == 0 {
		return ""
	}
	return "{" + strings.Join(pairs, ",") + "}"
}

func number(value float64) string { return strconv.FormatFloat(value, 'f', -1, 64) }

var escapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// quoted writes a label's value, of printable ASCII without a line break.
func quoted(value string) string {
	clean := string(report.Clean(value, maxLabel))
	return `"` + escapes.Replace(clean) + `"`
}
