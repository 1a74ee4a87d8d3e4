package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"bookend/internal/code"
	"bookend/internal/wire"
)

func (r *reader) check(c *Config) {
	r.require(c.Version == 1, "must be 1, the only version there is", "version")
	apart := c.Paths.Run != c.Paths.Var && c.Paths.Var != c.Paths.Log && c.Paths.Log != c.Paths.Run
	r.require(apart, "paths.run, paths.var and paths.log must be three "+
		"directories", "paths.run", "paths.var", "paths.log")
	r.checkCards(c.NVIDIA.GPUMap)
	r.checkTimes(c)
	t := c.Thresholds
	r.require(t.Report <= t.Drain, fmt.Sprintf("report %v is more than drain %v", t.Report, t.Drain),
		"thresholds.report", "thresholds.drain")
	r.require(!c.Drain.Resume.Enabled || c.Drain.ReasonBy != ReasonByNone,
		"needs drain.reason_by: only a node with a Bookend reason is resumed",
		"drain.resume.enabled", "drain.reason_by")
	r.require(c.Record.Every == 0 || c.Record.Every >= Duration(wire.MinEvery),
		fmt.Sprintf("must be 0s, or at least %v", wire.MinEvery), "record.every")
	r.checkPolicy("policy.prolog", c.Policy.Prolog)
	r.checkPolicy("policy.epilog", c.Policy.Epilog)
	for of, action := range c.Policy.HealthCheck {
		r.require(action != Drain, "the health check never drains: Slurm only logs how it ends",
			"policy.health_check."+string(of))
	}
	for name, p := range c.Policy.Partitions {
		r.checkPolicy("policy.partitions."+clip(name)+".prolog", p.Prolog)
		r.checkPolicy("policy.partitions."+clip(name)+".epilog", p.Epilog)
	}
}

// checkPolicy refuses a drain for what never drains: the admin is to know that he does not get it.
func (r *reader) checkPolicy(key string, actions map[code.Code]Action) {
	for of, action := range actions {
		if e, _ := code.Lookup(of); action == Drain {
			r.require(e.NeverDrains() == "", "never drains: "+e.NeverDrains(), key+"."+string(of))
		}
	}
}

// require reports text at the first of keys that the file contains, unless one of them is already reported.
func (r *reader) require(ok bool, text string, keys ...string) {
	if ok || slices.ContainsFunc(r.problems, func(p Problem) bool { return slices.Contains(keys, p.Key) }) {
		return
	}
	at := keys[max(0, slices.IndexFunc(keys, func(k string) bool { return r.lines[k] > 0 }))]
	r.problem(r.lines[at], at, text)
}

func (r *reader) checkCards(cards map[int]string) {
	taken := map[string]int{}
	for _, i := range slices.Sorted(maps.Keys(cards)) {
		first, twice := taken[strings.ToLower(cards[i])]
		r.require(!twice, fmt.Sprintf("is the same GPU as index %d", first), fmt.Sprintf("nvidia.gpu_map.%d", i))
		taken[strings.ToLower(cards[i])] = i
	}
}

// driverMargin is what attaching to cards and the backend's start take beside the watching: 45 ms for four
// cards with persistence, and room.
const driverMargin = Duration(500 * time.Millisecond)

// KillWait is how long clean-up waits for a process to go after SIGKILL: teardown of a full card took 0.15 s, of one in
// many pieces 0.4 s (measured on 141 GiB).
const KillWait = time.Second

// checkTimes: the steps of each hook must fit into its time, and what is watched into its step.
func (r *reader) checkTimes(c *Config) {
	prolog := c.Deadlines.Prolog
	prolog.Scan, prolog.Probe = 0, 0 // parts of its Driver
	for i, d := range []HookDeadline{prolog, c.Deadlines.Epilog, c.Deadlines.HealthCheck.Hook()} {
		at := "deadlines." + []string{"prolog", "epilog", "health_check"}[i] + "."
		sum := d.Driver + d.Scan + d.Probe + d.Append + d.Outputs
		r.require(sum <= d.Total, fmt.Sprintf("the steps add up to %v, more than the total of %v", sum, d.Total),
			at+"total", at+"driver", at+"processes", at+"probe", at+"job_log", at+"slurm", at+"records")
	}
	r.checkSettle("prolog", c.Settle.Prolog, c.Deadlines.Prolog.Driver)
	r.checkSettle("epilog", c.Settle.Epilog, c.Deadlines.Epilog.Driver)
	// What stays under the PID of a process that has ended is watched for the flat time once more, or it could never be
	// told from memory on its way back. Looks are up to a second apart. Where a leftover is ended, the second watch
	// comes after its grace.
	epilog, flat, grace := c.Deadlines.Epilog, c.Settle.Epilog.Flat, ""
	needs := 2*(flat+min(flat, Duration(time.Second))) + driverMargin + epilog.Append + epilog.Outputs
	if c.CleanUp.Enabled {
		needs += c.CleanUp.Grace + Duration(KillWait)
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
