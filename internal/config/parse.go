package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"gopkg.in/yaml.v3"
)

const (
	// MaxBytes is the longest configuration that is read; the commented default has about 8 KiB.
	MaxBytes    = 256 << 10
	maxProblems = 50 // more are not worth their lines in the log
)

// Problem is one mistake in a configuration.
type Problem struct {
	Line int    // from 1; 0 if no line can be named
	Key  string // "policy.epilog.BKD-ORPHAN"; empty for the file as a whole
	Text string
}

// String returns "line 7: settle.prolog.max: not a duration …" in printable ASCII: keys are as the file has them.
func (p Problem) String() string {
	s := p.Text
	if p.Key != "" {
		s = p.Key + ": " + s
	}
	if p.Line > 0 {
		s = fmt.Sprintf("line %d: %s", p.Line, s)
	}
	return strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' {
			return '?'
		}
		return c
	}, s)
}

// Parse reads a configuration. What it does not mention has its default; an empty text is the default.
//
// Any mistake makes the whole text unusable: Parse then returns the problems, by line (at most maxProblems), and
// Default with only valid paths, backend, nvidia, amd, log and metrics taken over, so that trouble is recorded where
// the site looks for it. A key that only earlier versions used is no mistake: Config.Unused names it.
func Parse(data []byte) (Config, []Problem) {
	c, r := parse(data)
	return c, r.problems
}

func parse(data []byte) (Config, reader) {
	c, r := Default(), reader{lines: map[string]int{}}
	root, problem := document(data)
	if problem != nil {
		r.problems = []Problem{*problem}
		return c, r
	}
	r.fill(root, reflect.ValueOf(&c).Elem(), "", "")
	r.check(&c)
	c.Unused = r.unused
	if len(r.problems) > 0 {
		slices.SortFunc(r.problems, func(a, b Problem) int {
			return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Key, b.Key), cmp.Compare(a.Text, b.Text))
		})
		c, r.lines = degraded(c, r.problems), nil
		r.problems = r.problems[:min(len(r.problems), maxProblems)]
	}
	return c, r
}

// degraded returns the default with those sections of c that say where things are and have no problem.
func degraded(c Config, problems []Problem) Config {
	d := Default()
	from, to := reflect.ValueOf(c), reflect.ValueOf(&d).Elem()
	for i := range to.NumField() {
		section := keyOf(to.Type().Field(i))
		in := func(p Problem) bool { return strings.HasPrefix(p.Key+".", section+".") }
		if slices.Contains([]string{"paths", "backend", "nvidia", "amd", "log", "metrics"}, section) &&
			!slices.ContainsFunc(problems, in) {
			to.Field(i).Set(from.Field(i))
		}
	}
	return d
}

func document(data []byte) (root *yaml.Node, problem *Problem) {
	if len(data) > MaxBytes {
		return nil, &Problem{Text: fmt.Sprintf("longer than %d KiB", MaxBytes>>10)}
	}
	// A panic here would end the hook with exit code 2, and that drains the node.
	defer func() {
		if v := recover(); v != nil {
			root, problem = nil, &Problem{Text: "the YAML parser failed: " + clip(fmt.Sprint(v))}
		}
	}()
	var first, second yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	err := decoder.Decode(&first)
	if errors.Is(err, io.EOF) {
		return &yaml.Node{Tag: "!!null"}, nil
	}
	if err == nil {
		if err = decoder.Decode(&second); err == nil {
			return nil, &Problem{Line: second.Line, Text: "a second document begins here"}
		}
	}
	if !errors.Is(err, io.EOF) {
		return nil, syntax(err)
	}
	return first.Content[0], nil
}

// syntax turns the parser's "yaml: line 3: did not find …" into a Problem.
func syntax(err error) *Problem {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	var line int
	if n, _ := fmt.Sscanf(text, "line %d:", &line); n == 1 {
		_, text, _ = strings.Cut(text, ": ")
	}
	return &Problem{Line: line, Text: "not YAML: " + text[:min(len(text), 80)]}
}

// Setting is one key in effect.
type Setting struct {
	Key   string // "settle.prolog.max"
	Value string // as written in the file
	Line  int    // in the file; 0 for a default
}

// Settings returns all keys in effect with a text, or with what Parse makes of one with mistakes, in documented order.
func Settings(data []byte) []Setting {
	c, r := parse(data)
	return r.settings(reflect.ValueOf(c), "")
}

func (r reader) settings(v reflect.Value, section string) (all []Setting) {
	for field, value := range v.Fields() {
		key := strings.TrimPrefix(section+"."+keyOf(field), ".")
		if _, old := former[key]; old || key == "-" {
			continue
		}
		if value.Kind() == reflect.Struct {
			all = append(all, r.settings(value, key)...)
			continue
		}
		node := yaml.Node{}
		_ = node.Encode(value.Interface()) // scalars, lists and maps can always be encoded
		node.Style |= yaml.FlowStyle
		text, _ := yaml.Marshal(&node)
		all = append(all, Setting{Key: key, Value: strings.TrimSpace(string(text)), Line: r.lines[key]})
	}
	return all
}

func (r *reader) check(c *Config) {
	r.require(c.Version == 1, "must be 1, the only version there is", "version")
	apart := c.Paths.Run != c.Paths.Var && c.Paths.Var != c.Paths.Log && c.Paths.Log != c.Paths.Run
	r.require(apart, "paths.run, paths.var and paths.log must be three "+
		"directories", "paths.run", "paths.var", "paths.log")
	taken := map[string]int{}
	for _, i := range slices.Sorted(maps.Keys(c.NVIDIA.GPUMap)) {
		card := strings.ToLower(c.NVIDIA.GPUMap[i])
		first, twice := taken[card]
		r.require(!twice, fmt.Sprintf("is the same GPU as index %d", first), fmt.Sprintf("nvidia.gpu_map.%d", i))
		taken[card] = i
	}
	r.require(c.Metrics.JobMap.DCGM == "" || c.Metrics.JobMap.DCGM != c.Metrics.JobMap.Gpustat,
		"dcgm and gpustat must be two directories", "metrics.job_map.dcgm", "metrics.job_map.gpustat")
	r.checkTimes(c)
	own, check := c.Health.External, c.Deadlines.HealthCheck
	room := check.Total - check.Slurm - check.Outputs
	r.require(own.Program == "" || own.Limit <= room, "is more than deadlines.health_check.total leaves before slurm "+
		"and records: "+room.String(), "health.external.limit", "deadlines.health_check.total")
	t := c.Thresholds
	r.require(t.Report <= t.Drain, fmt.Sprintf("report %v is more than drain %v", t.Report, t.Drain),
		"thresholds.report", "thresholds.drain")
	r.require(!c.Drain.Resume.Enabled || c.Drain.ReasonBy != ReasonByNone,
		"needs drain.reason_by: only a node with a Bookend reason is resumed",
		"drain.resume.enabled", "drain.reason_by")
	r.require(!c.Repair.Enabled || c.Drain.ReasonBy != ReasonByNone,
		"needs drain.reason_by: only a node with a Bookend reason is repaired", "repair.enabled", "drain.reason_by")
	r.require(!c.JobLog.Peaks || c.Spool != "", "needs spool, which has the earlier runs", "job_log.peaks", "spool")
	r.require(c.Record.Every == 0 || c.Record.Every >= seconds(0.1), "must be 0s, or at least 100ms", "record.every")
}

// require reports text at the first of keys that the file contains, unless a problem is reported for one of them.
func (r *reader) require(ok bool, text string, keys ...string) {
	if ok || slices.ContainsFunc(r.problems, func(p Problem) bool { return slices.Contains(keys, p.Key) }) {
		return
	}
	at := keys[max(0, slices.IndexFunc(keys, func(k string) bool { return r.lines[k] > 0 }))]
	r.problem(r.lines[at], at, text)
}

// driverMargin is for starting the backend and attaching to GPUs: 45 ms for four with persistence mode, and room.
const driverMargin = Duration(500 * time.Millisecond)

// checkTimes checks that the steps of each hook fit into its time, and sampling into its step.
func (r *reader) checkTimes(c *Config) {
	prolog := c.Deadlines.Prolog
	prolog.Scan, prolog.Probe = 0, 0 // they run during or after Driver; Total bounds them
	for i, d := range []HookDeadline{prolog, c.Deadlines.Epilog, c.Deadlines.HealthCheck.Hook()} {
		at := "deadlines." + []string{"prolog", "epilog", "health_check"}[i] + "."
		sum := d.Driver + d.Scan + d.Probe + d.Append + d.Outputs
		r.require(sum <= d.Total, fmt.Sprintf("the steps add up to %v, more than the total of %v", sum, d.Total),
			at+"total", at+"driver", at+"processes", at+"probe", at+"job_log", at+"slurm", at+"records")
	}
	r.checkSettle("prolog", c.Settle.Prolog, c.Deadlines.Prolog.Driver)
	r.checkSettle("epilog", c.Settle.Epilog, c.Deadlines.Epilog.Driver)
	// Memory under the PID of a dead process is watched for the flat time once more, or it could not be told from
	// memory being freed; if clean-up ends a leftover, after the grace time. Samples are up to a second apart.
	epilog, flat, grace := c.Deadlines.Epilog, c.Settle.Epilog.Flat, ""
	needs := 2*(flat+min(flat, Duration(time.Second))) + driverMargin + epilog.Append + epilog.Outputs
	if c.CleanUp.Enabled {
		needs += c.CleanUp.Grace + Duration(c.CleanUp.KillWait())
		grace = fmt.Sprintf(", the %v of clean_up.grace", c.CleanUp.Grace)
	}
	r.require(needs <= epilog.Total, fmt.Sprintf("waiting twice for settle.epilog.stable (%v)%s and the later "+
		"steps need %v, more than the total of %v", flat, grace, needs, epilog.Total),
		"settle.epilog.stable", "clean_up.grace", "clean_up.enabled", "deadlines.epilog.total")
}

func (r *reader) checkSettle(hook string, s SettleTimes, driver Duration) {
	maxKey, flatKey, driverKey := "settle."+hook+".max", "settle."+hook+".stable", "deadlines."+hook+".driver"
	r.require(s.Flat <= s.Max, fmt.Sprintf("stable %v is longer than max %v: no memory would ever count as settled",
		s.Flat, s.Max), flatKey, maxKey)
	r.require(s.Max+driverMargin <= driver,
		fmt.Sprintf("max %v leaves less than %v of %s (%v)", s.Max, driverMargin, driverKey, driver), maxKey, driverKey)
}
