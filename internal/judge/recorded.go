package judge

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/compare"
	"bookend/internal/condition"
	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/slurm"
)

// gone is the doubt about what was seen only between a job's two ends: such a finding never drains.
const gone = "the recorder saw it while the job ran; this end does not"

// intruder is a process that the recorder saw, between the job's two ends, on a GPU that may not be its job's.
type intruder struct {
	code               catalog.Code // Foreign, Stray or, for this job's own process, Trespass
	process            record.RecordedProcess
	expected, observed string // observed is of the process, its job, and for how long
}

// intrudersOf returns what the recorder saw of other jobs and of no job on this job's GPUs, and of this job on others.
func intrudersOf(c Case) (all []intruder) {
	if c.Past.Recording == nil || !c.Past.Turn.Leads() {
		return nil
	}
	add := func(code catalog.Code, p record.RecordedProcess, expected, observed string) {
		if p.Owner.Conflict == "" && p.Most >= c.limits().Report {
			all = append(all, intruder{code, p, expected, observed})
		}
	}
	self, site := c.Self(), c.Config.NVIDIA.MPSUIDs
	for _, g := range c.Past.Recording.GPUs {
		for _, p := range g.Processes {
			switch {
			case p.Owner.Found() && !self.Owns(p.Owner):
				add(catalog.Foreign, p, "no other job on this GPU",
					"process %[1]d of job %[2]d was on this GPU beside the job, for %[3]v")
			case !p.Owner.Found() && isStranger(self, p) && !compare.SiteMPS(p.Process(), p.Most, site):
				add(catalog.Stray, p, "no process on this GPU but the job's",
					"process %[1]d of no job was on this GPU while the job ran, for %[3]v")
			}
		}
	}
	for _, p := range c.Past.Recording.Elsewhere {
		add(catalog.Trespass, p, "processes on none but their job's own GPUs",
			"process %[1]d of this job was on a GPU that it was not given, for %[3]v")
	}
	slices.SortStableFunc(all, func(a, b intruder) int { return cmp.Compare(a.code, b.code) })
	return all
}

// isStranger reports whether a process in no job's cgroup is from outside Slurm: not the run's own, and larger than a
// service. Root's may belong to anything, such as Bookend's own test. The start's findings have those from before it.
func isStranger(self record.Run, p record.RecordedProcess) bool {
	ofJob := !p.Apart && self.MayOwn(p)
	ofNode := p.UID == 0 && !p.Apart || p.Service != "" && p.Most <= record.MaxBaseline
	return !ofJob && !ofNode && !slices.ContainsFunc(cmp.Or(self.Start, &record.End{}).Processes,
		func(o record.Process) bool { return o.PID == p.PID && o.Start == p.Start })
}

// AsksRecorded reports processes recorded on GPUs that are not their job's: the node's records show if that is legal.
func (c Case) AsksRecorded() bool { return len(intrudersOf(c)) > 0 }

// recorded returns findings for processes, this job's or on its GPUs, that were between its two ends on a GPU which
// their job was not given, if that is certain: no GPU is given out in parts, and no recorded run says that their job
// was given it. What an end sees is a finding of its own.
func (c Case) recorded(found []record.Finding) (more []record.Finding) {
	if c.Node == nil || c.Node.Unread != "" || c.Sharing == nil || c.Sharing.Shared != slurm.No {
		return nil
	}
	self := c.Self()
	for _, i := range intrudersOf(c) {
		p := i.process
		same := func(f record.Finding) bool { return f.Holder != nil && f.Holder.PID == p.PID && f.GPU == p.GPU }
		job, known := c.Node.jobWithout(self, p)
		if !known && i.code != catalog.Stray || slices.ContainsFunc(slices.Concat(found, more), same) {
			continue
		}
		f := record.Finding{
			Code: i.code, GPU: p.GPU, Index: c.Node.indexOf(c.Seen.Cards, p.GPU), Bytes: gpu.Bytes(p.Most),
			Observed: fmt.Sprintf(i.observed, p.PID, job, (p.Last - p.First).Round(time.Second)),
			Expected: i.expected, Doubts: []string{gone},
			Holder: &record.Holder{Process: p.Process(), Memory: gpu.Bytes(p.Most)},
			Owner:  &record.Owner{Job: job, SLUID: p.Owner.SLUID, UID: p.UID, Level: record.ByRecorder},
		}
		if i.code == catalog.Stray {
			f.Unknown = c.Node.perhapsOf(self, c.Seen.Epoch, p)
		}
		more = append(more, f)
	}
	return more
}

// jobWithout returns the job that a process belongs to, if that job was surely not given the GPU: a record of it has
// begun before the process, and none has the GPU. Suspended and gang-scheduled jobs share legally, and what an earlier
// run of the job id without a record was given is unknown. The process's cgroup may name its job by SLUID alone.
func (n Node) jobWithout(self record.Run, p record.RecordedProcess) (job slurm.JobID, known bool) {
	for _, r := range append(slices.Clone(n.Runs), self) {
		if !r.Owns(p.Owner) {
			continue
		}
		if r.Given(p.GPU) {
			return 0, false
		}
		job, known = cmp.Or(job, r.Job.ID), known || r.BeganBefore(p)
	}
	return job, known
}

// errorsOf returns the kernel log since the job's start with the errors that the recorder saw, nil if nothing is known.
// An error that is in both is one. A mark in the log holds for one boot.
func errorsOf(c Case) *gpu.KernelLog {
	log, run, boot := c.Seen.Kernel, c.Past.Run, c.Seen.Epoch.Boot
	if log != nil {
		boot = cmp.Or(log.Epoch.Boot, boot)
	}
	sameBoot := boot != "" && run.Epoch.Boot == boot
	if log != nil && (!sameBoot || log.Epoch.Boot != boot || Mark(run, c.Job) == nil) {
		log = nil
	}
	if c.Past.Recording == nil || !sameBoot {
		return log
	}
	return condition.WithRecorded(log, run, *c.Past.Recording)
}

// indexOf returns Slurm's index of a GPU, from the given GPUs or from any record of the node; nil if none has it.
func (n Node) indexOf(cards []record.Assigned, id gpu.ID) *int {
	for _, run := range append([]record.Run{{Devices: cards}}, n.Runs...) {
		for _, d := range run.Devices {
			if d.Device.ID == id && d.Index >= 0 {
				return &d.Index
			}
		}
	}
	return nil
}

// perhapsOf says which job a process in no job's cgroup may still belong to, empty for none: without cgroup tracking a
// job's processes carry no mark, and in a container a user has another UID.
func (n Node) perhapsOf(self record.Run, epoch gpu.Epoch, p record.RecordedProcess) string {
	if self.MayOwn(p) {
		return "it began in a container while the job ran, and may be the job's own"
	}
	for _, r := range n.Runs {
		if r.Name() != self.Name() && !r.Epoch.OtherBoot(epoch) && r.MayOwn(p) {
			return fmt.Sprintf("it is in no job's cgroup, but may be of job %s, which ran when it began", r.JobName())
		}
	}
	if p.EnvJob != 0 {
		return fmt.Sprintf("it is in no job's cgroup, but its environment names job %d", p.EnvJob)
	}
	for _, d := range n.damaged() { // also on a GPU that was seen clear since, and of an earlier run of this job
		return fmt.Sprintf("it is in no job's cgroup, but may be of job %d, whose record is damaged", d.Job)
	}
	return ""
}
