package doctor

import (
	"fmt"
	"slices"
	"strings"

	"bookend/internal/slurmconf"
)

// The areas of what is checked beyond owners and modes.
const (
	areaSlurm = "Slurm"
	areaHooks = "Hooks in slurm.conf"
	areaTimes = "Slurm's times"
	areaTrack = "Whose a process is"
	areaGPUs  = "Which card is which"
	areaCards = "Driver and cards"
	areaNode  = "The rest of the node"
)

// beyond is the table of all checks that are about more than owners and modes.
func beyond() []Check {
	return slices.Concat(slurmChecks(), hookChecks(), timeChecks(), trackChecks(), gpuChecks(), cardChecks(), nodeChecks())
}

// notJudged begins what is said where slurm.conf could not be read: Print says it once.
const notJudged = "not judged: "

// onConf is a check by slurm.conf alone. Where a key that it needs is in none of the lines, and not all of the file
// could be read, it is unknown.
func onConf(name, area, holds string, keys []string, judge func(Site, slurmconf.Conf) []Result) Check {
	return Check{Name: name, Area: area, Holds: holds, Look: lookNowhere, Judge: func(s Site, _ Seen) []Result {
		if why := s.unread(keys...); why != nil {
			why.Check = name
			return []Result{*why}
		}
		return judge(s, *s.Survey.Slurm.Conf)
	}}
}

// unread is the result of a check for which slurm.conf does not tell enough; nil where it does.
func (s Site) unread(keys ...string) *Result {
	conf := s.Survey.Slurm.Conf
	if conf == nil {
		return &Result{Level: Unknown, Path: slurmConf, Seen: notJudged + "slurm.conf was not read"}
	}
	doubt := conf.Doubt()
	if doubt == "" {
		return nil
	}
	for _, key := range keys {
		if _, ok := conf.Get(key); !ok {
			return &Result{Level: Unknown, Path: conf.Path, Seen: notJudged + doubt}
		}
	}
	return nil
}

const slurmConf = "slurm.conf"

// inConf is the fix that is a line of slurm.conf.
func (s Site) inConf(line string) string {
	where := slurmConf
	if c := s.Survey.Slurm.Conf; c != nil && !s.configless() {
		where = c.Path
	}
	if s.configless() {
		where = "the controller's slurm.conf"
	}
	return fmt.Sprintf("%s   # in %s, then: scontrol reconfigure", line, where)
}

// configless reports a node whose configuration slurmctld hands out.
func (s Site) configless() bool {
	v := s.Survey.Slurm
	if v.Conf == nil {
		return false
	}
	for _, part := range []string{"/slurm/conf/", "/conf-cache/"} {
		if strings.Contains(v.Conf.Path, part) || strings.Contains(v.Real+"/", part) {
			return true
		}
	}
	return false
}

// well is a check's one line where all is as it must be.
func well(name, path, format string, args ...any) []Result {
	return []Result{{name, OK, path, fmt.Sprintf(format, args...), "", ""}}
}

// conf is the path of slurm.conf; its bare name where there is none.
func (s Site) conf() string {
	if c := s.Survey.Slurm.Conf; c != nil {
		return c.Path
	}
	return slurmConf
}
