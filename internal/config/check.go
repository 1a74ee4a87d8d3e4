package config

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"bookend/internal/code"
)

// check finds values that are out of range or contradict each other.
func (r *reader) check(c *Config) {
	r.require(c.Version == 1, "must be 1, the only version there is", "version")
	r.checkFiles(c)
	r.checkNVIDIA(&c.NVIDIA)
	if c.Slurm.GresConf != "" {
		r.checked(checkPath(c.Slurm.GresConf), "slurm.gres_conf")
	}
	if c.Slurm.Slurmd != "" {
		r.checked(checkPath(c.Slurm.Slurmd), "slurm.slurmd")
	}
	for i, name := range c.Slurm.SharedPartitions {
		r.checked(checkName(name), fmt.Sprintf("slurm.shared_partitions.%d", i))
	}
	r.checkDeadlines(&c.Deadlines)
	r.checkCheckDeadline(&c.Deadlines.HealthCheck)
	r.checkSettle("prolog", c.Settle.Prolog, c.Deadlines.Prolog.Driver)
	r.checkSettle("epilog", c.Settle.Epilog, c.Deadlines.Epilog.Driver)
	r.checkConfirm(c.Settle.Epilog, c.Deadlines.Epilog, c.CleanUp)
	r.checkThresholds(&c.Thresholds)
	r.checkProbe(&c.Probe)
	r.require(c.Drain.MaxRestarts >= 0 && c.Drain.MaxRestarts <= 1000, "must be from 0 to 1000", "drain.max_restarts")
	r.require(c.Drain.Resume.After >= 1 && c.Drain.Resume.After <= 1000, "must be from 1 to 1000", "drain.resume.after")
	r.require(!c.Drain.Resume.Enabled || c.Drain.ReasonBy != ReasonByNone,
		"needs drain.reason_by: only a node with a reason of Bookend's own is resumed", "drain.resume.enabled", "drain.reason_by")
	r.checkPolicy("policy", c.Policy.Prolog, c.Policy.Epilog)
	for _, of := range slices.Sorted(maps.Keys(c.Policy.HealthCheck)) {
		r.require(c.Policy.HealthCheck[of] != Drain, "the health check never drains: Slurm only logs how it ends", "policy.health_check."+string(of))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Policy.Partitions)) {
		p := c.Policy.Partitions[name]
		r.checkPolicy("policy.partitions."+clip(name), p.Prolog, p.Epilog)
	}
}

// require reports text at the first of keys that the file contains, unless one of them is already reported.
func (r *reader) require(ok bool, text string, keys ...string) {
	if ok || slices.ContainsFunc(keys, func(k string) bool { return r.bad[k] }) {
		return
	}
	at := keys[0]
	for _, k := range keys {
		if r.lines[k] > 0 {
			at = k
			break
		}
	}
	r.problem(r.lines[at], at, "%s", text)
}

func (r *reader) checked(err error, key string) {
	if err != nil {
		r.require(false, err.Error(), key)
	}
}

func (r *reader) checkFiles(c *Config) {
	for _, f := range []struct{ key, value string }{
		{"paths.proc", c.Paths.Proc}, {"paths.sys", c.Paths.Sys}, {"paths.dev", c.Paths.Dev},
		{"paths.run", c.Paths.Run}, {"paths.var", c.Paths.Var}, {"paths.log", c.Paths.Log},
		{"backend", c.Backend}, {"nvidia.driver_proc", c.NVIDIA.DriverProc}, {"slurm.scontrol", c.Slurm.Scontrol},
	} {
		r.checked(checkPath(f.value), f.key)
	}
	apart := c.Paths.Run != c.Paths.Var && c.Paths.Var != c.Paths.Log && c.Paths.Log != c.Paths.Run
	r.require(apart, "paths.run, paths.var and paths.log must be three folders", "paths.run", "paths.var", "paths.log")
	r.checked(checkTextfile(c.Metrics.Textfile), "metrics.textfile")
}

func checkTextfile(p string) error {
	if p == "" {
		return nil
	}
	if err := checkPath(p); err != nil {
		return err
	}
	if name := path.Base(p); !strings.HasSuffix(name, TextfileSuffix) || strings.HasPrefix(name, ".") {
		return fmt.Errorf("%q does not end in NAME%s: node_exporter would not read it", clip(p), TextfileSuffix)
	}
	return nil
}

func (r *reader) checkNVIDIA(n *NVIDIA) {
	r.checked(checkLibrary(n.NVMLLibrary), "nvidia.nvml_library")
	r.checked(checkLibrary(n.CUDALibrary), "nvidia.cuda_library")
	r.require(n.GPUOrder != OrderMap || len(n.GPUMap) > 0, "order map needs nvidia.gpu_map", "nvidia.gpu_order", "nvidia.gpu_map")
	r.require(n.GPUOrder == OrderMap || len(n.GPUMap) == 0, "is only used with nvidia.gpu_order: map", "nvidia.gpu_map", "nvidia.gpu_order")
	taken := map[string]int{}
	for _, i := range slices.Sorted(maps.Keys(n.GPUMap)) {
		card, key := n.GPUMap[i], fmt.Sprintf("nvidia.gpu_map.%d", i)
		r.checked(checkName(card), key)
		if first, ok := taken[strings.ToLower(card)]; ok {
			r.require(false, fmt.Sprintf("is the same card as index %d", first), key)
		}
		taken[strings.ToLower(card)] = i
	}
}

func (r *reader) checkDeadlines(d *Deadlines) {
	for _, h := range []struct {
		key  string
		hook HookDeadline
		sum  Duration // of the caps that follow each other
	}{
		{"deadlines.prolog", d.Prolog, d.Prolog.Driver + d.Prolog.Append + d.Prolog.Outputs},
		{"deadlines.epilog", d.Epilog, d.Epilog.Driver + d.Epilog.Scan + d.Epilog.Probe + d.Epilog.Append + d.Epilog.Outputs},
	} {
		r.within(h.hook.Total, time.Second, 10*time.Minute, h.key+".total")
		r.within(h.hook.Driver, 500*time.Millisecond, 10*time.Minute, h.key+".driver")
		r.within(h.hook.Scan, 100*time.Millisecond, 10*time.Minute, h.key+".scan")
		r.within(h.hook.Probe, 100*time.Millisecond, 10*time.Minute, h.key+".probe")
		r.within(h.hook.Outputs, 100*time.Millisecond, 10*time.Minute, h.key+".outputs")
		text := fmt.Sprintf("the steps add up to %v, more than the total of %v", h.sum, h.hook.Total)
		r.require(h.sum <= h.hook.Total, text, h.key+".total", h.key+".driver", h.key+".scan", h.key+".probe", h.key+".append", h.key+".outputs")
	}
	r.require(d.Prolog.Append == 0, "must be 0s: a prolog appends nothing", "deadlines.prolog.append")
	r.require(d.Prolog.Scan <= d.Prolog.Driver, "must not exceed deadlines.prolog.driver: the scan is part of it",
		"deadlines.prolog.scan", "deadlines.prolog.driver")
	r.require(d.Prolog.Probe <= d.Prolog.Driver, "must not exceed deadlines.prolog.driver: the test allocation is part of it",
		"deadlines.prolog.probe", "deadlines.prolog.driver")
	r.within(d.Task, 100*time.Millisecond, 10*time.Second, "deadlines.task")
}

// MostCheck is the longest that a health check may be given: Slurm ends it after 60 s, and what it started needs to end.
const MostCheck = 55 * time.Second

func (r *reader) checkCheckDeadline(d *CheckDeadline) {
	const key = "deadlines.health_check"
	r.within(d.Total, time.Second, MostCheck, key+".total")
	r.within(d.Driver, 500*time.Millisecond, MostCheck, key+".driver")
	r.within(d.Scan, 100*time.Millisecond, MostCheck, key+".scan")
	r.within(d.Slurm, 100*time.Millisecond, MostCheck, key+".slurm")
	r.within(d.Outputs, 100*time.Millisecond, MostCheck, key+".outputs")
	sum := d.Driver + d.Scan + d.Slurm + d.Outputs
	r.require(sum <= d.Total, fmt.Sprintf("the steps add up to %v, more than the total of %v", sum, d.Total),
		key+".total", key+".driver", key+".scan", key+".slurm", key+".outputs")
}

func (r *reader) within(d Duration, low, high time.Duration, key string) {
	ok := time.Duration(d) >= low && time.Duration(d) <= high
	r.require(ok, fmt.Sprintf("must be from %v to %v", low, high), key)
}

// driverMargin is what attaching to cards and the backend's start take beside the watching: 45 ms for four
// cards with persistence, and room.
const driverMargin = Duration(500 * time.Millisecond)

func (r *reader) checkSettle(hook string, s SettleTimes, driver Duration) {
	maxKey, flatKey, driverKey := "settle."+hook+".max", "settle."+hook+".flat", "deadlines."+hook+".driver"
	r.within(s.Flat, 200*time.Millisecond, 10*time.Minute, flatKey)
	r.require(s.Flat <= s.Max, fmt.Sprintf("flat %v is longer than max %v: nothing would ever be flat", s.Flat, s.Max),
		flatKey, maxKey)
	r.require(s.Max+driverMargin <= driver, fmt.Sprintf("max %v must end %v before %s %v", s.Max, driverMargin, driverKey, driver),
		maxKey, driverKey)
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
	r.within(c.Grace, 100*time.Millisecond, MaxGrace, "clean_up.grace")
	needs := 2*(s.Flat+min(s.Flat, Duration(time.Second))) + driverMargin + d.Append + d.Outputs
	r.require(needs <= d.Total, fmt.Sprintf("two watches of flat %v and the steps behind them need %v of total %v", s.Flat, needs, d.Total),
		"settle.epilog.flat", "deadlines.epilog.total")
	if !c.Enabled || needs > d.Total {
		return
	}
	needs += c.Grace + Duration(KillWait)
	r.require(needs <= d.Total, fmt.Sprintf("with clean_up.enabled two watches of flat %v, grace %v and the steps behind them need %v of total %v",
		s.Flat, c.Grace, needs, d.Total), "clean_up.grace", "clean_up.enabled", "deadlines.epilog.total")
}

func (r *reader) checkThresholds(t *Thresholds) {
	r.require(t.Report >= mib, "must be at least 1MiB", "thresholds.report")
	r.require(t.Report <= t.Drain, fmt.Sprintf("report %v is more than drain %v", t.Report, t.Drain),
		"thresholds.report", "thresholds.drain")
	r.require(t.PerClient <= 1<<30, "must be at most 1GiB", "thresholds.per_client")
}

func (r *reader) checkProbe(p *Probe) {
	const most = 1 << 40 // more than a card has would switch the finding off unseen
	r.require(p.Gap >= 4*mib && p.Gap <= most, "must be from 4MiB to 1024GiB: healthy cards were measured to have gaps of up to 3MiB", "probe.gap")
	r.within(p.MaxAge, time.Minute, 720*time.Hour, "probe.max_age")
	for _, name := range slices.Sorted(maps.Keys(p.Partitions)) {
		r.checked(checkName(name), "probe.partitions."+clip(name))
	}
}

// checkPolicy refuses to let Bookend's own faults drain one by one, since on_unknown says that in one place, and to
// let a hook drain over a card that its job was not given, or over one that nothing was found against.
func (r *reader) checkPolicy(key string, prolog, epilog map[code.Code]Action) {
	reasons := map[code.Scope]string{
		code.Own:       "a fault of Bookend itself drains only by on_unknown: drain",
		code.Elsewhere: "is about a card that is not the hook's job's, and never drains",
	}
	for _, phase := range []struct {
		key     string
		actions map[code.Code]Action
	}{{key + ".prolog", prolog}, {key + ".epilog", epilog}} {
		for _, c := range slices.Sorted(maps.Keys(phase.actions)) {
			entry, _ := code.Lookup(c)
			reason := reasons[entry.Scope]
			if entry.Scope == code.Card && entry.Severity == code.Note {
				reason = "says nothing against the card, and never drains"
			}
			r.require(reason == "" || phase.actions[c] != Drain, reason, phase.key+"."+string(c))
		}
	}
}

func checkPath(p string) error {
	if !path.IsAbs(p) || path.Clean(p) != p || p == "/" || !plain(p) {
		return fmt.Errorf("%q is not an absolute path below / in its shortest form", clip(p))
	}
	return nil
}

// checkLibrary accepts an absolute path, or nothing for the loader's own folders, which are root's. A bare name
// would go past the check of who may write the file.
func checkLibrary(name string) error {
	if name == "" {
		return nil
	}
	return checkPath(name)
}

func checkName(s string) error {
	if s == "" || len(s) > 128 || !plain(s) || strings.Contains(s, " ") {
		return fmt.Errorf("%q is not a name of 1 to 128 printable characters", clip(s))
	}
	return nil
}

func plain(s string) bool {
	return !strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c > '~' })
}
