package ledger

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/settle"
	"bookend/internal/slurm"
)

// Book is the node's ledger as attribution needs it.
type Book struct {
	Self   finding.Record
	Others []finding.Record
	// Left are the findings on record that may still be on a GPU, newest first.
	Left []finding.Finding
	// Ending are the processes that recorded ends saw ending, with the time of the first such end (CLOCK_BOOTTIME).
	Ending map[finding.Instance]time.Duration
}

// Now is the moment for which a ledger is read.
type Now struct {
	At    time.Duration // CLOCK_BOOTTIME
	Epoch gpu.Epoch
	// Beginning is set at the run's start: it has no record yet, and did not overlap with what ended before now.
	Beginning bool
	// Idle is the number of bytes below which a GPU without processes counts as idle.
	Idle uint64
	// Proofs are what the recordings of runs that have not ended prove.
	Proofs []finding.Sighting
	// Unread is why there may be more runs than those on record; empty if there are no others.
	Unread string
}

// Open reads every record of the node and sets self, which may be among them, apart. A health check has no run as self,
// only what the recorder saw.
func Open(runs []Run, self Run, now Now) Book {
	b := Book{Left: leftovers(runs, now), Ending: ending(runs, now)}
	ofRun := self.Job.ID != 0
	if ofRun {
		b.Self = record(self)
	}
	b.Self.Seen = slices.Concat(b.Self.Seen, now.Proofs)
	if self.Epilog() == nil { // its hook runs now, which refutes an end that a health check presumed
		b.Self.End, b.Self.Unseen = 0, false
	}
	if now.Beginning {
		b.Self.Start = now.At
	}
	ofBoot := slices.DeleteFunc(slices.Clone(runs), func(r Run) bool { return r.Epoch.OtherBoot(now.Epoch) })
	ofBoot = append(ofBoot, Run{Job: self.Job, Start: &End{At: b.Self.Start}}) // not on record yet at a start
	for _, r := range runs {
		if r.is(self) || !now.counts(r) {
			continue
		}
		other := record(r)
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
		all = append([]finding.Record{b.Self}, b.Others...)
		b.Self.Alone = alone(b.Self, b.Others)
	}
	for i := range b.Others {
		b.Others[i].Alone = alone(b.Others[i], all)
	}
	return b
}

// is reports whether two records are of one run. A run that is not on record yet has no key.
func (r Run) is(self Run) bool { return self.Key != "" && r.Key == self.Key && r.Job.ID == self.Job.ID }

// counts reports whether a run bears on this moment. A run of this boot does until its end is seen, as its job may be
// live; after that, unless the driver has been reloaded since. Without a boot id only a run from before now can.
func (n Now) counts(r Run) bool {
	if (r.Epoch.Boot == "" || n.Epoch.Boot == "") && r.First().At > n.At {
		return false
	}
	epoch := r.EpochOf(r.Last())
	ended := r.Closed() && r.Last().Unseen == ""
	otherBoot := r.Epoch.OtherBoot(n.Epoch) || epoch.OtherBoot(n.Epoch)
	return !otherBoot && !(ended && epoch.Changed(n.Epoch))
}

// leftovers returns the findings on record that may still be on a GPU, newest first. If a later sample found the GPU
// idle, earlier findings are dropped.
func leftovers(runs []Run, now Now) []finding.Finding {
	var left []finding.Finding
	idle := map[gpu.ID]bool{}
	for _, e := range endsOf(runs, now.Epoch) {
		for _, r := range e.Snapshot.Readings {
			if len(r.Processes) == 0 && r.ProcessesUnknown == "" && r.Memory.Used.Known() &&
				r.Memory.Used.Bytes < now.Idle {
				idle[r.Device.ID] = true
			}
		}
		for _, f := range e.Findings {
			if f.Code == code.Residue && e.Rest["candidates"]+e.Rest[everything] > 0 {
				f.Owner = nil // the attribution depends on all holders of the driver, and not all were kept
			}
			if !idle[f.GPU] && !f.Recorded() {
				left = append(left, f)
			}
		}
	}
	return left
}

// ending returns the processes that ends of this boot saw ending. One still seen later is stuck in the kernel.
func ending(runs []Run, now Now) map[finding.Instance]time.Duration {
	all := map[finding.Instance]time.Duration{}
	for _, r := range runs {
		if r.Epoch.Boot == "" || r.Epoch.Boot != now.Epoch.Boot {
			continue
		}
		for _, e := range r.Both() {
			for _, p := range e.Processes {
				i := finding.Instance{PID: p.PID, Start: p.Start}
				if first, seen := all[i]; p.State == "X" && (!seen || e.At < first) {
					all[i] = e.At
				}
			}
		}
	}
	return all
}

// endsOf returns the starts and ends that are known to be of an epoch, newest first.
func endsOf(runs []Run, epoch gpu.Epoch) []*End {
	var ends []*End
	for _, r := range runs {
		for _, e := range r.Both() {
			if r.EpochOf(*e).Same(epoch) {
				ends = append(ends, e)
			}
		}
	}
	slices.SortFunc(ends, func(a, b *End) int { return cmp.Compare(b.At, a.At) })
	return ends
}

func record(r Run) finding.Record {
	rec := finding.Record{Job: r.Job.ID, SLUID: r.Job.SLUID, Het: r.Job.HetJobID, UID: r.Job.UID}
	rec.Unplaced = len(r.Devices) < max(1, len(r.Job.GPUIndexes)) // what the numbers of the others mean is not known
	for _, d := range r.Devices {
		rec.GPUs = append(rec.GPUs, d.Device.ID)
		rec.Unplaced = rec.Unplaced || d.Device.ID == ""
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

// Given reports whether a run was given a GPU, or may have been.
func (r Run) Given(id gpu.ID) bool { return record(r).MayHold(id) }

func sightings(seen []finding.Sighting, e End) []finding.Sighting {
	for _, p := range e.Processes {
		if p.Cgroup.ID != 0 || p.Cgroup.SLUID != "" {
			seen = append(seen, finding.Sighting{PID: p.PID, Start: p.Start, Owner: p.Cgroup})
		}
	}
	return seen
}

// alone reports whether no other run was given any of r's GPUs while r ran.
func alone(r finding.Record, others []finding.Record) bool {
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

func overlap(a, b finding.Record) bool {
	const forever = time.Duration(1<<63 - 1)
	endOf := func(r finding.Record) time.Duration {
		if r.Live() || r.Unseen { // a presumed end does not prove that another job was alone
			return forever
		}
		return r.End
	}
	return a.Start < endOf(b) && b.Start < endOf(a)
}

// Which is the kind of run that Match found.
type Which string

// What a job's epilog may find.
const (
	OpenRun   Which = "open"   // its prolog's record
	ClosedRun Which = "closed" // a record that an epilog of this run has closed already
	NoRun     Which = "none"   // no prolog, or its record was lost
)

// Match picks, among the records of one job id, the run that an epilog is for: by SLUID, else by start time, if both
// have it; else the newest, the only one that can be running. A record of another user is another job's.
func Match(runs []Run, job slurm.Job) (Run, Which) {
	var best *Run
	for i := range runs {
		r := &runs[i]
		sure, other := compare(r.Job, job)
		if r.Job.ID != job.ID || r.Job.UID != job.UID || other {
			continue
		}
		// Prefer a sure match, then the run that began later: an older open one only lacks its epilog.
		if best == nil || sure && !best.Sure(job) || sure == best.Sure(job) && r.after(*best) {
			best = r
		}
	}
	switch {
	case best == nil:
		return Run{}, NoRun
	case best.Epilog() != nil: // a run that was settled without an epilog is still open to one
		return *best, ClosedRun
	}
	return *best, OpenRun
}

// compare reports whether two hooks' jobs of one id are surely the same run, or surely another; neither if they lack
// the data. Both hooks of a run have the same start time: Slurm sets it again when nodes have powered up, but before it
// starts a prolog (job_config_fini of slurmctld, 23.02 to 26.05).
func compare(a, b slurm.Job) (sure, other bool) {
	switch {
	case a.SLUID != "" && b.SLUID != "":
		sure = a.SLUID == b.SLUID
	case !a.Start.IsZero() && !b.Start.IsZero():
		sure = a.Start.Unix() == b.Start.Unix()
	default:
		return false, false
	}
	return sure, !sure
}

// Sure reports whether a record is of this very run, by its SLUID or start time, and not only of its job id.
func (r Run) Sure(job slurm.Job) bool {
	sure, _ := compare(r.Job, job)
	return sure && r.Job.ID == job.ID
}

// Mistakable reports whether an epilog may be for another run of the job id than r: Slurm does not tell them apart
// (slurm.TellsStart), and a run closed less than within before now may get a second epilog.
func (r Run) Mistakable(runs []Run, job slurm.Job, now, within time.Duration) bool {
	if r.Closed() || r.Sure(job) {
		return false
	}
	return slices.ContainsFunc(runs, func(o Run) bool {
		if o.Job.ID != job.ID || o.Job.UID != job.UID || !o.Closed() || o.Key == r.Key || o.Epoch.Boot != r.Epoch.Boot {
			return false
		}
		ended := o.Ends[len(o.Ends)-1].At
		return ended <= now && now-ended < within
	})
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
	Run
	Why      string
	Presumed bool          // likely, and not proven
	Over     time.Duration // since when it is over, CLOCK_BOOTTIME of the run's own boot
}

// Unended returns the open runs that are over: of an earlier boot, of a job id that began again, or whose GPU was given
// to a later job, which got it clean and has ended. Slurm is not asked. This blames no job.
func Unended(runs []Run, n Node) (over []Unfinished) {
	ofBoot := slices.DeleteFunc(slices.Clone(runs), func(r Run) bool { return r.Epoch.OtherBoot(n.Epoch) })
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
func (n Node) follower(r Run, runs []Run) (last *Run, why string) {
	if r.Start == nil || n.mayShare(r) {
		return nil, ""
	}
	for _, d := range r.Devices {
		if o := n.heir(r, d.Device.ID, runs); o != nil {
			return o, fmt.Sprintf("job %d was given its GPU", o.Job.ID)
		}
	}
	if !record(r).Unplaced {
		return nil, ""
	}
	for _, id := range n.GPUs {
		o := n.heir(r, id, runs)
		if o == nil {
			return nil, ""
		}
		if last == nil || o.after(*last) {
			last = o
		}
	}
	return last, "later jobs were given every GPU of the node"
}

// heir returns a job of this boot that was given a GPU after a run began, alone and clean, and whose end was seen.
// Slurm gives a GPU that a job has, suspended or not, to no other job unless sharing is allowed.
func (n Node) heir(r Run, id gpu.ID, runs []Run) *Run {
	for i, o := range runs {
		later := o.Job.ID != r.Job.ID && o.Start != nil && o.Start.At > r.Start.At && !o.Epoch.OtherBoot(r.Epoch)
		ofBoot := o.Epoch.Boot != "" && o.Epoch.Boot == n.Epoch.Boot
		if later && ofBoot && o.Epilog() != nil && !n.mayShare(o) && o.gotClean(id) {
			return &runs[i]
		}
	}
	return nil
}

func (n Node) mayShare(r Run) bool {
	return r.Job.MPSPercent != "" || slices.Contains(n.Shared, r.Job.Partition)
}

func (r Run) gotClean(id gpu.ID) bool {
	reading, seen := r.Start.Snapshot.Reading(id)
	return r.had(id) && seen && r.Start.Curves[id].State == settle.Clean &&
		reading.ProcessesUnknown == "" && len(reading.Processes) == 0
}
