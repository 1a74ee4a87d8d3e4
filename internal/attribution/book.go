package attribution

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"bookend/internal/gpu"
	"bookend/internal/record"
)

// Book has the node's records in the form that attribution needs.
type Book struct {
	Self   Allocation
	Others []Allocation
	Left   []record.Finding // the findings on record that may still be on a GPU, newest first
	// Ending are the processes that recorded ends saw ending, with the time of the first such end (CLOCK_BOOTTIME).
	Ending map[record.Instance]time.Duration
}

// Now is the moment for which a node's records are read.
type Now struct {
	At    time.Duration // CLOCK_BOOTTIME
	Epoch gpu.Epoch
	// Beginning is set at the run's start: it has no record yet, and did not overlap with what ended before now.
	Beginning bool
	Idle      uint64            // the number of bytes below which a GPU without processes counts as idle
	Proofs    []record.Sighting // what the recordings of runs that have not ended prove
	// Unread is why there may be more runs than those on record; empty if there are no others.
	Unread string
}

// Open reads every record of the node, apart from self, which may be among them; a health check has no run as self.
func Open(runs []record.Run, self record.Run, now Now) Book {
	b := Book{Left: leftovers(runs, now), Ending: ending(runs, now)}
	ofRun := self.Job.ID != 0
	if ofRun {
		b.Self = AllocationOf(self)
	}
	b.Self.Seen = slices.Concat(b.Self.Seen, now.Proofs)
	if self.Epilog() == nil { // its hook runs now, which refutes an end that a health check presumed
		b.Self.End, b.Self.Unseen = 0, false
	}
	if now.Beginning {
		b.Self.Start = now.At
	}
	ofBoot := slices.DeleteFunc(slices.Clone(runs), func(r record.Run) bool { return r.Epoch.OtherBoot(now.Epoch) })
	// not on record yet at a start
	ofBoot = append(ofBoot, record.Run{Job: self.Job, Start: &record.End{At: b.Self.Start}})
	for _, r := range runs {
		if r.SameAs(self) || !now.counts(r) {
			continue
		}
		other := AllocationOf(r)
		if by := r.Superseded(ofBoot); by != nil {
			other.End = by.First().At
		}
		if r.Job.ID == self.Job.ID && other.Live() {
			// Slurm runs one job id only once at a time on a node: that run is over, whatever its record says
			other.End = now.At
		}
		b.Others = append(b.Others, other)
	}
	all := b.Others
	if ofRun {
		all = append([]Allocation{b.Self}, b.Others...)
		b.Self.Alone = alone(b.Self, b.Others)
	}
	for i := range b.Others {
		b.Others[i].Alone = alone(b.Others[i], all)
	}
	return b
}

// counts reports whether a run bears on this moment. A run of this boot does until its end is seen, as its job may be
// live; after that, unless the driver has been reloaded since. Without a boot id only a run from before now can.
func (n Now) counts(r record.Run) bool {
	if (r.Epoch.Boot == "" || n.Epoch.Boot == "") && r.First().At > n.At {
		return false
	}
	epoch := r.EpochOf(r.Last())
	ended := r.Closed() && r.Last().Unseen == ""
	otherBoot := r.Epoch.OtherBoot(n.Epoch) || epoch.OtherBoot(n.Epoch)
	return !otherBoot && !(ended && epoch.Changed(n.Epoch))
}

// leftovers returns the findings on record since a sample last found the GPU idle, newest first.
func leftovers(runs []record.Run, now Now) []record.Finding {
	var left []record.Finding
	idle := map[gpu.ID]bool{}
	for _, e := range endsOf(runs, now.Epoch) {
		for _, r := range e.Snapshot.Readings {
			if len(r.Processes) == 0 && r.ProcessesUnknown == "" && r.Memory.Used.Known() &&
				r.Memory.Used.Bytes < now.Idle {
				idle[r.Device.ID] = true
			}
		}
		for _, f := range e.Leftovers() {
			if !idle[f.GPU] {
				left = append(left, f)
			}
		}
	}
	return left
}

// ending returns the processes that ends of this boot saw ending. One still seen later is stuck in the kernel.
func ending(runs []record.Run, now Now) map[record.Instance]time.Duration {
	all := map[record.Instance]time.Duration{}
	for _, r := range runs {
		if r.Epoch.Boot == "" || r.Epoch.Boot != now.Epoch.Boot {
			continue
		}
		for _, e := range r.AllEnds() {
			for _, p := range e.Processes {
				i := record.Instance{PID: p.PID, Start: p.Start}
				if first, seen := all[i]; p.State == "X" && (!seen || e.At < first) {
					all[i] = e.At
				}
			}
		}
	}
	return all
}

// endsOf returns the starts and ends that are known to be of an epoch, newest first.
func endsOf(runs []record.Run, epoch gpu.Epoch) []*record.End {
	var ends []*record.End
	for _, r := range runs {
		for _, e := range r.AllEnds() {
			if r.EpochOf(*e).Same(epoch) {
				ends = append(ends, e)
			}
		}
	}
	slices.SortFunc(ends, func(a, b *record.End) int { return cmp.Compare(b.At, a.At) })
	return ends
}

func AllocationOf(r record.Run) Allocation {
	rec := Allocation{Job: r.Job.ID, SLUID: r.Job.SLUID, Het: r.Job.HetJobID, UID: r.Job.UID}
	rec.Unplaced = r.Unplaced() // what the numbers of the others mean is not known
	rec.Perhaps = r.Numbering.Perhaps
	for _, d := range r.Devices {
		rec.GPUs = append(rec.GPUs, d.Device.ID)
	}
	if r.Start != nil {
		rec.Start = r.Start.At
		rec.Seen = sightings(rec.Seen, *r.Start)
	}
	seen := r.Epilog() != nil
	for _, e := range r.Ends {
		if rec.End == 0 && (!seen || e.Unseen == "") {
			rec.End, rec.Unseen = e.At, e.Presumed
		}
		rec.Seen = append(sightings(rec.Seen, e), e.Recording.Proofs()...)
	}
	return rec
}

func sightings(seen []record.Sighting, e record.End) []record.Sighting {
	for _, p := range e.Processes {
		if p.Cgroup.ID != 0 || p.Cgroup.SLUID != "" {
			seen = append(seen, record.Sighting{PID: p.PID, Start: p.Start, Owner: p.Cgroup})
		}
	}
	return seen
}

// alone reports whether no other run was given any of r's GPUs while r ran.
func alone(r Allocation, others []Allocation) bool {
	if r.Start == 0 || len(r.GPUs) == 0 || slices.Contains(r.GPUs, "") {
		return false // without its start or its GPUs, its overlaps are not known
	}
	for _, o := range others {
		if o.Job == r.Job && o.Start == r.Start {
			continue
		}
		if overlap(r, o) && slices.ContainsFunc(r.GPUs, o.MayHold) {
			return false
		}
	}
	return true
}

// SameUser returns the other jobs of the run's user that were on the node after since, as far as is on record.
func (b Book) SameUser(since time.Duration) (jobs []string) {
	self := b.Self
	self.Start = since
	for _, o := range b.Others {
		if o.UID == self.UID && o.Job != self.Job && overlap(self, o) {
			jobs = append(jobs, fmt.Sprint(o.Job))
		}
	}
	return jobs
}

func overlap(a, b Allocation) bool {
	const forever = time.Duration(1<<63 - 1)
	endOf := func(r Allocation) time.Duration {
		if r.Live() || r.Unseen { // a presumed end does not prove that another job was alone
			return forever
		}
		return r.End
	}
	return a.Start < endOf(b) && b.Start < endOf(a)
}

// Node is what is known of a node, for judging runs whose end was not seen.
type Node struct {
	Epoch  gpu.Epoch
	GPUs   []gpu.ID // all that Slurm allocates
	Shared []string // partitions that give one GPU to several jobs
	// Exclusive reports whether it is certain that no GPU is allocated in parts. It is called only if it matters.
	Exclusive func() bool
}

// Unfinished is an open run that is over: its epilog never came.
type Unfinished struct {
	record.Run
	Why      string
	Presumed bool          // likely, and not proven
	Over     time.Duration // since when it is over, CLOCK_BOOTTIME of the run's own boot
}

// Unended returns the open runs that are over: of an earlier boot, of a job id that began again, or whose GPU was given
// to a later job, which got it clean and has ended. Slurm is not asked. This blames no job.
func Unended(runs []record.Run, n Node) (over []Unfinished) {
	ofBoot := slices.DeleteFunc(slices.Clone(runs), func(r record.Run) bool { return r.Epoch.OtherBoot(n.Epoch) })
	for _, r := range runs {
		if r.Closed() {
			continue
		}
		by := r.Superseded(ofBoot)
		switch {
		case r.Epoch.OtherBoot(n.Epoch):
			over = append(over, Unfinished{Run: r, Why: "the node has booted since", Over: r.First().At})
		case by != nil:
			over = append(over, Unfinished{Run: r, Why: "its job began again", Over: by.First().At})
		default:
			if by, why := n.follower(r, runs); by != nil && n.Exclusive() {
				over = append(over, Unfinished{Run: r, Why: why, Presumed: true, Over: by.Start.At})
			}
		}
	}
	return over
}

// follower returns a job that was given a GPU of a run later, and why this means that the run is over. If the run's
// GPUs are not known, later jobs must have been given all GPUs of the node, and the last of them is returned.
func (n Node) follower(r record.Run, runs []record.Run) (last *record.Run, why string) {
	if r.Start == nil || n.mayShare(r) {
		return nil, ""
	}
	for _, d := range r.Devices {
		if o := n.heir(r, d.Device.ID, runs); o != nil {
			return o, fmt.Sprintf("job %d was given its GPU", o.Job.ID)
		}
	}
	if !r.Unplaced() {
		return nil, ""
	}
	for _, id := range n.GPUs {
		o := n.heir(r, id, runs)
		if o == nil {
			return nil, ""
		}
		if last == nil || o.BeganAfter(*last) {
			last = o
		}
	}
	return last, "later jobs were given every GPU of the node"
}

// heir returns a job of this boot that was given a GPU after a run began, alone and clean, and whose end was seen.
// Slurm gives a GPU that a job has, suspended or not, to no other job unless sharing is allowed.
func (n Node) heir(r record.Run, id gpu.ID, runs []record.Run) *record.Run {
	for i, o := range runs {
		later := o.Job.ID != r.Job.ID && o.Start != nil && o.Start.At > r.Start.At && !o.Epoch.OtherBoot(r.Epoch)
		ofBoot := o.Epoch.Boot != "" && o.Epoch.Boot == n.Epoch.Boot
		if later && ofBoot && o.Epilog() != nil && !n.mayShare(o) && gotClean(o, id) {
			return &runs[i]
		}
	}
	return nil
}

func (n Node) mayShare(r record.Run) bool {
	return r.Job.MPSPercent != "" || slices.Contains(n.Shared, r.Job.Partition)
}

func gotClean(r record.Run, id gpu.ID) bool {
	reading, seen := r.Start.Snapshot.Reading(id)
	return r.Had(id) && seen && r.Start.Curves[id].State == record.Clean &&
		reading.ProcessesUnknown == "" && len(reading.Processes) == 0
}

// unread names another run that may have had a GPU since a sample, or why there may be more; empty if there is none.
func (n Now) unread(runs []record.Run, self record.Run, id gpu.ID, since time.Duration) string {
	for _, r := range runs {
		over := r.Closed() && r.Last().At <= since || r.First().At > n.At
		if !r.SameAs(self) && n.counts(r) && r.Given(id) && !over {
			return fmt.Sprintf("job %d may have met them: it had this GPU since, and its end did not read them",
				r.Job.ID)
		}
	}
	return n.Unread
}

// LastHealth returns the newest recorded value of each fact of a GPU's condition in an epoch: in another, counters
// start at 0 again. A fact is unknown if another run than self may have had the GPU since. The search ends at a record
// that was cut before its condition was kept: what is older may not be the newest.
func LastHealth(runs []record.Run, self record.Run, now Now) map[gpu.ID]gpu.Health {
	last := map[gpu.ID]gpu.Health{}
	for _, e := range endsOf(runs, now.Epoch) { // newest first
		for _, h := range e.Health {
			kept := last[h.Device]
			older := slices.DeleteFunc(slices.Clone(h.Facts), func(f gpu.Fact) bool {
				_, newer := kept.Fact(f.Code)
				return newer
			})
			if len(older) > 0 {
				unread := now.unread(runs, self, h.Device, e.At)
				for _, f := range older {
					f.Unknown = cmp.Or(f.Unknown, unread)
					kept.Facts = append(kept.Facts, f)
				}
			}
			kept.Device = h.Device
			last[h.Device] = kept
		}
		if e.Rest[record.Everything] > 0 && len(e.Health) == 0 {
			break
		}
	}
	return last
}
