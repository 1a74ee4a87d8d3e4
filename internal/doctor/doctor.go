// Package doctor checks what can drain a node, give a job a wrong GPU, fail jobs or leave a gap in what Bookend sees:
// owners and modes, slurm.conf, the driver, and Bookend's own programs.
//
// A check is one table entry: its name, why it matters, and a judge. Everything that may hang is
// looked at before, in children with a deadline: the node as a whole (survey.go), then the files that follow from it
// (look.go). A judge only sees the result. docs/doctor.md says what each demands. Doctor changes nothing.
package doctor

import (
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"bookend/internal/config"
	"bookend/internal/routine"
	"bookend/internal/slurmconf"
)

// Level is what a check comes to.
type Level string

// The levels.
const (
	OK      Level = "ok"
	Warning Level = "warning" // it works, but slower, less protected, or with gaps
	Wrong   Level = "wrong"   // Bookend cannot work, jobs or nodes suffer, or a user could change what root runs
	Unknown Level = "unknown" // it could not be looked at
)

// Result is one line of the answer. Path and Seen may contain strings from outside; Print cleans them.
type Result struct {
	Check string `json:"check"`
	Level Level  `json:"level"`
	Path  string `json:"path"`
	Seen  string `json:"seen"`
	Why   string `json:"why,omitempty"` // why it matters; empty if all is well
	Fix   string `json:"fix,omitempty"` // a command, or what to change
}

// Site is the node that is examined, as its configuration describes it.
type Site struct {
	Config     config.Config
	ConfigPath string
	// Mistake is why the configuration is not used as it is written: unreadable, or its first mistake. Empty if it is.
	Mistake string
	// Self is the path of this very program.
	Self string
	// Programs are the directories in which the hooks may be, the likeliest first.
	Programs []string
	// NVML and CUDA are where the driver's libraries may be, unless the configuration names them.
	NVML, CUDA []string
	// Version is this very program's.
	Version string
	// Root is the directory in which the system's own files are: "/".
	Root string
	// Clock is the machine's.
	Clock routine.Clock
	// SlurmConf is SLURM_CONF of the environment; may be empty.
	SlurmConf string
	// NodeName is what Slurm most likely calls this node.
	NodeName string
	// Survey is what was found out before any file was looked at. Examine fills it in.
	Survey Survey
}

// Check is one thing that is examined.
type Check struct {
	Name      string
	why       string // it matters
	needsConf bool   // nothing can be said without the whole of slurm.conf
	// path is shown with each result, unless the judge names another.
	path func(Site) string
	// looks are done in a child of the check's own: one that hangs costs no other.
	looks func(Site) []Look
	// judge reports problems to the view, and returns what is said if there are none.
	judge func(*view) string
}

// confCheck is the check that says why those that need slurm.conf are not judged.
const (
	confCheck = "slurm-conf"
	notJudged = "not judged: see " + confCheck
)

// Checks are all checks, in the order of the report.
func Checks() []Check {
	return slices.Concat(ruleChecks(), []Check{dropCheck()}, slurmChecks(), hookChecks(), gpuChecks(), driverChecks())
}

// view is what one check sees, and what it reports.
type view struct {
	Site
	check Check
	path  string
	seen  [][]File // of each look
	found []Result
}

func (v *view) say(level Level, seen, fix string) *Result {
	v.found = append(v.found, Result{Check: v.check.Name, Level: level, Path: v.path, Seen: seen, Why: v.check.why,
		Fix: fix})
	return &v.found[len(v.found)-1]
}

func (v *view) wrong(seen, fix string) *Result   { return v.say(Wrong, seen, fix) }
func (v *view) warn(seen, fix string) *Result    { return v.say(Warning, seen, fix) }
func (v *view) unknown(seen, fix string) *Result { return v.say(Unknown, seen, fix) }

func (r *Result) at(path string) *Result     { r.Path = path; return r }
func (r *Result) because(why string) *Result { r.Why = why; return r }

// conf is slurm.conf; only for checks that need it.
func (v *view) conf() slurmconf.Conf { return *v.Survey.Slurm.Conf }

// maxReported bounds what one check says of many files; the rest is counted.
const maxReported = 8

// results are those of one check, at least one.
func (c Check) results(s Site, looked looked) []Result {
	v := view{Site: s, check: c, path: c.path(s), seen: looked.seen}
	switch {
	case !c.judgeable(s):
		v.unknown(notJudged, "")
		return v.found
	case looked.why != "":
		v.unknown("could not be looked at: "+looked.why, "find out why it does not answer: ls -ld "+quoted(v.path))
		return v.found
	}
	well := c.judge(&v)
	if n := len(v.found); n > maxReported {
		v.found = v.found[:maxReported+1]
		v.found[maxReported].Seen = fmt.Sprintf("and %d more of the kind", n-maxReported)
	}
	if len(v.found) == 0 {
		return []Result{{Check: c.Name, Level: OK, Path: v.path, Seen: well}}
	}
	return v.found
}

// judgeable reports a check for which enough of slurm.conf was read.
func (c Check) judgeable(s Site) bool {
	conf := s.Survey.Slurm.Conf
	return !c.needsConf || conf != nil && conf.Doubt() == ""
}

// Patience is how long an admin is kept waiting for a place that may not answer; a healthy one takes milliseconds, a
// node under load seconds.
const Patience = 5 * time.Second

// Examine looks at the node and judges what was seen. What does not answer within patience is unknown.
func Examine(s Site, patience time.Duration) []Result { return examine(s, patience, Checks()) }

func examine(s Site, patience time.Duration, checks []Check) (all []Result) {
	s.Survey = survey(s, patience)
	seen := lookAll(s, patience, checks)
	for i, c := range checks {
		all = append(all, c.results(s, seen[i])...)
	}
	return all
}

// Fails reports whether a result is more than a warning. What could not be looked at is not known to be well.
func Fails(results []Result) bool {
	return slices.ContainsFunc(results, func(r Result) bool { return r.Level == Wrong || r.Level == Unknown })
}

// fixed is a path that does not depend on the site.
func fixed(path string) func(Site) string { return func(Site) string { return path } }

// besideConf is a file in the directory of slurm.conf.
func besideConf(name string) func(Site) string {
	return func(s Site) string { return filepath.Join(filepath.Dir(slurmConfPath(s)), name) }
}
