package main

import (
	"cmp"
	"iter"
	"runtime/debug"
	"slices"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/judge"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/test/soak/world"
)

// hook is one run of a root hook: the hooks' own judgement, of what an observer of the world saw.
type hook struct {
	*pair
	judge.Case
	judge.Judgement
	job    *world.Job
	damage damage
	sleep  func(time.Duration) bool
	times  config.HookDeadline
	settle config.SettleTimes
	seen   moments
}

type moments struct {
	began     time.Duration
	watches   int
	first     time.Duration // the first look
	last      time.Duration // the last look
	around    time.Duration // a health check's look at all cards
	slowUntil time.Duration
}

// newHook begins one, that looks at so many cards.
func (p *pair) newHook(j *world.Job, told slurm.Job, cards int, marked bool) *hook {
	h := &hook{pair: p, job: j, seen: moments{began: p.node.Now}}
	h.Case = judge.Case{
		Phase: told.Context, Job: told, Config: p.cfg, InJob: p.node.Site.InJob, At: p.node.Now,
	}
	switch h.times, h.settle = p.cfg.Deadlines.Epilog, p.cfg.Settle.Epilog; h.Phase {
	case slurm.Prolog:
		h.times, h.settle = p.cfg.Deadlines.Prolog, p.cfg.Settle.Prolog
	case slurm.HealthCheck:
		h.times = p.cfg.Deadlines.HealthCheck.Hook()
	}
	if p.damaged && p.rand.IntN(5) < 2 {
		h.damage = drawDamage(p.rand, cards, marked)
		if h.damage.kind == noDriver && h.Phase != slurm.Prolog {
			h.damage.kind = unread
		}
	}
	return h
}

// start runs a hook beside whatever else happens; it sleeps by handing the time back to the world.
func (p *pair) start(j *world.Job, end slurm.Context, done func()) {
	h := p.newHook(j, j.Told(p.node.Site, end), len(j.Cards), p.node.Site.Disorder)
	if p.rand.IntN(10) == 0 {
		h.seen.slowUntil = p.node.Now + 600*time.Millisecond
	}
	h.runs(h.do, done)
}

// runs lets a hook do its work beside whatever else happens.
func (h *hook) runs(do, done func()) {
	next, _ := iter.Pull(func(yield func(time.Duration) bool) {
		h.sleep = yield
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

func (h *hook) between(a, b time.Duration) time.Duration {
	return a + time.Duration(h.rand.Int64N(int64(b-a)+1))
}

// left is the time for a step: its cap, or what the deadline leaves for it.
func (h *hook) left(limit time.Duration) time.Duration {
	reserve := time.Duration(h.times.Outputs) + time.Duration(h.times.Append)
	return max(0, min(limit, h.seen.began+time.Duration(h.times.Total)-h.node.Now-reserve))
}

// do is one end of a job, step by step as package hook takes it.
func (h *hook) do() {
	h.sleep(h.between(time.Millisecond, 20*time.Millisecond))
	h.book.boot(h.node.Epoch)
	if n := len(h.book.runs); n > 0 && h.damage.kind == forgotten {
		h.book.lose(h.rand.IntN(n))
	} else if n > 0 && h.damage.kind == damagedRecord {
		h.book.damage(h.rand.IntN(n))
	}
	if h.Phase == slurm.Epilog {
		h.recall()
	}
	h.remember()
	h.look(h.cardsOf())
	h.condition(judge.Mark(h.Past.Run, h.Job))
	if h.Asks() || h.AsksRecorded() { // the records, where something asks for them
		h.Node, h.Sharing = h.nodeNow(), sharingOf(h.node.Site)
	}
	if h.Phase == slurm.Prolog {
		for _, b := range judge.Learn(h.Case) {
			h.book.baselines[b.GPU] = b
		}
	}
	h.Judgement = judge.Judge(h.Case)
	h.record()
	h.keep()
	h.judge()
}

// cardsOf are the job's cards as Slurm numbers them.
func (h *hook) cardsOf() (cards []record.Assigned) {
	for _, c := range h.job.Cards {
		cards = append(cards, record.Assigned{Index: *c.Device.Minor, Device: c.Device})
	}
	return cards
}

func (h *hook) recall() {
	run := record.Match(h.book.runs, h.Job)
	h.Past.Run = run
	h.Past.Recording = h.recorder.kept.About(run)
	switch {
	case run.Key == "":
		h.Faults = append(h.Faults, record.Finding{Code: catalog.NoRecord, Observed: "no record"})
	case run.Epilog() != nil:
		h.Past.Turn = judge.Repeated
		h.Faults = append(h.Faults, record.Finding{Code: catalog.Again, Observed: "a second epilog"})
	}
}

// remember is what counts of the past in this epoch.
func (h *hook) remember() {
	h.Seen.Epoch, h.Past.Standing = h.node.Epoch, h.standing
	if h.damage.kind == noDriver {
		h.Seen.Epoch = gpu.Epoch{Boot: h.node.Epoch.Boot}
	}
	h.Past.Baselines = judge.BaselinesOf(h.book.baselines, h.node.Epoch)
	before, found := judge.StartOf(h.Past.Run, h.Job, h.node.Epoch)
	h.Past.Before = before
	h.Faults = append(h.Faults, found...)
}

// cut reports that the record of the start had no room for all.
func (h *hook) cut() bool { return h.Past.Run.Start != nil && h.Past.Run.Start.Rest != nil }

func (h *hook) look(cards []record.Assigned) {
	if h.damage.kind == noDriver {
		h.Faults = append(h.Faults, record.FromFault(gpu.Fault{Code: gpu.FaultNoDriver, Detail: "not loaded"}))
		h.Seen.Cards = cards[:h.rand.IntN(len(cards)+1)] // files may name all of them, some, or none
		return
	}
	h.Seen.Side, h.Seen.Cards = judge.Observe(h, h.Order(cards, h.settle))
}

func (h *hook) nodeNow() *judge.Node {
	node := &judge.Node{Runs: h.book.runs, Damaged: h.book.damaged}
	for _, r := range h.recorder.kept {
		node.Proofs = append(node.Proofs, r.Proofs()...)
	}
	if h.damage.kind == unread {
		node.Unread = "records could not be read"
		node.Runs = slices.DeleteFunc(slices.Clone(node.Runs), func(record.Run) bool { return h.rand.IntN(2) == 0 })
	}
	return node
}

func sharingOf(s world.Site) *slurm.Sharing {
	answer, known := map[world.Sharing]slurm.Sharing{
		world.SharedByName: {Shared: slurm.Yes, Why: "its partition is configured as shared"},
		world.SharedByMPS:  {Shared: slurm.Yes, Why: "the job shares it through MPS"},
		world.SharedShards: {Shared: slurm.Yes, Why: "it is given out in shards"},
		world.MaybeShards:  {Shared: slurm.Unknown, Why: "gres.conf cannot be read"},
	}[s.Sharing]
	if !known {
		answer.Shared = slurm.No
	}
	return &answer
}

func (h *hook) record() {
	e := h.Case.EndRecord(h.Judgement)
	e.Wall = h.node.Wall()
	if e.At == 0 {
		e.At = h.node.Boottime(h.node.Now)
	}
	slices.SortFunc(e.Processes, func(a, b record.Process) int { return cmp.Compare(a.PID, b.PID) })
	if h.damage.kind == unwritten {
		return
	}
	run := h.Self()
	if h.Phase == slurm.Prolog {
		run.Start = &e
		h.book.begin(run)
		h.pair.record(run)
		return
	}
	run.Devices = run.DevicesWith(h.Seen.Cards)
	if run.Epoch == (gpu.Epoch{}) {
		run.Epoch = h.node.Epoch
	}
	h.book.close(run, e)
	if h.Past.Run.Start == nil || h.Past.Turn == judge.Repeated {
		h.book.settle(run.Job.ID)
	}
}
