package main

import (
	"cmp"
	"iter"
	"runtime/debug"
	"slices"
	"time"

	"bookend/internal/attrib"
	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/ledger"
	"bookend/internal/look"
	"bookend/internal/policy"
	"bookend/internal/slurm"
	"bookend/test/soak/world"
)

// hook is one run of a root hook: the real judgement, with eyes on the world. It follows package stage step by step.
type hook struct {
	*pair
	job    *world.Job
	end    world.Side
	told   slurm.Job
	damage damage
	yield  func(time.Duration) bool
	began  time.Duration
	times  config.HookDeadline
	settle config.SettleTimes

	again      bool // this end is on record already
	cut        bool // the record of the start had no room for all
	cards      []finding.Card
	baselines  map[gpu.ID]finding.Baseline
	before     *finding.Side
	now        finding.Side
	neighbours *gpu.Snapshot
	found      []finding.Finding
	verdict    policy.Verdict

	watches int
	// watchedFrom is the world's time of the first look.
	watchedFrom time.Duration
	sawAt       time.Duration // the world's time of the last look
	aroundAt    time.Duration // and of the look at the other cards
	slowUntil   time.Duration
}

// start runs a hook beside whatever else happens; it sleeps by handing the time back to the world.
func (p *pair) start(j *world.Job, end world.Side, done func()) {
	h := &hook{pair: p, job: j, end: end, began: p.node.Now, told: j.Told(p.node.Site, end)}
	h.times, h.settle = p.cfg.Deadlines.Prolog, p.cfg.Settle.Prolog
	if end == world.Epilog {
		h.times, h.settle = p.cfg.Deadlines.Epilog, p.cfg.Settle.Epilog
	}
	if p.damaged && p.rand.IntN(5) < 2 {
		h.damage = drawDamage(p.rand, len(j.Cards), p.node.Site.Disorder)
	}
	if p.rand.IntN(10) == 0 {
		h.slowUntil = p.node.Now + 600*time.Millisecond
	}
	h.runs(h.do, done)
}

// runs lets a hook do its work beside whatever else happens.
func (h *hook) runs(do, done func()) {
	next, _ := iter.Pull(func(yield func(time.Duration) bool) {
		h.yield = yield
		defer func() { // the coroutine's own stack is gone once its panic has reached the world
			if v := recover(); v != nil {
				h.report("%s", debug.Stack())
				panic(v)
			}
		}()
		do()
	})
	var resume func()
	resume = func() {
		if d, more := next(); more {
			h.node.After(d, resume)
			return
		}
		done()
	}
	resume()
}

func (h *hook) sleep(d time.Duration) { h.yield(d) }

func (h *hook) between(a, b time.Duration) time.Duration {
	return a + time.Duration(h.rand.Int64N(int64(b-a)+1))
}

// left is the time for a step: its cap, or what the deadline leaves for it.
func (h *hook) left(limit time.Duration) time.Duration {
	reserve := time.Duration(h.times.Outputs) + time.Duration(h.times.Append)
	return max(0, min(limit, h.began+time.Duration(h.times.Total)-h.node.Now-reserve))
}

func (h *hook) do() {
	h.sleep(h.between(time.Millisecond, 20*time.Millisecond))
	if h.damage.kind == forgotten && len(h.book.runs) > 0 {
		h.book.lose(h.rand.IntN(len(h.book.runs)))
	}
	var run ledger.Run
	if h.end == world.Epilog {
		run = h.recall()
	}
	for _, c := range h.job.Cards {
		h.cards = append(h.cards, finding.Card{Index: *c.Device.Minor, Device: c.Device})
	}
	h.recallBaselines()
	if h.end == world.Epilog {
		h.before = h.startOf(run)
	}
	h.cut = run.Start != nil && run.Start.Rest != nil
	h.look()
	self := run
	if h.end == world.Prolog {
		self = ledger.Run{Epoch: h.node.Epoch, Devices: h.devices()}
	}
	self.Job = h.told
	scene := h.scene(self)
	h.found = append(h.found, append(finding.Compare(scene), finding.Trespasses(scene)...)...)
	if h.end == world.Prolog {
		h.learn(scene)
	}
	phase := h.told.Context
	h.verdict = policy.Compile(h.cfg, phase, h.told.Partition).Decide(h.found, h.told.Restarts)
	h.record(self)
	h.judge()
}

func (h *hook) devices() []ledger.Assigned {
	var all []ledger.Assigned
	for _, c := range h.cards {
		all = append(all, ledger.Assigned{Index: c.Index, Device: c.Device})
	}
	return all
}

func (h *hook) recall() ledger.Run {
	h.book.boot(h.node.Epoch)
	run, which := ledger.Match(h.book.runs, h.told)
	switch which {
	case ledger.NoRun:
		h.found = append(h.found, finding.Finding{Code: code.NoRecord, Observed: "no record"})
	case ledger.ClosedRun:
		h.again = true
		h.found = append(h.found, finding.Finding{Code: code.Again, Observed: "a second epilog"})
	}
	return run
}

// startOf is the start's view, void in another epoch.
func (h *hook) startOf(run ledger.Run) *finding.Side {
	if run.Closed() && !run.Sure(h.told) || run.Start == nil || run.Epoch == (gpu.Epoch{}) || !run.Epoch.Same(h.node.Epoch) {
		return nil
	}
	e := run.Start
	s := &finding.Side{Snapshot: e.Snapshot, Curves: e.Curves, Processes: make(map[int]attrib.Process, len(e.Processes)), Scan: e.Scan, Neighbours: e.Neighbours}
	for _, p := range e.Processes {
		s.Processes[p.PID] = p
	}
	return s
}

func (h *hook) recallBaselines() {
	h.baselines = map[gpu.ID]finding.Baseline{}
	for id, b := range h.book.baselines {
		if b.Epoch.Same(h.node.Epoch) {
			h.baselines[id] = b
		}
	}
}

func (h *hook) look() {
	expect, known := finding.Expectations(h.before, h.baselines, h.limits)
	order := look.Order{Cards: h.cards, Known: known, Limits: h.limits, Baselines: h.baselines, Sure: h.end == world.Epilog, Rule: gpu.WatchRule{
		Max: time.Duration(h.settle.Max), Flat: time.Duration(h.settle.Flat),
		SlackBytes: uint64(h.cfg.Thresholds.Report), Expect: expect,
	}}
	h.now, h.cards = look.Take(h, order)
}

func (h *hook) scene(self ledger.Run) finding.Scene {
	s := finding.Scene{Job: h.told, Cards: h.cards, Before: h.before, Now: h.now, Limits: h.limits, Baselines: h.baselines}
	if h.node.Site.InJob {
		s.Doubt = "this hook runs inside the job and sees only part of the node"
	}
	if h.now.AtRest(h.cards) && !h.neighbourListed() {
		return s
	}
	b := ledger.Open(h.book.runs, self, ledger.Now{
		At: h.now.Snapshot.At, Epoch: h.node.Epoch, Beginning: h.end == world.Prolog, Idle: uint64(h.cfg.Thresholds.Report),
		Sighted: h.book.sighted,
	})
	s.Self, s.Others, s.Left = b.Self, b.Others, b.Left
	if h.mistakable(self) {
		s.RunDoubt = "Slurm does not say which run of the job this end is for"
	}
	switch h.node.Site.Sharing {
	case world.SharedByName:
		s.Shared = "its partition is configured as shared"
	case world.SharedByMPS:
		s.Shared = "the job shares it through MPS"
	case world.SharedShards:
		s.Shared = "it is given out in shards"
	case world.MaybeShards:
		s.SharedUnknown = "gres.conf cannot be read"
	}
	return s
}

// mistakable is what package stage asks of the records before an end is judged.
func (h *hook) mistakable(self ledger.Run) bool {
	const twice = 5 * time.Minute
	return h.end == world.Epilog && self.Mistakable(h.book.runs, h.told, h.now.Snapshot.At, twice)
}

func (h *hook) neighbourListed() bool {
	return h.now.Neighbours != nil && slices.ContainsFunc(h.now.Neighbours.Readings, func(r gpu.Reading) bool { return len(r.Processes) > 0 })
}

func (h *hook) learn(s finding.Scene) {
	if s.Shared != "" || s.Doubt != "" {
		return
	}
	for _, c := range s.Cards {
		if b, news := s.Learn(c, h.node.Epoch); news {
			h.book.baselines[b.GPU] = b
		}
	}
}

// record puts this end on record.
func (h *hook) record(run ledger.Run) {
	e := ledger.End{
		At: h.now.Snapshot.At, Wall: time.Unix(1_700_000_000, 0).Add(h.node.Now), Snapshot: h.now.Snapshot, Curves: h.now.Curves,
		Scan: h.now.Scan, Neighbours: h.now.Neighbours, Findings: h.found, Verdict: h.verdict,
	}
	if e.At == 0 {
		e.At = h.node.Boottime(h.node.Now)
	}
	for _, p := range h.now.Processes {
		e.Processes = append(e.Processes, p)
	}
	slices.SortFunc(e.Processes, func(a, b attrib.Process) int { return cmp.Compare(a.PID, b.PID) })
	if h.damage.kind == unwritten {
		return
	}
	if h.end == world.Prolog {
		run.Start = &e
		h.book.begin(run)
		return
	}
	run.Devices = h.devices()
	if run.Epoch == (gpu.Epoch{}) {
		run.Epoch = h.node.Epoch
	}
	h.book.close(run, e)
}
