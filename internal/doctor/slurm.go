package doctor

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"bookend/internal/config"
	"bookend/internal/slurm"
	"bookend/internal/slurmconf"
)

func slurmConfPath(s Site) string {
	if c := s.Survey.Slurm.Conf; c != nil {
		return c.Path
	}
	return "slurm.conf"
}

func (s Site) inConf(line string) string {
	return fmt.Sprintf("%s   # in %s (configless: in slurmctld's), then: scontrol reconfigure", line, slurmConfPath(s))
}

const setUp = "bookend setup --write   # where slurm.conf is maintained; then what it prints"

func judgeConf(v *view) string {
	s := v.Survey.Slurm
	switch {
	case s.Unread != "":
		v.unknown("could not be read: "+s.Unread, "make it readable for root, on a file system that answers")
		return ""
	case s.Conf == nil:
		v.unknown("in none of: "+strings.Join(s.Tried, ", "),
			"bookend setup --write --slurm-conf FILE   # then add the Include line that it prints").
			Why = "this is no compute node, or its slurm.conf is elsewhere: then run doctor with SLURM_CONF set to it"
		return ""
	}
	if doubt := cmp.Or(s.Conf.Doubt(), s.Gres.Doubt()); doubt != "" {
		v.unknown(doubt, "correct that line, or make what it includes readable; slurmd does not start with it either")
	}
	if n := s.Conf.Node(v.NodeName); !n.Found && n.Unsure == "" {
		v.warn(fmt.Sprintf("it has no node %q", v.NodeName), "run doctor on a compute node, with SLURMD_NODENAME set "+
			"if its name is not the host's").Why = "which GPUs Slurm gives out here is then not known"
	}
	return fmt.Sprintf("read, %d lines", len(s.Conf.Lines))
}

func (s Site) slurmdVersion() (slurm.Version, bool) {
	return slurm.ParseVersion(s.Survey.Slurm.Version)
}

func (s Site) slurmdLacks(f slurm.Version) bool {
	have, ok := s.slurmdVersion()
	return ok && !have.Has(f)
}

func judgeVersion(v *view) string {
	have, ok := v.slurmdVersion()
	switch s := v.Survey.Slurm; {
	case !ok:
		v.unknown(fmt.Sprintf("does not tell its version: %s%.60q", s.Silent, s.Version), "slurmd -V")
	case !have.Has(slurm.Oldest):
		v.wrong(have.String()+": not supported", "upgrade Slurm to "+slurm.Oldest.Series()+" or later").
			Why = "its hooks are not told which GPUs a job has, or how it ended"
	case !slurm.Newest.Has(have):
		v.warn(fmt.Sprintf("%s: not known, the newest that Bookend was tried with is %s", have, slurm.Newest.Series()),
			"look for a newer Bookend, and let it observe for a week: mode: observe in bookend.yaml").
			Why = "its hooks may be told other things, and its cgroups have other names"
	}
	return have.String()
}

// seconds is a key's time; set is false if it has none, or no limit. An unreadable number is none.
func seconds(c slurmconf.Conf, key string) (n int, set bool) {
	const noLimit = 65534 // as Slurm writes it
	v, _ := c.Get(key)
	n, err := strconv.Atoi(strings.TrimSpace(v.Text))
	return n, err == nil && n >= 0 && n < noLimit
}

func judgeTimeout(v *view) string {
	for _, h := range []struct {
		hook, key string
		total     config.Duration
	}{
		{"prolog", "PrologTimeout", v.Config.Deadlines.Prolog.Total},
		{"epilog", "EpilogTimeout", v.Config.Deadlines.Epilog.Total},
	} {
		key, total := h.key, time.Duration(h.total)
		limit, set := seconds(v.conf(), key)
		if !set || v.slurmdLacks(slurm.HookTimeouts) { // which has but one for both
			key = "PrologEpilogTimeout"
			limit, set = seconds(v.conf(), key)
		}
		// A child that a driver keeps from dying takes longer than the deadline.
		fix := v.inConf(fmt.Sprintf("%s=%d", key, max(60, int((total+5*time.Second)/time.Second))))
		if !set {
			v.warn("no limit for the "+h.hook, fix).Why = "what the kernel does not let end keeps the node for ever; " +
				"a limit stops scripts of the site's own too, and then drains the node"
		} else if time.Duration(limit)*time.Second < total {
			v.wrong(fmt.Sprintf("%s=%d, and deadlines.%s.total is %v", key, limit, h.hook, total), fix)
		}
	}
	return "longer than the deadlines of the hooks"
}

func judgeCgroups(v *view) string {
	kind, _ := v.conf().Get("ProctrackType")
	if kind.Text != "" && !strings.HasSuffix(strings.ToLower(kind.Text), "cgroup") {
		v.warn("ProctrackType="+kind.Text, v.inConf("ProctrackType=proctrack/cgroup"))
	}
	return "processes are tracked by cgroups"
}

func judgePyxis(v *view) string {
	var hooks []string
	for _, key := range []string{"TaskProlog", "TaskEpilog"} {
		if _, ok := v.conf().Get(key); ok {
			hooks = append(hooks, key+"=")
		}
	}
	if !v.Survey.Slurm.Pyxis || len(hooks) == 0 {
		return "no pyxis with a task hook"
	}
	level := Warning
	if have, ok := v.slurmdVersion(); ok && have.Has(slurm.TaskHookFails) {
		level = Wrong
	}
	v.say(level, "pyxis, and "+strings.Join(hooks, " and ")+" in "+filepath.Base(slurmConfPath(v.Site)),
		"bookend setup --pyxis yes --write   # where slurm.conf is maintained: it sets no task hooks")
	return ""
}
