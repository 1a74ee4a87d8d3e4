package metrics

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"bookend/internal/code"
	"bookend/internal/config"
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
	buildInfo     = "bookend_build_info"

	usedBytes        = "bookend_gpu_used_bytes"
	unexplainedBytes = "bookend_gpu_unexplained_bytes"
	leakedBytes      = "bookend_gpu_leaked_bytes"
	checkSeconds     = "bookend_health_check_duration_seconds"
)

// family is one metric with all its samples.
type family struct {
	name, kind, help string
	labels           []string
	// from lists the label values that are shown from the start, as 0, so that the first event is an increase.
	from func() [][]string
}

var families = []family{
	{hookRuns, "counter", "Runs of Bookend's hooks for jobs with GPUs, and of its health check, by the strongest action that policy took.", []string{"hook", "action"}, everyAction},
	{findings, "counter", "Findings of all kinds, by code and hook.", []string{"code", "hook"}, nil},
	{ownErrors, "counter", "Troubles of Bookend itself or of the driver as a whole, by finding code; without those that policy ignores or only notes.",
		[]string{"code"}, everyOwnCode},
	{drains, "counter", "Runs that drained the node by their exit code.", []string{"hook"}, everyJobHook},
	{heldDrains, "counter", "Runs that would have drained the node: observe mode, or a job restarted too often.", []string{"hook"}, everyJobHook},
	{lastRun, "gauge", "When the hook last ran for a job with GPUs, or the health check, in seconds since 1970.", []string{"hook"}, nil},
	{lastOwnErrors, "gauge", "How many troubles of Bookend itself or of the driver as a whole the hook's last run met.", []string{"hook"}, nil},
	{usedBytes, "gauge", "Memory in use on the card when the health check last looked, in bytes.", cardLabels, nil},
	{unexplainedBytes, "gauge", "Memory in use that no listed process accounts for, nor what the card carries without any job, when the health check last looked, in bytes.", cardLabels, nil},
	{leakedBytes, "gauge", "Memory found on the card while no job had it, when the health check last looked, in bytes; 0 on a clean card and on a job's.", cardLabels, nil},
	{checkSeconds, "gauge", "How long the last health check took, without its outputs.", nil, nil},
	{buildInfo, "gauge", "Always 1; version is that of the hook that ran last.", []string{"version"}, nil},
}

// cardLabels name a card: Slurm's number, empty where that is not certain, and the vendor's id.
var cardLabels = []string{"gpu", "uuid"}

func everyJobHook() [][]string { return [][]string{{string(Prolog)}, {string(Epilog)}} }

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
		var pairs []string
		for i, value := range s.Labels {
			pairs = append(pairs, fmt.Sprintf("%s=%s", f.labels[i], quoted(value)))
		}
		labels := ""
		if len(pairs) > 0 {
			labels = "{" + strings.Join(pairs, ",") + "}"
		}
		lines = append(lines, fmt.Sprintf("%s%s %s\n", f.name, labels, strconv.FormatFloat(s.Value, 'f', -1, 64)))
	}
	slices.Sort(lines)
	return lines
}

// quoted writes a label's value, of printable ASCII without a line break.
func quoted(value string) string {
	clean := string(report.Clean(value, maxLabel))
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(clean) + `"`
}
