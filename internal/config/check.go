package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"bookend/internal/code"
)

// check finds values that contradict each other.
func (r *reader) check(c *Config) {
	r.require(c.Version == 1, "must be 1, the only version there is", "version")
	apart := c.Paths.Run != c.Paths.Var && c.Paths.Var != c.Paths.Log && c.Paths.Log != c.Paths.Run
	r.require(apart, "paths.run, paths.var and paths.log must be three folders", "paths.run", "paths.var", "paths.log")
	r.checkCards(&c.NVIDIA)
	r.checkSteps(&c.Deadlines)
	r.checkSettle("prolog", c.Settle.Prolog, c.Deadlines.Prolog.Driver)
	r.checkSettle("epilog", c.Settle.Epilog, c.Deadlines.Epilog.Driver)
	r.checkConfirm(c.Settle.Epilog, c.Deadlines.Epilog, c.CleanUp)
	t := c.Thresholds
	r.require(t.Report >= mib, "must be at least 1MiB", "thresholds.report")
	r.require(t.Report <= t.Drain, fmt.Sprintf("report %v is more than drain %v", t.Report, t.Drain),
		"thresholds.report", "thresholds.drain")
	r.require(t.PerClient <= 1<<30, "must be at most 1GiB", "thresholds.per_client")
	// More than a card has would switch the finding off unseen.
	r.require(c.Probe.Gap >= 4*mib && c.Probe.Gap <= 1<<40,
		"must be from 4MiB to 1024GiB: healthy cards were measured to have gaps of up to 3MiB", "probe.gap")
	r.require(!c.Drain.Resume.Enabled || c.Drain.ReasonBy != ReasonByNone,
		"needs drain.reason_by: only a node with a reason of Bookend's own is resumed",
		"drain.resume.enabled", "drain.reason_by")
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

// checkPolicy refuses to let Bookend's own faults drain one by one, since on_unknown says that in one place, and to
// let a hook drain over a card that its job was not given, or over one that nothing was found against.
func (r *reader) checkPolicy(key string, actions map[code.Code]Action) {
	for of, action := range actions {
		if action != Drain {
			continue
		}
		switch e, _ := code.Lookup(of); {
		case e.Scope == code.Own:
			r.require(false, "a fault of Bookend itself drains only by on_unknown: drain", key+"."+string(of))
		case e.Scope == code.Elsewhere:
			r.require(false, "is about a card that is not the hook's job's, and never drains", key+"."+string(of))
		case e.Scope == code.Card && e.Severity == code.Note:
			r.require(false, "says nothing against the card, and never drains", key+"."+string(of))
		}
	}
}

// require reports text at the first of keys that the file contains, unless one of them is already reported.
func (r *reader) require(ok bool, text string, keys ...string) {
	if ok || slices.ContainsFunc(keys, func(k string) bool { return r.bad[k] }) {
		return
	}
	at := keys[max(0, slices.IndexFunc(keys, func(k string) bool { return r.lines[k] > 0 }))]
	r.problem(r.lines[at], at, text)
}

func (r *reader) checkCards(n *NVIDIA) {
	const orderKey, mapKey = "nvidia.gpu_order", "nvidia.gpu_map"
	r.require(n.GPUOrder != OrderMap || len(n.GPUMap) > 0, "order map needs nvidia.gpu_map", orderKey, mapKey)
	r.require(n.GPUOrder == OrderMap || len(n.GPUMap) == 0, "is only used with nvidia.gpu_order: map", mapKey, orderKey)
	taken := map[string]int{}
	for _, i := range slices.Sorted(maps.Keys(n.GPUMap)) {
		card := strings.ToLower(n.GPUMap[i])
		first, twice := taken[card]
		r.require(!twice, fmt.Sprintf("is the same card as index %d", first), fmt.Sprintf("%s.%d", mapKey, i))
		taken[card] = i
	}
}

func (r *reader) checkSteps(d *Deadlines) {
	r.checkSum("deadlines.prolog", d.Prolog.Total, d.Prolog.Driver+d.Prolog.Append+d.Prolog.Outputs)
	r.checkSum("deadlines.epilog", d.Epilog.Total,
		d.Epilog.Driver+d.Epilog.Scan+d.Epilog.Probe+d.Epilog.Append+d.Epilog.Outputs)
	check := d.HealthCheck
	r.checkSum("deadlines.health_check", check.Total, check.Driver+check.Scan+check.Slurm+check.Outputs)
	r.require(d.Prolog.Append == 0, "must be 0s: a prolog appends nothing", "deadlines.prolog.append")
	r.require(d.Prolog.Scan <= d.Prolog.Driver, "must not exceed deadlines.prolog.driver: the scan is part of it",
		"deadlines.prolog.scan", "deadlines.prolog.driver")
	r.require(d.Prolog.Probe <= d.Prolog.Driver,
		"must not exceed deadlines.prolog.driver: the test allocation is part of it",
		"deadlines.prolog.probe", "deadlines.prolog.driver")
}

// checkSum: sum is what the steps that follow each other may take.
func (r *reader) checkSum(hook string, total, sum Duration) {
	var keys []string
	for _, step := range []string{"total", "driver", "scan", "probe", "append", "slurm", "outputs"} {
		keys = append(keys, hook+"."+step)
	}
	r.require(sum <= total, fmt.Sprintf("the steps add up to %v, more than the total of %v", sum, total), keys...)
}

// driverMargin is what attaching to cards and the backend's start take beside the watching: 45 ms for four
// cards with persistence, and room.
const driverMargin = Duration(500 * time.Millisecond)

func (r *reader) checkSettle(hook string, s SettleTimes, driver Duration) {
	maxKey, flatKey, driverKey := "settle."+hook+".max", "settle."+hook+".flat", "deadlines."+hook+".driver"
	r.require(s.Flat <= s.Max, fmt.Sprintf("flat %v is longer than max %v: nothing would ever be flat", s.Flat, s.Max),
		flatKey, maxKey)
	r.require(s.Max+driverMargin <= driver,
		fmt.Sprintf("max %v must end %v before %s %v", s.Max, driverMargin, driverKey, driver), maxKey, driverKey)
}

// MaxGrace is the longest clean_up.grace.
const MaxGrace = 10 * time.Second

// KillWait is how long clean-up waits for a process to go after SIGKILL: teardown of a full card took 0.15 s, of one in
// many pieces 0.4 s (measured on 141 GiB).
const KillWait = time.Second

// checkConfirm: what stays under the PID of a process that has ended is watched for the flat time once more, or
// it could never be told from memory on its way back. Looks are up to a second apart. Where a leftover is ended,
// the second watch comes after its grace.
func (r *reader) checkConfirm(s SettleTimes, d HookDeadline, c CleanUp) {
	needs := 2*(s.Flat+min(s.Flat, Duration(time.Second))) + driverMargin + d.Append + d.Outputs
	r.require(needs <= d.Total,
		fmt.Sprintf("two watches of flat %v and the steps behind them need %v of total %v", s.Flat, needs, d.Total),
		"settle.epilog.flat", "deadlines.epilog.total")
	if !c.Enabled || needs > d.Total {
		return
	}
	needs += c.Grace + Duration(KillWait)
	const text = "with clean_up.enabled two watches of flat %v, grace %v and the steps behind them need %v of total %v"
	r.require(needs <= d.Total, fmt.Sprintf(text, s.Flat, c.Grace, needs, d.Total),
		"clean_up.grace", "clean_up.enabled", "deadlines.epilog.total")
}
