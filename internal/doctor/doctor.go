// Package doctor says of everything that makes an installation wrong or slow whether it is as it must be: whose files
// are and their modes, what slurm.conf says, the driver, the programs themselves, and what else runs on the node.
//
// A check is a value: its name, what it wants to have looked at, and how that is judged. All looking comes first, in
// children with a deadline, as a file system or a driver may not answer: a survey of the node (survey.go), then the
// files that follow from it (look.go). Judging knows nothing but what was seen. rules.go has the one table of owners
// and modes, beyond.go that of all other checks; docs/doctor.md is made from both. Doctor changes nothing.
package doctor

import (
	"bookend/internal/clock"
	"bookend/internal/config"
)

// Level is what a check comes to.
type Level string

// The levels.
const (
	OK      Level = "ok"
	Warning Level = "warning" // it works, but slower, with less told, or less well protected than it could
	Wrong   Level = "wrong"   // Bookend cannot work so, jobs or nodes suffer, or somebody but root could change what root runs, reads or keeps
	Unknown Level = "unknown" // it could not be looked at
)

// Result is one line of the examination. Path and Seen may contain strings from outside; Print cleans them.
type Result struct {
	Check string `json:"check"`
	Level Level  `json:"level"`
	Path  string `json:"path"`
	Seen  string `json:"seen"`
	Why   string `json:"why,omitempty"` // why it matters; empty where all is well
	Fix   string `json:"fix,omitempty"` // a command, or what to change
}

// Site is the node that is examined, as its configuration describes it.
type Site struct {
	Config     config.Config
	ConfigPath string
	// Named says that BOOKEND_CONFIG names the configuration.
	Named bool
	// Unread is why the configuration could not be read or trusted, Mistakes how many it has, Mistake the first, with
	// its line.
	Unread   string
	Mistakes int
	Mistake  string
	// Self is the path of this very program.
	Self string
	// Programs are the folders in which the hooks may lie, the likeliest first.
	Programs []string
	// NVML and CUDA are where the driver's libraries may lie, unless the configuration names them.
	NVML, CUDA []string
	// Version is this very program's.
	Version string
	// Root is the folder in which the system's own files lie: "/".
	Root string
	// Clock is the machine's.
	Clock clock.Clock
	// SlurmConf is SLURM_CONF as it stands in the environment; empty where it does not.
	SlurmConf string
	// NodeName is what Slurm most likely calls this node; the survey may know better.
	NodeName string
	// Survey is what was found out before any file was looked at. Examine fills it in.
	Survey Survey
}

// Check is one thing that is examined.
type Check struct {
	Name string
	// Area and Holds are for the documentation: what it is about, and what must hold. A rule of owner and mode has neither.
	Area, Holds string
	// Look is what it wants to know of the node.
	Look func(Site) Look
	// Judge says what follows. It is pure, and never silent: at least one result.
	Judge func(Site, Seen) []Result
}

// Seen is what came of a check's Look.
type Seen struct {
	Files   []File `json:"files,omitempty"`
	Left    int    `json:"left,omitempty"`    // files too many to be looked at
	Unknown string `json:"unknown,omitempty"` // why nobody could look; empty where somebody did
}

// Facts are all that was seen, by the name of the check that asked.
type Facts map[string]Seen

// Checks are all checks, in the order of the report.
func Checks() []Check {
	var all []Check
	for _, r := range Rules() {
		all = append(all, r.check())
		if c, ok := following(r.Name); ok {
			all = append(all, c)
		}
	}
	return append(all, beyond()...)
}

// following are the checks of more than owner and mode, each behind the one of the file or folder that it is about.
func following(name string) (Check, bool) {
	switch name {
	case "config":
		return Check{Name: "config-text", Look: lookNowhere, Judge: judgeText}, true
	case "run":
		return Check{Name: "run-filesystem", Look: lookUp("run", runFolder), Judge: judgeRun}, true
	case "drop":
		return Check{Name: "drop-filesystem", Look: lookAt("run", dropFolder), Judge: judgeDrop}, true
	case "var":
		return Check{Name: "var-filesystem", Look: lookUp("var", varFolder), Judge: judgeVar}, true
	case "log":
		return Check{Name: "log-filesystem", Look: lookLog, Judge: judgeLog}, true
	}
	return Check{}, false
}

func lookNowhere(Site) Look { return Look{} }

// Judge judges all checks by what was seen.
func Judge(s Site, facts Facts) []Result {
	var all []Result
	for _, c := range Checks() {
		all = append(all, c.Judge(s, facts[c.Name])...)
	}
	return all
}

// Fails reports whether a result is more than a warning. What nobody could look at is not known to be well.
func Fails(results []Result) bool {
	for _, r := range results {
		if r.Level == Wrong || r.Level == Unknown {
			return true
		}
	}
	return false
}
