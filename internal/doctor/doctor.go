// Package doctor checks what can drain a node, give a job a wrong GPU, fail jobs or leave a gap in what Bookend sees:
// Bookend's own programs and configuration, slurm.conf, and the driver.
//
// A check is one table entry: its name, why it matters, and a function that judges the node. Slurm and the driver are
// queried before (survey.go). A check that reads files runs in a child with a deadline: if it hangs, the others still
// run. docs/doctor.md lists what each requires. Doctor changes nothing.
package doctor

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"bookend/internal/child"
	"bookend/internal/config"
	"bookend/internal/node"
	"bookend/internal/safetext"
	"bookend/internal/slurmconf"
)

// Site is the node that is checked, as its configuration describes it.
type Site struct {
	Config     config.Config
	ConfigPath string
	// Mistake is why the configuration is not used as written: unreadable, or its first mistake. Empty if it is used.
	Mistake       string
	Self, Version string      // the path of this program, and its version
	Programs      []string    // the directories in which the hooks may be, the likeliest first
	Root          string      // the directory in which the system's own files are: "/"
	Clock         child.Clock `json:"-"`
	SlurmConf     string      // SLURM_CONF in the environment; may be empty
	NodeName      string      // what Slurm most likely calls this node
	Survey        Survey      // results of the queries made before any file is checked; set by Examine
}

// The levels of results.
const (
	OK      = "ok"
	Warning = "warning" // it works, but slower, less protected, or with gaps
	Wrong   = "wrong"   // Bookend cannot work, jobs or nodes suffer, or a user could change what root runs
	Unknown = "unknown" // it could not be checked
)

type Check struct {
	Name  string
	files bool               // it reads files, which may hang
	path  func(Site) string  // shown with each result, unless the judge names another
	judge func(*view) string // reports problems to the view, and returns what to print if there are none
}

//go:embed why.txt
var whyFile string

// why returns why a check matters, as why.txt has it.
func why(check string) string {
	_, text, _ := strings.Cut(whyFile, "\n"+check+": ")
	text, _, _ = strings.Cut(text, "\n")
	return text
}

// slurmChecks are the checks of slurm.conf, slurmd and the driver, except for the hooks.
var slurmChecks = []Check{
	{Name: "slurm-version", path: fixed("slurmd"), judge: judgeVersion},
	{Name: "hook-timeout", path: slurmConfPath, judge: judgeTimeout},
	{Name: "cgroups", path: slurmConfPath, judge: judgeCgroups},
	{Name: "devices", path: slurmConfPath, judge: judgeDevices},
	{Name: "leftovers", path: mpsDir, files: true, judge: judgeLeftovers},
	{Name: "requeue", path: slurmConfPath, judge: judgeRequeue},
	{Name: "pyxis", path: slurmConfPath, judge: judgePyxis},
	{Name: "prolog-flags", path: slurmConfPath, judge: judgeFlags},
	{Name: "partitions", path: func(s Site) string { return s.ConfigPath }, judge: judgePartitions},
	{Name: "gpu-order", path: slurmConfPath, judge: judgeOrder},
	{Name: "gpu-shards", path: slurmConfPath, judge: judgeShards},
	{Name: "driver", path: fixed("driver"), judge: judgeDriver},
}

func Checks() []Check {
	all := []Check{
		{Name: "programs", path: func(s Site) string { return s.programs()[0].at[0] }, files: true,
			judge: judgePrograms},
		{Name: "config", path: func(s Site) string { return s.ConfigPath }, files: true, judge: judgeConfig},
		{Name: "drop-filesystem", path: dropDir, files: true, judge: judgeDrop},
		{Name: "remove-ipc", path: logindMain, files: true, judge: judgeRemoveIPC},
		{Name: "slurm-conf", path: slurmConfPath, judge: judgeConf},
	}
	for _, h := range slots() {
		all = append(all, Check{Name: h.check, files: true, path: slurmConfPath, judge: h.judge})
	}
	return append(all, slurmChecks...)
}

type view struct {
	Site
	check Check
	path  string
	found []Result
}

func (v *view) say(level, seen, fix string) *Result {
	v.found = append(v.found,
		Result{Check: v.check.Name, Level: level, Path: v.path, Seen: seen, Why: why(v.check.Name), Fix: fix})
	return &v.found[len(v.found)-1]
}

func (v *view) wrong(seen, fix string) *Result   { return v.say(Wrong, seen, fix) }
func (v *view) warn(seen, fix string) *Result    { return v.say(Warning, seen, fix) }
func (v *view) unknown(seen, fix string) *Result { return v.say(Unknown, seen, fix) }

func (v *view) conf() slurmconf.Conf { return *v.Survey.Slurm.Conf }

func (c Check) results(s Site) []Result {
	v := view{Site: s, check: c, path: c.path(s)}
	well := c.judge(&v)
	if len(v.found) == 0 {
		return []Result{{Check: c.Name, Level: OK, Path: v.path, Seen: well}}
	}
	return v.found
}

// Patience is how long a check may take to answer: a node under load takes seconds.
const Patience = 5 * time.Second

// Examine runs checks on the node. What does not answer within patience is unknown.
func Examine(s Site, patience time.Duration, checks []Check) (all []Result) {
	s.Survey = survey(s, patience)
	if conf := s.Survey.Slurm.Conf; conf == nil || conf.Doubt() != "" {
		without := []string{"programs", "config", "drop-filesystem", "remove-ipc", "slurm-conf", "driver"}
		checks = slices.DeleteFunc(checks, func(c Check) bool { return !slices.Contains(without, c.Name) })
	}
	collects := make([]func() ([]Result, error), len(checks))
	for i, c := range checks {
		collects[i] = func() ([]Result, error) { return c.results(s), nil }
		if c.files {
			collects[i] = child.Async(func() ([]Result, error) {
				return opCheck.Ask(request{s, c.Name}, patience)
			})
		}
	}
	for i, c := range checks {
		results, err := collects[i]()
		if err != nil {
			v := view{check: c, path: c.path(s)}
			v.unknown("could not be looked at: "+err.Error(), "find out why it does not answer: ls -ld "+quoted(v.path))
			results = v.found
		}
		all = append(all, results...)
	}
	return all
}

// request is what a child does: one check of a node, or one part of its survey.
type request struct {
	Site  Site
	Check string
}

func (r request) check() ([]Result, error) {
	for _, c := range Checks() {
		if c.Name == r.Check {
			return c.results(r.Site), nil
		}
	}
	return nil, fmt.Errorf("no check %q", r.Check)
}

func fixed(path string) func(Site) string { return func(Site) string { return path } }

// SiteOf describes this node. Hooks are searched next to the backend, then at the default path.
func SiteOf(env child.Env) Site {
	cfg, path, problems, err := node.ReadConfig(env)
	s := Site{
		Clock:  env.Clock,
		Config: cfg, ConfigPath: path,
		Programs: slices.Compact([]string{filepath.Dir(cfg.Backend), filepath.Dir(config.Default().Backend)}),
		Version:  env.Version, Root: "/", SlurmConf: env.Getenv("SLURM_CONF"),
		NodeName: env.Getenv("SLURMD_NODENAME"), Self: os.Args[0],
	}
	switch {
	case errors.Is(err, fs.ErrNotExist) && path == config.DefaultFile: // the defaults apply
	case err != nil:
		s.Mistake = "not used: " + err.Error()
	case len(problems) > 0:
		s.Mistake = fmt.Sprintf("not valid: %s (1 of %d)", problems[0], len(problems))
	}
	if self, err := os.Executable(); err == nil {
		s.Self = self
	}
	return s
}

// ShowConfig writes every key in effect with the text of a file, where that is from, and the line that sets it.
func ShowConfig(say Say, text []byte, file, from string) {
	say("# in effect: %s", from)
	var above []string
	for _, s := range config.Settings(text) {
		names := strings.Split(s.Key, ".")
		last := len(names) - 1
		for i, section := range names[:last] {
			if i >= len(above) || above[i] != section {
				above = append(above[:i:i], section)
				say("%*s%s:", 2*i, "", section)
			}
		}
		above = names[:last]
		set := "default"
		if s.Line > 0 {
			set = fmt.Sprintf("%s:%d", filepath.Base(file), s.Line)
		}
		say("%*s%s: %s  # %s", 2*last, "", names[last], s.Value, set)
	}
}

// Result is the result of one check.
type Result struct {
	Check string `json:"check"`         // its name, as in docs/doctor.md
	Level string `json:"level"`         // ok, warning, wrong, unknown
	Path  string `json:"path"`          // the file, or another subject of the check
	Seen  string `json:"seen"`          // the actual state
	Why   string `json:"why,omitempty"` // why it matters; only if Level is not ok
	Fix   string `json:"fix,omitempty"` // a command to run, or what to change
}

// Report is printed by "bookend doctor". Its texts are safe for a terminal.
type Report struct {
	Version int            `json:"version"`
	Kind    string         `json:"kind"`
	Results []Result       `json:"results"`
	Counts  map[string]int `json:"counts"` // of results by level

	node string
	all  bool
}

// widest bounds a value in a line: paths may have 4095 bytes, but no path in use has.
const widest = 400

// NewReport returns the report about a node, of which all makes Text write the checks that are ok, too.
func NewReport(version int, kind, node string, results []Result, all bool) Report {
	r := Report{version, kind, slices.Clone(results), map[string]int{OK: 0, Warning: 0, Wrong: 0, Unknown: 0},
		string(safetext.Keep(node, widest)), all}
	for i, one := range results {
		r.Counts[one.Level]++
		r.Results[i] = Result{one.Check, one.Level, string(safetext.Clean(one.Path, widest)),
			string(safetext.Clean(one.Seen, widest)), string(safetext.Keep(one.Why, widest)),
			string(safetext.Keep(one.Fix, 2*widest))} // a fix is to be pasted: its backslashes stay
	}
	return r
}

// Fails reports whether a result is more than a warning. What could not be checked is not known to be good.
func (r Report) Fails() bool { return r.Counts[Wrong]+r.Counts[Unknown] > 0 }

// levels are the worst first, with the words for a line and for the count.
var levels = []struct{ level, word, one, more string }{
	{Wrong, "ERROR", "error", "s"}, {Unknown, "UNKNOWN", "unknown", ""}, {Warning, "WARNING", "warning", "s"},
	{OK, "ok", "ok", ""},
}

// Text writes the count, then the problems, worst first, with why and fix below; what is ok only with all.
func (r Report) Text(w io.Writer) {
	var counts []string
	for _, l := range levels {
		if n := r.Counts[l.level]; n == 1 {
			counts = append(counts, "1 "+l.one)
		} else if n > 1 {
			counts = append(counts, fmt.Sprintf("%d %s%s", n, l.one, l.more))
		}
	}
	hint := ""
	if !r.all && r.Counts[OK] > 0 {
		hint = " (--all shows them)"
	}
	fmt.Fprintf(w, "%s: %s%s\n", r.node, strings.Join(counts, ", "), hint)
	for _, l := range levels {
		for _, one := range r.Results {
			if one.Level != l.level || one.Level == OK && !r.all {
				continue
			}
			fmt.Fprintf(w, "%s %s: %s: %s\n", l.word, one.Check, one.Path, one.Seen)
			if one.Level != OK {
				fmt.Fprintf(w, "  why: %s\n  fix: %s\n", one.Why, one.Fix)
			}
		}
	}
}
