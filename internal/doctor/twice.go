package doctor

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"bookend/internal/slurmconf"
)

// onceKeys are the keys that a snippet of deploy/slurm may set where slurm.conf has them already, and of which Slurm takes one
// line; what is lost with the others says why.
var onceKeys = []struct {
	key   string
	judge func(first, last slurmconf.Value) (level Level, why, fix string)
}{
	{"PrologFlags", lostFlags},
	{"PrologEpilogTimeout", shorterLimit},
	{"TaskProlog", lostProgram("bookend-own-task-hooks.conf, which runs both")},
	{"TaskEpilog", lostProgram("bookend-own-task-hooks.conf, which runs both")},
	{healthKey, lostProgram("bookend-own-health.conf, and let the site's own run bookend-healthcheck")},
	{"HealthCheckInterval", lostTimes},
	{"HealthCheckNodeState", lostTimes},
}

// judgeTwice judges keys that several lines set: Slurm takes the last, and only logs that there are more.
func judgeTwice(s Site, c slurmconf.Conf) []Result {
	const name = "slurm-twice"
	var bad []Result
	for _, k := range onceKeys {
		all := c.All(k.key)
		if len(all) < 2 {
			continue
		}
		last := all[len(all)-1]
		for _, first := range all[:len(all)-1] {
			if strings.EqualFold(first.Text, last.Text) || first.Text == "" {
				continue
			}
			level, why, fix := k.judge(first, last)
			if fix == "" {
				fix = fmt.Sprintf("take line %d out of %s, or line %d out of %s, then: scontrol reconfigure", first.Line.Number, first.Line.File, last.Line.Number, last.Line.File)
			}
			bad = append(bad, Result{name, level, c.Path, fmt.Sprintf("%s=%s in %s does not count: %s says %s", k.key, first.Text, first.Line.Where(), last.Line.Where(), last.Text), why, fix})
		}
	}
	if len(bad) > 0 {
		return bad
	}
	return well(name, c.Path, "each once")
}

// implied are the flags that another brings with it.
var implied = map[string][]string{"Alloc": {"Contain", "X11", "NoHold", "RunInJob", "ForceRequeueOnFail"}, "Contain": {"X11", "RunInJob"}}

// lostFlags: a snippet's PrologFlags takes the site's own away, and what rests on them.
func lostFlags(first, last slurmconf.Value) (Level, string, string) {
	has := func(flag string) bool { return slurmconf.HasWord(last.Text, flag) }
	kept := slurmconf.Words(last.Text)
	lost := slices.DeleteFunc(slurmconf.Words(first.Text), func(flag string) bool {
		for brought, by := range implied {
			if strings.EqualFold(brought, flag) && slices.ContainsFunc(by, has) {
				return true
			}
		}
		return has(flag)
	})
	all := allowed(append(kept, lost...))
	fix := fmt.Sprintf("PrologFlags=%s   # as the only such line: in line %d of %s; take out line %d of %s, then: scontrol reconfigure", strings.Join(all, ","),
		last.Line.Number, last.Line.File, first.Line.Number, first.Line.File)
	if len(lost) == 0 {
		return Warning, "Slurm logs an error for it whenever the file is read", fix
	}
	return Wrong, "what rests on " + strings.Join(lost, " and ") + " no longer works: without Contain no login is adopted into its job, without X11 none is forwarded", fix
}

// allowed leaves out the flags that Slurm does not take beside others.
func allowed(flags []string) []string {
	list := strings.Join(flags, ",")
	return slices.DeleteFunc(flags, func(flag string) bool {
		inJob := slurmconf.HasWord(list, "RunInJob")
		return strings.EqualFold(flag, "NoHold") && (inJob || slurmconf.HasWord(list, "Contain") || slurmconf.HasWord(list, "X11")) ||
			strings.EqualFold(flag, "Serial") && inJob
	})
}

// shorterLimit: a hook of the site's own, which had more time, is killed, and its node drained.
func shorterLimit(first, last slurmconf.Value) (Level, string, string) {
	was, err1 := strconv.Atoi(first.Text)
	is, err2 := strconv.Atoi(last.Text)
	if err1 == nil && err2 == nil && is >= was {
		return Warning, "Slurm logs an error for it whenever the file is read", ""
	}
	return Wrong, "slurmd stops a Prolog or Epilog that takes longer, and drains the node if the script is the site's own", ""
}

func lostTimes(slurmconf.Value, slurmconf.Value) (Level, string, string) {
	return Warning, "the health check runs at other times, or on other nodes, than the site had meant", ""
}

func lostProgram(snippet string) func(first, last slurmconf.Value) (Level, string, string) {
	return func(first, last slurmconf.Value) (Level, string, string) {
		return Wrong, first.Text + " never runs", "include " + snippet + ", or " +
			fmt.Sprintf("take line %d out of %s, then: scontrol reconfigure", last.Line.Number, last.Line.File)
	}
}
