package diagnosis

import (
	"cmp"
	"slices"
	"time"

	"bookend/internal/record"
	"bookend/internal/slurm"
)

// marked marks a run's own process, and one that surely is not: of another job by cgroup, or of another user and in no
// job's cgroup. Root's may belong to any job, and in a container or a PID namespace a UID proves nothing.
func marked(r record.Run, d Sighting, o slurm.Owner, uid uint32, apart bool) Sighting {
	another := o.ID != 0 && o.ID != r.Job.ID || o.SLUID != "" && r.Job.SLUID != "" && o.SLUID != r.Job.SLUID
	d.Own = r.Owns(o)
	d.Foreign = !d.Own && (another || !o.Found() && !apart && uid != 0 && uid != r.Job.UID)
	return d
}

// sightingsOf returns the processes that samples saw on a run's GPUs, sorted, for diagnosis.
func sightingsOf(r *record.Recording, self record.Run) (seen []Sighting) {
	for _, g := range r.GPUs {
		for _, p := range g.Processes {
			for at, bytes := range p.Known() {
				d := Sighting{At: at, Device: g.ID, PID: p.PID, Bytes: bytes}
				seen = append(seen, marked(self, d, p.Owner, p.UID, p.Apart))
			}
		}
	}
	slices.SortFunc(seen, func(a, b Sighting) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Device, b.Device), cmp.Compare(a.PID, b.PID))
	})
	return seen
}

// Witness adds what a recording shows of why a run's memory ran out.
func Witness(in *Input, r *record.Recording, self record.Run, from, to time.Duration) {
	if r == nil {
		return
	}
	in.Seen, in.Every, in.Whole = sightingsOf(r, self), r.Every, r.Whole(from, to)
	for _, g := range r.GPUs {
		in.Recorded = append(in.Recorded, RecordedUse{
			Device: g.ID, Own: g.Own.Bytes, Unlisted: g.Unlisted.Bytes, Together: g.Together,
			Unused: r.Idle(g, from, to),
		})
	}
}
