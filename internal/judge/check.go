package judge

import (
	"cmp"
	"slices"
	"time"

	"bookend/internal/attribution"
	"bookend/internal/catalog"
	"bookend/internal/compare"
	"bookend/internal/condition"
	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/settle"
	"bookend/internal/slurm"
)

// Check is the case of a health check. It has two targets: all GPUs of the node, read in one sample (the case's own),
// and those of them that no job has and that are not clean, which are watched.
type Check struct {
	Case
	Last    *record.Check // the check before, nil if there is none that counts
	Residue *Residue      // nil if nothing was to be watched
	Reply   *Reply        // nil if the site has no check of its own
}

// Reply is the answer of the site's own check.
type Reply = condition.Reply

// Residue is what was seen on the GPUs that no job has, with the records as they were read after those samples.
type Residue struct {
	Cards []record.Assigned
	Side  record.Side
	Node  Node
}

// Latest returns the node's records as they were last read.
func (c Check) Latest() Node {
	if c.Residue != nil {
		return c.Residue.Node
	}
	return *c.Node
}

// Unclean returns the GPUs to watch: Slurm gives them out, no job on record has them, and a sample showed something.
func (c Check) Unclean() []record.Assigned {
	if c.blind() {
		return nil
	}
	return slices.DeleteFunc(c.free(c.Given(), c.Seen.Side, *c.Node), c.isClean)
}

// free returns the GPUs that no live job was given, or may have been, at the time of a sample.
func (c Check) free(cards []record.Assigned, side record.Side, node Node) []record.Assigned {
	return slices.DeleteFunc(slices.Clone(cards), c.taken(side.Snapshot.At, node))
}

// blind reports whether records cannot be compared: there was no sample, or the driver's epoch is unknown.
func (c Check) blind() bool { return c.Seen.Side.Snapshot.At == 0 || !c.Seen.Epoch.Same(c.Seen.Epoch) }

// Given returns the GPUs that Slurm may give out: what is on another is no job's leftover and does not concern Slurm.
func (c Check) Given() []record.Assigned {
	return slices.DeleteFunc(slices.Clone(c.Seen.Cards), func(card record.Assigned) bool {
		gives, listed := c.Seen.Given[card.Device.BusID]
		return listed && !gives
	})
}

// Unended returns the runs whose epilog never came. exclusive reports whether it is certain that no GPU is allocated in
// parts; it is called only if it matters.
func (c Check) Unended(exclusive func() bool) []attribution.Unfinished {
	return attribution.Unended(c.Latest().Runs, attribution.Node{
		Epoch: c.Seen.Epoch, GPUs: record.IDs(c.Given()), Shared: c.Config.Slurm.SharedPartitions, Exclusive: exclusive,
	})
}

func (c Check) book(at time.Duration, node Node) attribution.Book {
	return node.open(record.Run{}, attribution.Now{
		At: at, Epoch: c.Seen.Epoch, Idle: c.limits().Report, Proofs: node.Proofs,
	})
}

// taken returns a test for GPUs that a live job of any node on the host was given, or may have been.
func (c Check) taken(at time.Duration, node Node) func(record.Assigned) bool {
	records := c.book(at, node).Others
	for _, other := range node.SameHost {
		records = append(records, c.book(at, other).Others...)
	}
	return func(card record.Assigned) bool {
		return slices.ContainsFunc(records, func(r attribution.Allocation) bool { return r.Keeps(card.Device.ID) })
	}
}

// isClean reports whether the one sample of all GPUs showed only what is expected on this one: that needs no second.
func (c Check) isClean(card record.Assigned) bool {
	rule := c.Order(nil, config.SettleTimes{}).Rule
	return settle.JudgeDevice(rule, card.Device, []gpu.Snapshot{c.Seen.Side.Snapshot}).State == record.Clean
}

// hasNoProcess reports whether a GPU's memory cannot be judged and the one sample of all GPUs lists no process on it.
func (c Check) hasNoProcess(card record.Assigned) bool {
	r, read := c.Seen.Side.Snapshot.Reading(card.Device.ID)
	return read && r.Memory.Unjudged != "" && r.ProcessesUnknown == "" && len(r.Processes) == 0
}

// Clear returns the GPUs on which the one sample showed neither memory nor a process beyond what is always there.
func (c Check) Clear() (ids []gpu.ID) {
	for _, card := range c.Seen.Cards {
		if c.isClean(card) || c.hasNoProcess(card) {
			ids = append(ids, card.Device.ID)
		}
	}
	return ids
}

func (c Check) ByReply() []record.Finding { return condition.External(c.Reply, c.Last) }

// JudgeCheck returns what is wrong on the GPUs: jobs on GPUs not given to them, leftovers, and the GPUs' condition.
func JudgeCheck(c Check) Judgement {
	found := slices.Concat(c.Faults, c.ByReply())
	switch {
	case c.Seen.Side.Snapshot.At == 0:
		return c.decide(found)
	case c.blind():
		const why = "the driver tells too little of itself to know which records are of its present life"
		found = append(slices.Concat(found, c.faultsOf(c.Given())), record.Unsure(catalog.Untraced, why))
	default:
		trespasses, taken := c.trespasses(), c.taken(c.Seen.Side.Snapshot.At, *c.Node)
		// Busy GPUs are not watched.
		busy := slices.DeleteFunc(c.Given(), func(card record.Assigned) bool { return !taken(card) })
		found = slices.Concat(found, trespasses, c.faultsOf(busy), c.residue(trespasses))
	}
	found = slices.Concat(found, c.condition())
	for i, f := range found {
		if f.Index != nil && *f.Index < 0 { // an index that is not certain is left out
			found[i].Index = nil
		}
	}
	return c.decide(found)
}

// trespasses returns the processes of live jobs on GPUs that they were not given, but for partitions that share GPUs.
func (c Check) trespasses() (all []record.Finding) {
	for _, f := range c.sceneOf(c.Seen.Cards, c.Seen.Side, *c.Node).Trespasses() {
		o := f.Owner
		byRight := o != nil && slices.ContainsFunc(c.Latest().Runs, func(r record.Run) bool {
			return r.Owns(o.Slurm()) && !r.Closed() &&
				slices.Contains(c.Config.Slurm.SharedPartitions, r.Job.Partition)
		})
		if !byRight {
			f.Unknown = cmp.Or(f.Unknown, c.Node.Doubt(0, f.GPU))
			all = append(all, f)
		}
	}
	return all
}

func (c Check) sceneOf(cards []record.Assigned, now record.Side, node Node) compare.Input {
	return compare.Input{
		Job: slurm.Job{Context: slurm.HealthCheck, Node: c.Job.Node}, Cards: cards, Now: now, Limits: c.limits(),
		Baselines: c.Past.Baselines, Book: c.book(now.Snapshot.At, node),
		Clients: compare.Clients(node.Runs, c.Seen.Epoch.Driver),
		Unread:  node.doubts(0, c.Seen.Cards),
	}
}

// faultsOf returns the driver's faults of GPUs that are not sampled again: with one sample none is certain.
func (c Check) faultsOf(cards []record.Assigned) (found []record.Finding) {
	for _, fault := range c.Seen.Side.Snapshot.Faults {
		i := slices.IndexFunc(cards, func(card record.Assigned) bool { return fault.Concerns(card.Device) })
		if i < 0 {
			continue
		}
		f := record.FromFault(fault)
		f.Doubts = []string{"seen in one look only"}
		f.GPU, f.Index = cards[i].Device.ID, &cards[i].Index
		found = append(found, f)
	}
	return found
}

// Free returns the GPUs that were watched and that no job has been given meanwhile.
func (c Check) Free() []record.Assigned {
	return c.free(c.Residue.Cards, c.Residue.Side, c.Residue.Node)
}

// residue returns the findings on the watched GPUs, without jobs' processes that are already trespasses.
func (c Check) residue(trespasses []record.Finding) []record.Finding {
	r := c.Residue
	if r == nil {
		return nil
	}
	found := slices.DeleteFunc(compare.Compare(c.sceneOf(c.Free(), r.Side, r.Node)), func(f record.Finding) bool {
		same := func(t record.Finding) bool {
			return t.GPU == f.GPU && t.Holder.PID == f.Holder.PID && t.Holder.Start == f.Holder.Start
		}
		return f.Code == catalog.Foreign && f.Holder != nil && slices.ContainsFunc(trespasses, same)
	})
	return append(found, untraced(r.Side)...)
}

func (c Check) condition() []record.Finding {
	in := condition.Input{Cards: c.Given(), Now: c.Seen.Health, Standing: standingOf(c.Case)}
	now, last := c.Seen.Kernel, c.Last
	if now != nil && now.Unknown == "" && last != nil && last.Kernel != nil && last.Boot != "" &&
		last.Boot == now.Epoch.Boot { // otherwise what happened since the last check is unknown
		log := *now
		log.Xids = slices.DeleteFunc(slices.Clone(now.Xids), condition.OnRecord(c.Past.Standing, c.Seen.Epoch))
		in.Kernel = &log
	}
	if condition.Compares(c.Seen.Health) {
		in.Before = attribution.LastHealth(c.Latest().Runs, record.Run{},
			attribution.Now{At: c.At, Epoch: c.Seen.Epoch})
		if last != nil && last.Epoch.Same(c.Seen.Epoch) { // the last check's value, if any, is the newest
			for _, h := range last.Health {
				in.Before[h.Device] = h
			}
		}
	}
	return condition.Judge(in)
}

// Leaked returns the bytes found on GPUs that no job has, and that no job without a readable record may have.
func (c Check) Leaked(j Judgement) map[gpu.ID]uint64 {
	all := map[gpu.ID]uint64{}
	for _, f := range j.Found {
		unread := c.Node != nil && c.Latest().Doubt(0, f.GPU) != ""
		if f.GPU != "" && f.Code.Traits().Memory.Stays() && !unread {
			all[f.GPU] += f.Bytes.Bytes
		}
	}
	return all
}

func (c Check) Unexplained() map[gpu.ID]uint64 {
	all := map[gpu.ID]uint64{}
	for _, card := range c.Seen.Cards {
		id := card.Device.ID
		r, ok := c.Seen.Side.Snapshot.Reading(id)
		rest := record.Unexplained(r, c.limits(), c.Past.Baselines[id])
		if ok && r.ProcessesUnknown == "" && rest.Known() {
			all[id] = rest.Bytes
		}
	}
	return all
}

// DrainSeen returns what this check saw of each GPU, for drains. A GPU is clean only if no job has it and one sample
// showed nothing on it; one that had to settle first is not. Its condition is judged separately.
func (c Check) DrainSeen(j Judgement) map[gpu.ID]record.GPUSeen {
	cards := map[gpu.ID]record.GPUSeen{}
	if c.Seen.Side.Snapshot.At == 0 {
		return cards
	}
	node, given := c.Latest(), c.Given()
	taken := c.taken(c.Seen.Side.Snapshot.At, node)
	for _, card := range c.Seen.Cards {
		seen := record.GPUSeen{Clean: true}
		against := slices.IndexFunc(j.Found, func(f record.Finding) bool {
			stands := f.Earlier && f.Unknown == "" && len(f.Doubts) == 0 // jobs must not get the GPU
			about := stands || f.Code.Traits().Memory != "" || f.Code == catalog.Trespass || f.Code == catalog.Moving
			return f.GPU == card.Device.ID && about
		})
		switch {
		case j.Action == config.Drain: // and does not resume it for another reason
			seen = record.GPUSeen{Why: "this health check drains the node"}
		case taken(card):
			seen = record.GPUSeen{Why: "a job still has it"}
		case against >= 0:
			seen = record.GPUSeen{Dirty: true, Why: string(j.Found[against].Code)}
		case node.Doubt(0, card.Device.ID) != "":
			seen = record.GPUSeen{Why: node.Doubt(0, card.Device.ID)}
		case c.hasNoProcess(card):
			seen.ByList = true
		case !c.isClean(card):
			seen = record.GPUSeen{Why: "it could not be read, or has just come to rest"}
		}
		seen.Given = slices.ContainsFunc(given, func(g record.Assigned) bool { return g.Device.ID == card.Device.ID })
		cards[card.Device.ID] = seen
	}
	return cards
}

// Occupied returns why a health check must take the node for one with a job: there is one, or may be.
func Occupied(c Case) string {
	if c.Node == nil {
		return "the records of the node's jobs were not read"
	}
	for _, n := range append([]Node{*c.Node}, c.Node.SameHost...) {
		if slices.ContainsFunc(n.Runs, func(r record.Run) bool { return r.Running(n.Runs) }) {
			return "a job is on the node: its end decides"
		}
	}
	for _, card := range c.Seen.Cards {
		if why := c.Node.Doubt(0, card.Device.ID); why != "" {
			return why
		}
	}
	return ""
}
