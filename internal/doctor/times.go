package doctor

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"bookend/internal/config"
	"bookend/internal/slurmconf"
)

func timeChecks() []Check {
	return []Check{
		onConf("hook-timeout", areaTimes, "slurmd gives each hook a limit, and one that is longer than `deadlines.*.total`", []string{"PrologEpilogTimeout"}, judgeTimeout),
		onConf("message-timeout", areaTimes, "a prolog ends before slurmctld tells users that it hangs: `deadlines.prolog.total` is less than MessageTimeout less 2 s", []string{"MessageTimeout"}, judgeMessage),
		onConf("batch-start", areaTimes, "a batch job may start as late as its prolog allows: BatchStartTimeout is longer", []string{"BatchStartTimeout"}, judgeBatch),
		onConf("unkillable-step", areaTimes, "UnkillableStepTimeout leaves a driver that frees much memory the time for it: 60 s or more, beyond KillWait", []string{"UnkillableStepTimeout"}, judgeUnkillable),
		onConf("health-interval", areaTimes, "the health check runs every 30 s to an hour, on nodes with and without jobs, and ends before slurmd kills it", []string{"HealthCheckInterval"}, judgeInterval),
	}
}

func judgeFlags(s Site, c slurmconf.Conf) []Result {
	const name = "prolog-flags"
	v, _ := c.Get("PrologFlags")
	has := func(flag string) bool { return slurmconf.HasWord(v.Text, flag) }
	var bad []Result
	say := func(level Level, seen, why, fix string) {
		bad = append(bad, Result{name, level, c.Path, seen, why, s.inConf(fix)})
	}
	keep := func(without string) string {
		var flags []string
		for _, f := range slurmconf.Words(v.Text) {
			if !strings.EqualFold(f, without) {
				flags = append(flags, f)
			}
		}
		if len(flags) == 0 {
			flags = []string{"Alloc"}
		}
		return "PrologFlags=" + strings.Join(flags, ",")
	}
	if !has("Alloc") && !has("Contain") && !has("NoHold") && !has("X11") && !has("RunInJob") && !has("ForceRequeueOnFail") {
		say(Warning, "PrologFlags="+v.Text+" has neither Alloc nor Contain", "the prolog runs only where a step starts: on the job's further nodes no start is looked at, so nothing can be compared, and nothing drains", "PrologFlags=Alloc")
	}
	if has("Serial") {
		say(Warning, "PrologFlags="+v.Text+": Serial", "hooks of one node wait for each other: with a job a card, starts and ends queue up behind the slowest", keep("Serial"))
	}
	if has("RunInJob") {
		why := "hooks run within the job: they see its cards alone, its memory limit is theirs, and no exit code reaches them; the driver is not asked"
		if s.Config.Slurm.RunInJobBackend {
			why = "hooks run within the job: they see its cards alone, its memory limit is theirs, and no exit code reaches them"
		}
		if ver, ok := s.slurmdVersion(); ok && ver.before(25, 11, 0) {
			why += "; before 25.11 jobs with GPUs on several nodes crash slurmstepd"
		}
		say(Warning, "PrologFlags="+v.Text+": RunInJob", why, strings.Replace(keep("RunInJob"), "PrologFlags=Alloc", "PrologFlags=Contain", 1))
	}
	if has("NoHold") && (has("Contain") || has("X11")) {
		say(Wrong, "PrologFlags="+v.Text+": NoHold beside Contain or X11", "Slurm does not allow both", keep("NoHold"))
	}
	if len(bad) > 0 {
		return bad
	}
	return well(name, c.Path, "PrologFlags=%s", v.Text)
}

// seconds is a key's time; none is true where it has none, or no limit. An unreadable number is none.
func seconds(c slurmconf.Conf, key string, byDefault int) (n int, set bool) {
	v, ok := c.Get(key)
	n, err := strconv.Atoi(strings.TrimSpace(v.Text))
	if !ok || err != nil || n < 0 || n >= noLimit {
		return byDefault, false
	}
	return n, true
}

// noLimit is how Slurm writes that there is none.
const noLimit = 65534

// spare is what slurmd's limit should leave a hook beyond its deadline: a child that a driver keeps from dying, a busy node.
const spare = 5 * time.Second

func judgeTimeout(s Site, c slurmconf.Conf) []Result {
	const name = "hook-timeout"
	var bad []Result
	var told []string
	for _, h := range []struct {
		key   string
		total config.Duration
	}{{"PrologTimeout", s.Config.Deadlines.Prolog.Total}, {"EpilogTimeout", s.Config.Deadlines.Epilog.Total}} {
		key, total := h.key, time.Duration(h.total)
		limit, set := seconds(c, key, 0)
		if v, ok := s.slurmdVersion(); !set || ok && v.before(25, 5, 0) { // which knows but one for both
			key = "PrologEpilogTimeout"
			limit, set = seconds(c, key, 0)
		}
		hook := strings.ToLower(strings.TrimSuffix(h.key, "Timeout"))
		switch want := time.Duration(limit) * time.Second; {
		case !set:
			bad = append(bad, Result{name, Warning, c.Path, "no limit for the " + hook, "Bookend ends by itself; but what the kernel does not let end, or a hook of another, keeps the node for ever", s.inConf("PrologEpilogTimeout=60")})
		case want < total:
			bad = append(bad, Result{name, Wrong, c.Path, fmt.Sprintf("%s=%d, but deadlines.%s.total is %v", key, limit, hook, total), "slurmd stops a hook that is still at work, and the job's start or end is not examined; a script of the site's own drains the node", s.inConf(fmt.Sprintf("%s=%d", key, max(60, int((total+spare)/time.Second))))})
		case want < total+spare:
			bad = append(bad, Result{name, Warning, c.Path, fmt.Sprintf("%s=%d, and deadlines.%s.total is %v", key, limit, hook, total), "on a busy node slurmd may stop a hook at its last step, and the job's start or end is not examined", s.inConf(fmt.Sprintf("%s=%d", key, max(60, int((total+spare)/time.Second))))})
		default:
			told = append(told, fmt.Sprintf("%s %d s for %v", hook, limit, total))
		}
	}
	if len(bad) == 2 && bad[0].Fix == bad[1].Fix && strings.HasPrefix(bad[0].Seen, "no limit") && strings.HasPrefix(bad[1].Seen, "no limit") {
		bad[0].Seen = "no limit for prolog and epilog"
		return bad[:1]
	}
	if len(bad) > 0 {
		return bad
	}
	return well(name, c.Path, "%s", strings.Join(told, ", "))
}

func judgeMessage(s Site, c slurmconf.Conf) []Result {
	const name = "message-timeout"
	limit, _ := seconds(c, "MessageTimeout", 10)
	total := time.Duration(s.Config.Deadlines.Prolog.Total)
	if hangs := time.Duration(max(2, limit-2)) * time.Second; total >= hangs {
		return []Result{{name, Warning, c.Path, fmt.Sprintf("a prolog may take %v, and from %v on users of srun read \"Prolog hung\"", total, hangs),
			"they are told that the node is broken", fmt.Sprintf("%s, or deadlines.prolog.total: %v in bookend.yaml", s.inConf(fmt.Sprintf("MessageTimeout=%d", int(total/time.Second)+3)), max(time.Second, hangs-time.Second))}}
	}
	return well(name, c.Path, "%d s; a prolog takes %v at most", limit, total)
}

func judgeBatch(s Site, c slurmconf.Conf) []Result {
	const name = "batch-start"
	limit, _ := seconds(c, "BatchStartTimeout", 10)
	total := time.Duration(s.Config.Deadlines.Prolog.Total)
	if time.Duration(limit)*time.Second <= total {
		return []Result{{name, Warning, c.Path, fmt.Sprintf("BatchStartTimeout=%d, and a prolog may take %v", limit, total), "a batch job that starts later counts as lost, and is requeued or ended", s.inConf(fmt.Sprintf("BatchStartTimeout=%d", int(total/time.Second)+10))}}
	}
	if prolog, set := seconds(c, "PrologTimeout", 0); set && limit < prolog {
		return []Result{{name, Warning, c.Path, fmt.Sprintf("BatchStartTimeout=%d is less than PrologTimeout=%d", limit, prolog), "Slurm logs an error for it, and a batch job behind a slow prolog counts as lost", s.inConf(fmt.Sprintf("BatchStartTimeout=%d", prolog+10))}}
	}
	return well(name, c.Path, "%d s; a prolog takes %v at most", limit, total)
}

// leastUnkillable is Slurm's own default: freeing a card's memory may take tens of seconds on a card in trouble.
const leastUnkillable = 60

func judgeUnkillable(s Site, c slurmconf.Conf) []Result {
	const name = "unkillable-step"
	limit, _ := seconds(c, "UnkillableStepTimeout", leastUnkillable)
	wait, _ := seconds(c, "KillWait", 30)
	if limit < leastUnkillable {
		return []Result{{name, Warning, c.Path, fmt.Sprintf("UnkillableStepTimeout=%d (KillWait %d s)", limit, wait), "a process whose memory the driver is still freeing counts as unkillable: the node is drained for \"Kill task failed\" before an epilog can tell why",
			s.inConf("UnkillableStepTimeout=180")}}
	}
	return well(name, c.Path, "%d s; KillWait %d s", limit, wait)
}

// healthLimit is how long slurmd lets a health check run, in seconds; from 26.05 on HealthCheckTimeout= says it.
const healthLimit = 60

// The bounds of a sane interval of the health check, in seconds.
const (
	leastInterval = 30
	mostInterval  = 3600
)

func judgeInterval(s Site, c slurmconf.Conf) []Result {
	const name = "health-interval"
	program, set := c.Get("HealthCheckProgram")
	if !set || program.Text == "" {
		return well(name, c.Path, "no HealthCheckProgram=")
	}
	every, _ := seconds(c, "HealthCheckInterval", 0)
	state, _ := c.Get("HealthCheckNodeState")
	only := func(word string) bool { return slurmconf.HasWord(state.Text, word) }
	fix := s.inConf("HealthCheckInterval=300")
	limit, own := seconds(c, "HealthCheckTimeout", healthLimit)
	total := time.Duration(s.Config.Deadlines.HealthCheck.Total)
	switch {
	case total >= time.Duration(limit)*time.Second && own:
		return []Result{{name, Wrong, c.Path, fmt.Sprintf("HealthCheckTimeout=%d, but deadlines.health_check.total is %v", limit, total), "slurmd kills a check that is still at work", s.inConf(fmt.Sprintf("HealthCheckTimeout=%d", max(healthLimit, int((total+spare)/time.Second))))}}
	case total >= time.Duration(limit)*time.Second:
		return []Result{{name, Wrong, c.Path, fmt.Sprintf("slurmd ends a health check after %d s, but deadlines.health_check.total is %v", limit, total), "it kills a check that is still at work", "total: 45s   # below deadlines: health_check: in bookend.yaml"}}
	case only("START_ONLY") || only("REBOOT_ONLY"):
		return []Result{{name, Warning, c.Path, "HealthCheckNodeState=" + state.Text, "the check runs once: what jobs leave nobody sees until the next", s.inConf("HealthCheckNodeState=ANY")}}
	case every == 0:
		return []Result{{name, Wrong, c.Path, "HealthCheckInterval is 0", "the health check never runs", fix}}
	case every < leastInterval:
		return []Result{{name, Warning, c.Path, fmt.Sprintf("HealthCheckInterval=%d", every), "each run asks the driver, beside jobs at work", fix}}
	case every > mostInterval:
		return []Result{{name, Warning, c.Path, fmt.Sprintf("HealthCheckInterval=%d", every), "what a job leaves, and a driver that recovers, is seen hours later", fix}}
	case state.Text != "" && !only("ANY") && !(only("ALLOC") && only("IDLE")) && !only("MIXED"):
		return []Result{{name, Warning, c.Path, "HealthCheckNodeState=" + state.Text, "on other nodes nobody looks: neither who is on a card while jobs run, nor what stays between them", s.inConf("HealthCheckNodeState=ANY")}}
	}
	return well(name, c.Path, "every %d s", every)
}
