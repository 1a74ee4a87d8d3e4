package stage

import (
	"slices"
	"time"

	"bookend/internal/attrib"
	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/health"
	"bookend/internal/ledger"
	"bookend/internal/settle"
	"bookend/internal/slurm"
)

// judge says what is wrong on the cards: jobs where they were not given, what lies where no job is, and the cards' own
// condition.
func (c *check) judge() {
	switch {
	case c.seen.At == 0:
		return
	case !c.epoch.Same(c.epoch):
		c.faultsOf(c.given())
		c.add(finding.Finding{Code: code.Untraced, Unknown: "the driver tells too little of itself to know which records are of its present life"})
	default:
		book := c.book(c.seen.At)
		c.trespasses(book)
		c.residue(book)
	}
	c.judgeNode()
}

// book is the ledger as of a look, of every run that is on record.
func (c *check) book(at time.Duration) ledger.Book {
	return ledger.Between(c.records(), ledger.Now{At: at, Epoch: c.epoch, Idle: uint64(c.cfg.Thresholds.Report), Sighted: c.sightings()})
}

// trespasses adds processes of live jobs on cards that their job was not given.
func (c *check) trespasses(book ledger.Book) {
	around := c.seen
	around.Readings = nil
	for _, card := range c.every {
		if r, ok := c.seen.Reading(card.Device.ID); ok {
			around.Readings = append(around.Readings, r)
		}
	}
	s := c.sceneOf(book, nil)
	s.Now = c.side
	s.Now.Neighbours = &around
	for _, f := range finding.Trespasses(s) {
		if c.sharesByRight(f.Owner) {
			continue
		}
		if i := slices.IndexFunc(c.every, func(card finding.Card) bool { return card.Device.ID == f.GPU }); i >= 0 {
			f.Index = &c.every[i].Index
		}
		c.addOn(f)
	}
}

// sharesByRight reports a job that may be on others' cards: its partition hands one card to several jobs.
func (c *check) sharesByRight(o *finding.Owner) bool {
	return o != nil && slices.ContainsFunc(c.records(), func(r ledger.Run) bool {
		same := r.Job.ID == o.Job && o.Job != 0 || r.Job.SLUID == o.SLUID && o.SLUID != ""
		return same && !r.Closed() && slices.Contains(c.cfg.Slurm.SharedPartitions, r.Job.Partition)
	})
}

func (c *check) sceneOf(book ledger.Book, cards []finding.Card) finding.Scene {
	return finding.Scene{
		Job: slurm.Job{Context: slurm.HealthCheck, Node: c.job.Node}, Cards: cards, Now: c.now, Limits: c.limits(), Baselines: c.baselines,
		Self: book.Self, Others: book.Others, Left: book.Left,
	}
}

// residue watches the cards that no job has and that are not clean, until they are at rest, and says what lies there.
func (c *check) residue(book ledger.Book) {
	idle := idle(c.given(), book)
	busy := slices.DeleteFunc(slices.Clone(c.given()), func(card finding.Card) bool { return slices.Contains(idle, card) })
	c.faultsOf(busy)
	c.cards = slices.DeleteFunc(idle, c.isClean)
	if len(c.cards) == 0 {
		return
	}
	c.devices = make([]ledger.Assigned, len(c.cards))
	c.neighbours = c.others()
	c.now = c.look()
	if c.store != nil {
		c.reread()
		book = c.book(c.now.Snapshot.At)
	}
	scene := c.sceneOf(book, nil)
	scene.Cards = slices.DeleteFunc(slices.Clone(c.cards), func(card finding.Card) bool { return given(card, book) })
	for _, f := range finding.Compare(scene) {
		if !c.told(f) {
			c.addOn(f)
			c.leftOver[f.GPU] += leaked(f)
		}
	}
	if scan := c.now.Scan; scan != nil && scan.Partial != "" {
		c.add(finding.Finding{Code: code.Untraced, Unknown: scan.Partial})
	}
}

// idle are the cards that no job on record has.
func idle(cards []finding.Card, book ledger.Book) (free []finding.Card) {
	for _, card := range cards {
		if !given(card, book) {
			free = append(free, card)
		}
	}
	return free
}

// given reports whether a live job was given a card, or may have been: of a run that does not know its cards nobody can tell.
func given(card finding.Card, book ledger.Book) bool {
	return slices.ContainsFunc(book.Others, func(r attrib.Record) bool { return r.Live() && r.MayHold(card.Device.ID) })
}

// isClean reports a card on which the one look at all cards saw nothing but what is expected there: that needs no second.
func (c *check) isClean(card finding.Card) bool {
	expect, _ := finding.Expectations(nil, c.baselines, c.limits())
	rule := gpu.WatchRule{SlackBytes: uint64(c.cfg.Thresholds.Report), Expect: expect}
	return settle.JudgeDevice(rule, card.Device, []gpu.Snapshot{c.seen}).State == settle.Clean
}

// others is the look at the cards that are not watched.
func (c *check) others() *gpu.Snapshot {
	others := c.seen
	others.Readings = slices.DeleteFunc(slices.Clone(c.seen.Readings), func(r gpu.Reading) bool {
		return slices.ContainsFunc(c.cards, func(card finding.Card) bool { return card.Device.ID == r.Device.ID })
	})
	return &others
}

// told reports a process of a job that stands among the trespasses already.
func (c *check) told(f finding.Finding) bool {
	return f.Code == code.Foreign && f.Holder != nil && slices.ContainsFunc(c.found, func(t finding.Finding) bool {
		return t.Code == code.Trespass && t.GPU == f.GPU && t.Holder != nil && t.Holder.PID == f.Holder.PID && t.Holder.Start == f.Holder.Start
	})
}

// leaked is the memory of a finding that no job's own processes hold.
func leaked(f finding.Finding) uint64 {
	if f.Code.Traits().Memory.Stays() {
		return f.Bytes.Bytes
	}
	return 0
}

// judgeNode adds what the driver and the kernel's log say against the cards since the last check.
func (c *check) judgeNode() {
	in := health.Input{Cards: c.given(), Now: c.health, Kernel: c.sinceLast(), Idle: map[gpu.ID]bool{}, Blind: len(c.health) == 0}
	for _, card := range c.every {
		in.Idle[card.Device.ID] = c.idle(card.Device.ID)
	}
	if health.Compares(c.health) {
		in.Before = ledger.LastHealth(c.records(), c.epoch)
		c.rememberHealth(in.Before)
	}
	for _, f := range health.Judge(in) {
		c.addOn(f)
	}
}

// rememberHealth adds the last check's look at the cards' condition: where it is there it is the newest.
func (c *check) rememberHealth(before map[gpu.ID]gpu.Health) {
	if c.last == nil || !c.last.Epoch.Same(c.epoch) {
		return
	}
	for _, h := range c.last.Health {
		before[h.Device] = h
	}
}
