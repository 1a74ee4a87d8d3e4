package doctor

import (
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"bookend/internal/config"
	"bookend/internal/slurmconf"
)

const areaSlurm = "Slurm"

func slurmChecks() []Check {
	return []Check{
		{
			Name: confCheck, Area: areaSlurm, path: slurmConfPath, judge: judgeConf,
			Holds: "slurm.conf is found, as slurmd finds it, and can be read with all that it includes",
			why:   "it says whether and how Slurm calls the hooks",
		},
		{
			Name: "slurm-version", Area: areaSlurm, needsConf: true, path: fixed("slurmd"), judge: judgeVersion,
			Holds: "slurmd is 22.05 or later, and scontrol of its version",
			why:   "what hooks are told depends on the version",
		},
		{
			Name: "hook-timeout", Area: areaSlurm, needsConf: true, keys: []string{"PrologEpilogTimeout"},
			path: slurmConfPath, judge: judgeTimeout,
			Holds: "slurmd gives each hook a limit that is longer than `deadlines.*.total`",
			why: "slurmd stops a hook that is still at work, and the job's start or end is not examined; a script of " +
				"the site's own then drains the node",
		},
		{
			Name: "proctrack", Area: areaSlurm, needsConf: true, path: slurmConfPath, judge: judgeProctrack,
			Holds: "Slurm tracks processes by cgroup: `ProctrackType=proctrack/cgroup`",
			why: "a process that leaves its parent or its group outlives the job, with its memory, and no cgroup " +
				"proves whose it is",
		},
		{
			Name: "constrain-devices", Area: areaSlurm, needsConf: true, keys: []string{"TaskPlugin"},
			path: besideConf("cgroup.conf"), judge: judgeConstrain,
			Holds: "jobs can open only GPUs that they were given: `TaskPlugin=` has task/cgroup, cgroup.conf has " +
				"`ConstrainDevices=yes`",
			why: "a job can open GPUs that were given to others, by mistake too: BKD-TRESPASS reports it, but " +
				"nothing prevents it",
		},
		{
			Name: "pyxis", Area: areaSlurm, needsConf: true, path: besideConf("plugstack.conf"), judge: judgePyxis,
			Holds: "task hooks do not run inside containers: no pyxis in plugstack.conf together with `TaskProlog=` " +
				"or `TaskEpilog=`",
			why: "a task hook of a container job is looked for inside the container: if it is not there, that is an " +
				"error in the user's log up to 24.05, and from 24.11 on the job's tasks fail",
		},
	}
}

// slurmConfPath is the path of slurm.conf; its bare name if there is none.
func slurmConfPath(s Site) string {
	if c := s.Survey.Slurm.Conf; c != nil {
		return c.Path
	}
	return "slurm.conf"
}

// inConf is the fix that is a line of slurm.conf.
func (s Site) inConf(line string) string {
	where := slurmConfPath(s)
	if s.configless() {
		where = "the controller's slurm.conf"
	}
	return fmt.Sprintf("%s   # in %s, then: scontrol reconfigure", line, where)
}

// configless reports a node whose configuration slurmctld hands out.
func (s Site) configless() bool {
	v := s.Survey.Slurm
	return v.Conf != nil && slices.ContainsFunc([]string{"/slurm/conf/", "/conf-cache/"}, func(part string) bool {
		return strings.Contains(v.Conf.Path, part) || strings.Contains(v.Real+"/", part)
	})
}

// includeLine is the line of slurm.conf that takes in a snippet, from where snippets are installed (deploy/slurm).
func includeLine(snippet string) string { return "Include " + path.Join(snippetFolder, snippet) }

func judgeConf(v *view) string {
	s := v.Survey.Slurm
	switch {
	case s.Unknown != "":
		folder := config.SlurmFolders()[1]
		v.unknown("could not be looked at: "+s.Unknown, "find out why it does not answer: ls -l "+quoted(folder))
		return ""
	case s.Unread != "":
		fix := "let slurm.gres_conf name the gres.conf that slurmd uses"
		v.unknown("could not be read: "+s.Unread, fix).at(s.Tried[len(s.Tried)-1])
		return ""
	case s.Conf == nil:
		v.unknown("in none of: "+strings.Join(s.Tried, ", "),
			includeLine("bookend.conf")+"   # as the last line of slurm.conf").
			because("this is no compute node, or its slurm.conf is elsewhere: then run doctor with SLURM_CONF set " +
				"to it")
		return ""
	}
	if doubt := s.Conf.Doubt(); doubt != "" {
		v.unknown(doubt, "correct that line, or make what it includes readable; slurmd does not start with it either")
	}
	if l, ok := s.Conf.Crowded(); ok {
		v.wrong(fmt.Sprintf("%s has %s= and %s= in one line", l.Where(), l.Pairs[0][0], l.Pairs[1][0]),
			"write each into a line of its own").
			because("neither slurmd nor any command of Slurm starts with this file")
	}
	if s.Beside != "" {
		v.unknown("next to it could not be read: "+s.Beside, "make it readable for root")
	}
	if n := s.Conf.Node(v.NodeName); !n.Found && n.Unsure == "" {
		v.warn(fmt.Sprintf("it has no node %q", v.NodeName), "run doctor on a compute node").
			because("which GPUs Slurm gives out here is then not known")
	}
	return fmt.Sprintf("read, %d lines", len(s.Conf.Lines))
}

// version is one of Slurm's: 24.05.8 is {24, 5, 8}.
type version [3]int

func (v version) before(major, minor int) bool {
	return slices.Compare(v[:2], []int{major, minor}) < 0
}

func (v version) String() string { return fmt.Sprintf("%d.%02d.%d", v[0], v[1], v[2]) }

// parseVersion reads "slurm 22.05.8" or "slurm-wlm 24.11.5".
func parseVersion(text string) (v version, ok bool) {
	fields := strings.Fields(text)
	if len(fields) < 2 || !strings.HasPrefix(fields[0], "slurm") {
		return v, false
	}
	number, _, _ := strings.Cut(fields[1], "-")
	n, err := fmt.Sscanf(strings.ReplaceAll(number, ".", " "), "%d %d %d", &v[0], &v[1], &v[2])
	return v, n >= 2 && (err == nil || n == 2)
}

// slurmdVersion is false if slurmd does not tell.
func (s Site) slurmdVersion() (v version, ok bool) {
	return parseVersion(s.Survey.SlurmdSays.Text)
}

func judgeVersion(v *view) string {
	have, ok := v.slurmdVersion()
	switch {
	case !ok:
		v.unknown("does not tell its version: "+v.Survey.SlurmdSays.trouble(), "slurmd -V")
		return ""
	case have.before(22, 5):
		v.wrong(have.String()+": not supported", "upgrade Slurm to 22.05 or later").
			because("its hooks are not told which GPUs a job has, or how it ended")
	}
	path, scontrol := v.Config.Slurm.Scontrol, v.Survey.ScontrolSays
	other, told := parseVersion(scontrol.Text)
	const why = "slurmctld refuses scontrol of another version: no drain gets its reason"
	switch {
	case v.Config.Drain.ReasonBy == config.ReasonByNone || scontrol.Missing: // not used, or said by programs
	case !told:
		v.unknown("does not tell its version: "+scontrol.trouble(), quoted(path)+" -V").at(path).because(why)
	case have[0] != other[0] || have[1] != other[1]:
		v.wrong(fmt.Sprintf("%s, slurmd is %s", other, have),
			"let slurm.scontrol name the one that was installed with slurmd").
			at(path).because(why)
	}
	return have.String()
}

// seconds is a key's time; set is false if it has none, or no limit. An unreadable number is none.
func seconds(c slurmconf.Conf, key string, byDefault int) (n int, set bool) {
	const noLimit = 65534 // as Slurm writes it
	v, ok := c.Get(key)
	n, err := strconv.Atoi(strings.TrimSpace(v.Text))
	if !ok || err != nil || n < 0 || n >= noLimit {
		return byDefault, false
	}
	return n, true
}

// spare is what slurmd's limit should leave a hook beyond its deadline: a child that a driver keeps from dying.
const spare = 5 * time.Second

func judgeTimeout(v *view) string {
	var told []string
	for _, h := range []struct {
		hook, key string
		total     config.Duration
	}{
		{"prolog", "PrologTimeout", v.Config.Deadlines.Prolog.Total},
		{"epilog", "EpilogTimeout", v.Config.Deadlines.Epilog.Total},
	} {
		key, total := h.key, time.Duration(h.total)
		limit, set := seconds(v.conf(), key, 0)
		if have, ok := v.slurmdVersion(); !set || ok && have.before(25, 5) { // which has but one for both
			key = "PrologEpilogTimeout"
			limit, set = seconds(v.conf(), key, 0)
		}
		want := time.Duration(limit) * time.Second
		seen := fmt.Sprintf("%s=%d, and deadlines.%s.total is %v", key, limit, h.hook, total)
		fix := v.inConf(fmt.Sprintf("%s=%d", key, max(60, int((total+spare)/time.Second))))
		switch {
		case !set:
			v.warn("no limit for the "+h.hook, fix).because("what the kernel does not let end keeps the node for ever")
		case want < total:
			v.wrong(seen, fix)
		case want < total+spare:
			v.warn(seen, fix)
		}
		told = append(told, fmt.Sprintf("%s %d s for %v", h.hook, limit, total))
	}
	return strings.Join(told, ", ")
}

func judgeProctrack(v *view) string {
	kind, ok := v.conf().Get("ProctrackType")
	if ok && !strings.HasSuffix(strings.ToLower(kind.Text), "cgroup") {
		v.warn(kind.Text, v.inConf("ProctrackType=proctrack/cgroup"))
	}
	return "by cgroup"
}

func judgeConstrain(v *view) string {
	task, _ := v.conf().Get("TaskPlugin")
	if !slurmconf.HasWord(task.Text, "task/cgroup") && !slurmconf.HasWord(task.Text, "cgroup") {
		v.warn("TaskPlugin="+task.Text+" has no task/cgroup", v.inConf("TaskPlugin=task/cgroup,task/affinity")).
			at(slurmConfPath(v.Site))
	}
	yes := false
	if c := v.Survey.Slurm.Cgroup; c != nil {
		set, _ := c.Get("ConstrainDevices")
		yes = slices.Contains([]string{"yes", "true", "1", "y"}, strings.ToLower(set.Text))
	}
	if !yes {
		v.warn("ConstrainDevices is not yes", "ConstrainDevices=yes   # in "+v.path+", then restart slurmd")
	}
	return "ConstrainDevices=yes, by task/cgroup"
}

func judgePyxis(v *view) string {
	var hooks []string
	for _, key := range []string{"TaskProlog", "TaskEpilog"} {
		if hook, ok := v.conf().Get(key); ok && hook.Text != "" {
			hooks = append(hooks, key+"=")
		}
	}
	has := slices.ContainsFunc(v.Survey.Slurm.Plugins, func(l string) bool { return strings.Contains(l, "pyxis") })
	if !has || len(hooks) == 0 {
		return "no pyxis with a task hook"
	}
	level := Warning
	if have, ok := v.slurmdVersion(); ok && !have.before(24, 11) {
		level = Wrong
	}
	list := strings.Join(hooks, " and ")
	v.say(level, "pyxis, and "+list+" in "+filepath.Base(slurmConfPath(v.Site)),
		v.inConf(includeLine("bookend-pyxis.conf"))+
			"   # in place of another file of Bookend's; or take "+list+" out: the end report then has all")
	return ""
}
