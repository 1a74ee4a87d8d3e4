package slurmconf

import (
	"maps"
	"slices"

	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/slurm"
)

// OfJob returns a job's GPUs, and where their numbers' meaning came from, with the GPUs that the job may have too. What
// the numbers meant at the start of the run on record they mean at its end, whatever the configuration says by then.
func OfJob(job slurm.Job, run record.Run, cards []gpu.Physical, own map[int]string, list List) (Result, record.Origin) {
	res := Devices(job, cards, own, list)
	if settled(run, job) && givesNumbers(job) {
		res = again(run.Devices, run.Numbering.Source, cards)
	}
	o := record.Origin{Source: res.Source, Why: res.Unknown, Perhaps: run.Numbering.Perhaps}
	if !settled(run, job) {
		o.Perhaps = list.Perhaps(res.Devices, Every(cards, own, list))
	}
	return res, o
}

// NeedsList reports whether the job's GPUs follow from the meaning of Slurm's numbers: it names no devices, and the
// run's start did not determine them.
func NeedsList(job slurm.Job, run record.Run) bool { return givesNumbers(job) && !settled(run, job) }

// settled reports whether the start of this run determined what its numbers mean. With another count it is a record of
// another run, or Slurm before 21.08.
func settled(r record.Run, job slurm.Job) bool {
	another := func(d record.Assigned) bool { return !slices.Contains(job.GPUIndexes, d.Index) }
	return r.Numbering.Source.Settled() && len(r.Devices) > 0 && (!r.Closed() || r.Sure(job)) &&
		len(job.GPUIndexes) == len(r.Devices) && !slices.ContainsFunc(r.Devices, another)
}

// Every returns the driver's GPUs with Slurm's numbers, as for a job that has all; -1 if not certain.
func Every(cards []gpu.Physical, own map[int]string, list List) (all []record.Assigned) {
	job := slurm.Job{GPUIndexes: slices.Sorted(maps.Keys(own))}
	for i := range list.GPUs {
		if len(own) == 0 {
			job.GPUIndexes = append(job.GPUIndexes, i)
		}
	}
	numbered := Devices(job, cards, own, list).Devices
	for _, c := range cards {
		if !c.Excluded {
			all = append(all, record.Assigned{Index: numberOf(c.Device, numbered), Device: c.Device})
		}
	}
	return all
}

// Renumber returns GPUs with Slurm's numbers by this answer, nil for none; as they are if that says nothing.
func (k *Kept) Renumber(all []record.Assigned, own map[int]string) []record.Assigned {
	var cards []gpu.Physical
	for _, a := range all {
		cards = append(cards, gpu.Physical{Device: a.Device})
	}
	switch {
	case len(own) > 0:
		return Every(cards, own, List{})
	case k != nil && k.List.Source.Settled():
		return Every(cards, nil, k.List)
	}
	return all
}

// numberOf returns Slurm's number of a GPU, -1 if that is not certain.
func numberOf(d gpu.Device, cards []record.Assigned) int {
	for _, c := range cards {
		if c.Device.ID == d.ID && d.ID != "" || c.Device.BusID == d.BusID && d.BusID != "" {
			return c.Index
		}
	}
	return -1
}

// WithReadings joins the driver's list with a sample of all GPUs: MIG instances, without numbers, replace their GPU.
func WithReadings(cards []record.Assigned, s gpu.Snapshot) (all []record.Assigned) {
	cut := map[gpu.ID]bool{}
	for _, r := range s.Readings {
		cut[r.Device.Parent] = r.Device.Parent != ""
	}
	unread := slices.Clone(cards)
	for _, r := range s.Readings {
		unread = slices.DeleteFunc(unread, func(c record.Assigned) bool { return c.Device.BusID == r.Device.BusID })
		if cut[r.Device.ID] {
			continue
		}
		card := record.Assigned{Index: -1, Device: r.Device}
		if r.Device.Parent == "" {
			card.Index = numberOf(r.Device, cards)
		}
		all = append(all, card)
	}
	return append(all, unread...)
}
