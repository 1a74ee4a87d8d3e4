package judge

import (
	"fmt"
	"slices"
	"time"

	"bookend/internal/attribution"
	"bookend/internal/catalog"
	"bookend/internal/condition"
	"bookend/internal/diagnosis"
	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/slurm"
)

// condition returns what driver and kernel log report about the job's GPUs, even if the driver is stuck or lost one.
func (c Case) condition() []record.Finding {
	in := condition.Input{
		Cards: c.Seen.Cards, Unseen: c.notFound(), Now: c.Seen.Health, Blind: len(c.Seen.Health) == 0,
		Kernel: c.sinceJobBegan(), KernelDoubt: c.reloaded(),
	}
	if c.InJob {
		in.Doubt = insideDoubt
	}
	if c.Node != nil && condition.Compares(c.Seen.Health) {
		now := attribution.Now{At: max(c.At, c.Seen.Side.Snapshot.At), Epoch: c.Seen.Epoch,
			Unread: c.Node.Doubt(c.Job.ID, "")}
		in.Before = attribution.LastHealth(c.Node.Runs, c.Self(), now)
	}
	return condition.Judge(in)
}

// Subjects returns the job's GPUs, and those of its start that are missing now and have findings.
func (c Case) Subjects(j Judgement) []record.Assigned {
	gone := slices.DeleteFunc(c.notFound(), func(card record.Assigned) bool {
		on := func(f record.Finding) bool { return f.GPU != "" && f.GPU == card.Device.ID }
		return !slices.ContainsFunc(j.Found, on)
	})
	return slices.Concat(c.Seen.Cards, gone)
}

// notFound returns the job's GPUs, by the record of its start, that this hook did not find among the driver's.
func (c Case) notFound() (cards []record.Assigned) {
	if c.Phase != slurm.Epilog {
		return nil
	}
	for _, d := range c.Past.Run.Devices {
		found := slices.ContainsFunc(c.Seen.Cards, func(card record.Assigned) bool {
			if card.Device.ID == "" || d.Device.ID == "" {
				return card.Device.BusID == d.Device.BusID
			}
			return card.Device.ID == d.Device.ID
		})
		if !found {
			cards = append(cards, d)
		}
	}
	return cards
}

// Mark returns the position in the kernel log at which a job began, nil if it is unknown.
func Mark(run record.Run, job slurm.Job) *gpu.KernelMark {
	start := run.Start
	if start == nil || start.Kernel == nil || start.Kernel.Unknown != "" || run.Closed() && !run.Sure(job) {
		return nil
	}
	return &start.Kernel.Last
}

// sinceJobBegan returns the kernel log since the job's start, nil if unknown. A mark holds for one boot.
func (c Case) sinceJobBegan() *gpu.KernelLog {
	run, log := c.Past.Run, c.Seen.Kernel
	if Mark(run, c.Job) == nil || log == nil || run.Epoch.Boot == "" || run.Epoch.Boot != log.Epoch.Boot {
		return nil
	}
	return log
}

// reloaded says why an Xid may not describe the GPU as it is now, empty if the driver was not reloaded since the start.
func (c Case) reloaded() string {
	if c.Seen.Kernel == nil || c.Past.Run.Epoch.Same(c.Seen.Kernel.Epoch) {
		return ""
	}
	return "the driver was reloaded since the job began, or no one can tell: that may have cured the GPU"
}

// JobOutput is what the job's outputs say about memory.
type JobOutput struct {
	Messages []record.Message
	Outputs  []record.Output // Message.File is an index into these
	Unknown  string          // why they were not read
	Part     string          // which part was not read
	// Cancelled is set if Slurm's own line says that the job was cancelled or met its time limit.
	Cancelled bool
	// AddressSpace is the limit that a task hook of the job recorded; the user could forge it.
	AddressSpace gpu.Figure
}

// symptoms returns the input of a diagnosis, as far as this hook saw it. Why adds the rest.
func (c Case) symptoms(j Judgement) diagnosis.Input {
	h := c.Output
	in := diagnosis.Input{
		Job: c.Job, Cards: c.Seen.Cards, Start: c.Past.Before, End: &c.Seen.Side, Findings: j.Found,
		Probes: c.Probes(), Health: c.Seen.Health, Kernel: c.sinceJobBegan(),
		AddressSpace: h.AddressSpace,
		Messages:     h.Messages, MessagesUnknown: h.Unknown, MessagesPart: h.Part, Cancelled: h.Cancelled,
	}
	if c.Seen.Brief {
		in.HealthUnknown = "ECC counters, after a good end"
	}
	if start := c.Past.Run.Start; start != nil {
		in.StartFindings, in.WallStart = start.Findings, start.Wall
		if len(in.Probes) == 0 {
			in.Probes = start.Probes
		}
	}
	return in
}

// AsksWhy reports whether there is anything to diagnose: then the node's other records are needed.
func (c Case) AsksWhy(j Judgement) bool { return diagnosis.Why(c.symptoms(j)).Reason != "" }

// ComparesHealth reports whether the GPUs' condition says something only next to that at an earlier time.
func (c Case) ComparesHealth() bool { return condition.Compares(c.Seen.Health) }

// Why diagnoses why the job ran out of memory, with Slurm's files and the node's other records.
func (c Case) Why(j Judgement) *record.Diagnosis {
	in := c.symptoms(j)
	run := c.Past.Run
	var began time.Duration
	if run.Start != nil {
		began = run.Start.At
	}
	in.Shared, in.SharedUnknown = c.shared()
	diagnosis.Witness(&in, c.Past.Recording, run, began, c.At)
	d := diagnosis.Why(in)
	return &d
}

// gone is the doubt about what was seen only between a job's two ends: such a finding never drains.
const gone = "the recorder saw it while the job ran; this end does not"

// AsksRecorded reports processes recorded on GPUs that are not their job's: the node's records show if that is legal.
func (c Case) AsksRecorded() bool { return len(c.overlaps())+len(c.strangers())+len(c.elsewhere()) > 0 }

func (c Case) overlaps() (all []record.RecordedProcess) {
	if c.Past.Recording == nil || !c.Past.Turn.Leads() {
		return nil
	}
	for _, g := range c.Past.Recording.GPUs {
		for _, p := range g.Processes {
			if p.Owner.Found() && p.Owner.Conflict == "" && !c.Self().Owns(p.Owner) && p.Most >= c.limits().Report {
				all = append(all, p)
			}
		}
	}
	return all
}

// strangers returns recorded processes outside Slurm: in no job's cgroup, not the job's own, larger than a service.
// Root's may belong to anything, such as Bookend's own test; those from before the job are findings of its start.
func (c Case) strangers() (all []record.RecordedProcess) {
	if c.Past.Recording == nil || !c.Past.Turn.Leads() {
		return nil
	}
	for _, g := range c.Past.Recording.GPUs {
		for _, p := range g.Processes {
			ofJob := p.Owner.Found() || p.Owner.Conflict != "" || !p.Apart && c.Self().MayOwn(p)
			ofNode := p.UID == 0 && !p.Apart || p.Service != "" && p.Most <= record.MaxBaseline
			if !ofJob && !ofNode && !c.startSaw(p) && p.Most >= c.limits().Report {
				all = append(all, p)
			}
		}
	}
	return all
}

func (c Case) startSaw(p record.RecordedProcess) bool {
	start := c.Past.Run.Start
	return start != nil && slices.ContainsFunc(start.Processes, func(o record.Process) bool {
		return o.PID == p.PID && o.Start == p.Start
	})
}

// elsewhere returns recorded processes of this job on GPUs that it was not given.
func (c Case) elsewhere() (all []record.RecordedProcess) {
	if c.Past.Recording == nil || !c.Past.Turn.Leads() {
		return nil
	}
	for _, p := range c.Past.Recording.Elsewhere {
		if p.Owner.Conflict == "" && p.Most >= c.limits().Report {
			all = append(all, p)
		}
	}
	return all
}

// recorded returns findings for processes, this job's or on its GPUs, that were between its two ends on a GPU which
// their job was not given, if that is certain: no GPU is given out in parts, and no recorded run says that their job
// was given it. What an end sees is a finding of its own.
func (c Case) recorded(found []record.Finding) (more []record.Finding) {
	if c.Node == nil || c.Node.Unread != "" || c.Sharing == nil || c.Sharing.Shared != slurm.No {
		return nil
	}
	add := func(of catalog.Code, job slurm.JobID, p record.RecordedProcess, expected, observed string) {
		same := func(f record.Finding) bool { return f.Holder != nil && f.Holder.PID == p.PID && f.GPU == p.GPU }
		if slices.ContainsFunc(found, same) || slices.ContainsFunc(more, same) {
			return
		}
		f := record.Finding{
			Code: of, GPU: p.GPU, Bytes: gpu.Bytes(p.Most), Expected: expected, Doubts: []string{gone},
			Observed: fmt.Sprintf("process %d %s, for %v", p.PID, observed, (p.Last - p.First).Round(time.Second)),
			Holder:   &record.Holder{Process: p.Process(), Memory: gpu.Bytes(p.Most)},
			Owner:    &record.Owner{Job: job, SLUID: p.Owner.SLUID, UID: p.UID, Level: record.ByRecorder},
			Index:    c.indexOf(p.GPU),
		}
		if of == catalog.Stray {
			f.Unknown = c.perhapsOf(p)
		}
		more = append(more, f)
	}
	for _, p := range c.overlaps() {
		if job, known := c.jobOf(p); known && !c.hadToo(p) {
			add(catalog.Foreign, job, p, "no other job on this GPU",
				fmt.Sprintf("of job %d was on this GPU beside the job", job))
		}
	}
	for _, p := range c.strangers() {
		add(catalog.Stray, 0, p, "no process on this GPU but the job's", "of no job was on this GPU while the job ran")
	}
	for _, p := range c.elsewhere() {
		if !c.hadToo(p) {
			add(catalog.Trespass, c.Job.ID, p, "processes on none but their job's own GPUs",
				"of this job was on a GPU that it was not given")
		}
	}
	return more
}

// indexOf returns Slurm's index of a GPU by any record of the node, nil if none has it.
func (c Case) indexOf(id gpu.ID) *int {
	for _, run := range append([]record.Run{{Devices: c.Seen.Cards}}, c.Node.Runs...) {
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
func (c Case) perhapsOf(p record.RecordedProcess) string {
	if c.Self().MayOwn(p) {
		return "it began in a container while the job ran, and may be the job's own"
	}
	for _, r := range c.Node.Runs {
		if r.Name() != c.Past.Run.Name() && !r.Epoch.OtherBoot(c.Seen.Epoch) && r.MayOwn(p) {
			return fmt.Sprintf("it is in no job's cgroup, but may be of job %s, which ran when it began", r.JobName())
		}
	}
	if p.EnvJob != 0 {
		return fmt.Sprintf("it is in no job's cgroup, but its environment names job %d", p.EnvJob)
	}
	for _, d := range c.Node.damaged() { // also on a GPU that was seen clear since, and of an earlier run of this job
		return fmt.Sprintf("it is in no job's cgroup, but may be of job %d, whose record is damaged", d.Job)
	}
	return ""
}

// jobOf returns the job that a process belongs to, false without a record of it. The process's cgroup may name its job
// by SLUID alone; the record has the id.
func (c Case) jobOf(p record.RecordedProcess) (job slurm.JobID, known bool) {
	i := slices.IndexFunc(c.Node.Runs, func(r record.Run) bool { return r.Owns(p.Owner) })
	if i < 0 {
		return 0, false
	}
	return c.Node.Runs[i].Job.ID, true
}

// hadToo reports whether a process's job was given the GPU too, or may have been: suspended and gang-scheduled jobs
// share legally, and what an earlier run of the job id without a record was given is unknown.
func (c Case) hadToo(p record.RecordedProcess) bool {
	onRecord := false
	for _, r := range append(slices.Clone(c.Node.Runs), c.Self()) {
		if r.Owns(p.Owner) && r.Given(p.GPU) {
			return true
		}
		onRecord = onRecord || r.Owns(p.Owner) && r.BeganBefore(p)
	}
	return !onRecord
}
