package ledger

import (
	"cmp"
	"slices"
	"time"

	"bookend/internal/attrib"
	"bookend/internal/diagnosis"
	"bookend/internal/gpu"
	"bookend/internal/slurm"
)

// Sighted is what the health checks of one epoch saw on the node's cards.
type Sighted struct {
	Epoch     gpu.Epoch `json:"epoch"`
	Looks     []Look    `json:"looks,omitempty"` // oldest first
	Processes []Seen    `json:"processes,omitempty"`
}

// Look is one health check's look at all cards.
type Look struct {
	At     time.Duration `json:"at_ns"`            // CLOCK_BOOTTIME
	Unread []gpu.ID      `json:"unread,omitempty"` // cards of which it does not know who is on them
}

// Seen is one process on one card, as health checks saw it.
type Seen struct {
	GPU   gpu.ID        `json:"gpu"`
	PID   int           `json:"pid"`
	Start time.Duration `json:"start_ns"` // CLOCK_BOOTTIME; with the PID it names the process
	UID   uint32        `json:"uid"`
	// Owner is the job whose cgroup it was seen in, once; a Conflict where that was two jobs'.
	Owner slurm.Owner `json:"owner,omitzero"`
	// Apart is set for one in a container or a PID namespace: its UID need not be its user's.
	Apart  bool          `json:"apart,omitempty"`
	First  time.Duration `json:"first_ns"` // CLOCK_BOOTTIME of the looks
	Last   time.Duration `json:"last_ns"`
	Bytes  gpu.Figure    `json:"bytes"` // at the last look
	Most   uint64        `json:"most,omitempty"`
	MostAt time.Duration `json:"most_at_ns,omitempty"` // when it had most; 0 where no look could tell
}

// Bounds of what is kept: at a check every five minutes a week has 2016 looks, of which the last 42 hours are kept.
const (
	maxLooks = 512
	maxSeen  = 512 // processes; of more the ones that were seen last
	keepSeen = 7 * 24 * time.Hour
)

// With adds a look, with what /proc said of the processes in it. Those that are gone or could not be read have no name
// that lasts, and are left out.
func (s Sighted) With(epoch gpu.Epoch, look gpu.Snapshot, known map[int]attrib.Process) Sighted {
	next := Sighted{Epoch: epoch}
	if s.Epoch.Same(epoch) {
		next.Looks, next.Processes = slices.Clone(s.Looks), slices.Clone(s.Processes)
	}
	at := Look{At: look.At}
	for _, f := range look.Faults {
		if f.Device != "" {
			at.Unread = append(at.Unread, f.Device)
		}
	}
	for _, r := range look.Readings {
		if r.ProcessesUnknown != "" {
			at.Unread = append(at.Unread, r.Device.ID)
		}
		for _, p := range r.Processes {
			if facts, read := known[p.PID]; read && facts.Why == "" && !facts.Gone {
				next.see(r.Device.ID, p, facts, look.At)
			}
		}
	}
	next.Looks = append(next.Looks, at)
	next.forget(look.At)
	return next
}

func (s *Sighted) see(id gpu.ID, p gpu.Process, facts attrib.Process, at time.Duration) {
	i := slices.IndexFunc(s.Processes,
		func(o Seen) bool { return o.GPU == id && o.PID == p.PID && o.Start == facts.Start })
	if i < 0 {
		i = len(s.Processes)
		s.Processes = append(s.Processes, Seen{GPU: id, PID: p.PID, Start: facts.Start, First: at})
	}
	s.Processes[i].see(p, facts, at)
}

func (seen *Seen) see(p gpu.Process, facts attrib.Process, at time.Duration) {
	seen.UID, seen.Last, seen.Bytes = facts.UID, at, p.Memory
	seen.Apart = seen.Apart || facts.Apart()
	seen.Owner = sameOwner(seen.Owner, facts.Cgroup)
	if p.Memory.Known() && (seen.MostAt == 0 || p.Memory.Bytes > seen.Most) {
		seen.Most, seen.MostAt = p.Memory.Bytes, at
	}
}

// sameOwner joins what two looks said of a process: one whose cgroup no longer names a job is still that job's.
func sameOwner(was, now slurm.Owner) slurm.Owner {
	now.Step, now.Daemon = "", false
	switch {
	case was.Conflict != "":
		return was
	case now.Conflict != "":
		return slurm.Owner{Conflict: now.Conflict}
	case !now.Found():
		return was
	case was.Found() && was != now:
		return slurm.Owner{Conflict: "its cgroup named two jobs, one after the other"}
	}
	return now
}

// forget keeps the file small: what was not seen for long goes, and of too much the oldest.
func (s *Sighted) forget(now time.Duration) {
	s.Processes = slices.DeleteFunc(s.Processes, func(p Seen) bool { return now-p.Last > keepSeen })
	slices.SortStableFunc(s.Processes, func(a, b Seen) int {
		return cmp.Or(cmp.Compare(b.Last, a.Last), cmp.Compare(b.Most, a.Most), cmp.Compare(a.GPU, b.GPU),
			cmp.Compare(a.PID, b.PID))
	})
	s.Processes = s.Processes[:min(len(s.Processes), maxSeen)]
	s.Looks = s.Looks[max(0, len(s.Looks)-maxLooks):]
}

// Bounded returns what is left when of looks and processes only the newest are kept: half of them, then an eighth.
func (s Sighted) Bounded(level int) Sighted {
	less := level * 3 / 2
	s.Looks = s.Looks[max(0, len(s.Looks)-maxLooks>>less):]
	s.Processes = s.Processes[:min(len(s.Processes), maxSeen>>less)]
	return s
}

// proofs are the processes that a cgroup proved to be a job's, for attribution.
func (s Sighted) proofs(epoch gpu.Epoch) (seen []attrib.Sighting) {
	if !s.Epoch.Same(epoch) {
		return nil
	}
	for _, p := range s.Processes {
		if p.Owner.Found() && p.Owner.Conflict == "" {
			seen = append(seen, attrib.Sighting{PID: p.PID, Start: p.Start, Owner: p.Owner})
		}
	}
	return seen
}

// During are the processes that health checks saw on a run's cards between two moments (CLOCK_BOOTTIME), oldest first.
func (s Sighted) During(self Run, from, to time.Duration) (seen []diagnosis.Sighting) {
	if !s.Epoch.Same(self.Epoch) {
		return nil
	}
	for _, p := range s.Processes {
		for at, bytes := range p.known() {
			if self.had(p.GPU) && at > from && at < to {
				d := diagnosis.Sighting{At: at, Device: p.GPU, PID: p.PID, Bytes: bytes, Owner: p.Owner}
				seen = append(seen, self.whose(d, p.UID, p.Apart))
			}
		}
	}
	return inOrder(seen)
}

func inOrder(seen []diagnosis.Sighting) []diagnosis.Sighting {
	slices.SortFunc(seen, func(a, b diagnosis.Sighting) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Device, b.Device), cmp.Compare(a.PID, b.PID))
	})
	return seen
}

func (r Run) had(id gpu.ID) bool {
	return slices.ContainsFunc(r.Devices, func(d Assigned) bool { return d.Device.ID == id && id != "" })
}

// whose tells a run's own process, and a stranger's: of another user than the job's and in no job's cgroup. Root's may
// be anybody's, and in a container or a PID namespace a UID says nothing.
func (r Run) whose(d diagnosis.Sighting, uid uint32, apart bool) diagnosis.Sighting {
	o := d.Owner
	d.Own = r.Owns(o)
	d.Stranger = !o.Found() && !apart && uid != 0 && uid != r.Job.UID
	return d
}

// Owns reports a cgroup of the run's job.
func (r Run) Owns(o slurm.Owner) bool { return r.Job.Owns(o) }

// probably reports a process in no job's cgroup that may well be the run's own: its user's, begun after the run, and
// its environment names no other job. Where Slurm tracks without cgroups there is no better evidence.
func (r Run) probably(p attrib.Process) bool {
	return !p.Cgroup.Found() && p.Cgroup.Conflict == "" && !p.Gone && !p.Apart() && !p.OfSystem() && p.UID != 0 && p.UID == r.Job.UID &&
		r.Start != nil && p.Start > r.Start.At && (p.EnvJobID == 0 || p.EnvJobID == r.Job.ID)
}

// known are the looks of which something is kept: when it was seen first and last, and when it had most.
func (p Seen) known() map[time.Duration]gpu.Figure {
	all := map[time.Duration]gpu.Figure{p.First: gpu.Unknown("how much it had then was not kept"), p.Last: p.Bytes}
	if p.MostAt > 0 {
		all[p.MostAt] = gpu.Bytes(p.Most)
	}
	return all
}

// LooksDuring counts the looks between two moments that told who was on every card of a run.
func (s Sighted) LooksDuring(self Run, from, to time.Duration) (n int) {
	if !s.Epoch.Same(self.Epoch) {
		return 0
	}
	for _, l := range s.Looks {
		if l.At > from && l.At < to && !slices.ContainsFunc(l.Unread, self.had) {
			n++
		}
	}
	return n
}

// LastHealth is the newest condition on record of each GPU of an epoch: counters of another start again at 0. Behind a
// record that was cut short before its condition was kept, the next older one is not the newest.
func LastHealth(runs []Run, epoch gpu.Epoch) map[gpu.ID]gpu.Health {
	last := map[gpu.ID]gpu.Health{}
	for _, e := range endsOf(runs, epoch) { // newest first
		for _, h := range e.Health {
			if _, newer := last[h.Device]; !newer && len(h.Facts) > 0 {
				last[h.Device] = h
			}
		}
		if e.Rest[everything] > 0 && len(e.Health) == 0 {
			break
		}
	}
	return last
}

// Sightings are the processes that hooks of other jobs saw on a run's cards between two moments (CLOCK_BOOTTIME),
// oldest first: a lower bound of what was there. A cgroup tells whose one was.
func Sightings(runs []Run, self Run, from, to time.Duration) (seen []diagnosis.Sighting) {
	for _, e := range endsOf(runs, self.Epoch) {
		at := e.Snapshot.At // the look itself: what else an end did may have taken seconds
		for _, r := range e.Snapshot.Readings {
			if at <= from || at >= to || !self.had(r.Device.ID) {
				continue
			}
			for _, p := range r.Processes {
				d := diagnosis.Sighting{At: at, Device: r.Device.ID, PID: p.PID, Bytes: p.Memory}
				uid, apart := uint32(0), false
				for _, known := range e.Processes {
					if known.PID == p.PID {
						d.Owner, uid, apart = known.Cgroup, known.UID, known.Apart() || known.Why != "" || known.Gone
					}
				}
				seen = append(seen, self.whose(d, uid, apart))
			}
		}
	}
	return inOrder(seen)
}
