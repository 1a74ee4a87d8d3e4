// Package diagnosis answers why a job ran out of GPU memory: each cause is yes, no or "cannot tell", with evidence.
package diagnosis

import (
	"cmp"
	"slices"
	"time"

	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/slurm"
)

// Input is everything that a diagnosis uses. Unknown values are empty, with the reason in a field if there is one.
type Input struct {
	Job           slurm.Job
	Cards         []record.Assigned
	Start, End    *record.Side // Start and End are the job's two ends, nil for an end without samples
	StartFindings []record.Finding
	Findings      []record.Finding // at the end
	// Disputed reports whether a program may have caused what a finding is about; nil if that is never so.
	Disputed        func(record.Finding) bool
	Probes          []gpu.Probe // of the end, or of the start if the end made none
	Health          []gpu.Health
	HealthUnknown   string         // which part was not read
	Kernel          *gpu.KernelLog // since the job's start
	Messages        []record.Message
	MessagesUnknown string // why the job's output was not searched
	// Cancelled reports Slurm's line about cancellation or the time limit in the output. The exit status may then be 0.
	Cancelled bool
	// MessagesPart describes output that was not searched although some was; empty if there is none.
	MessagesPart string
	Seen         []Sighting
	// Recorded is what the recorder measured on the job's GPUs. Its amounts are lower bounds, since nothing is known
	// between samples. Whole means that it missed no interval of the run.
	Recorded      []record.GPURecording
	Idle          []gpu.ID      // GPUs on which no sample found any process
	Every         time.Duration // time between two samples
	Whole         bool
	Shared        string // why others may legitimately use these GPUs
	SharedUnknown string
	// AddressSpace is the job's limit in bytes, read by its task hook and forgeable by the user; Unlimited if none.
	AddressSpace gpu.Figure
	WallStart    time.Time // the job's start as wall time; zero if unknown
}

// Sighting is a process that the recorder saw on one of the job's GPUs.
type Sighting struct {
	At      time.Duration // CLOCK_BOOTTIME
	Device  gpu.ID
	PID     int
	Bytes   gpu.Figure
	Own     bool // proven to belong to this job
	Foreign bool // proven not to belong to it: in another job's cgroup, or of another user and in no job's cgroup
	Likely  bool // of neither, and of the job's user: on a node without cgroups the job's own processes are
}

// cause is one reason why memory can run out.
type cause struct {
	name     record.CauseName
	judge    func(evidence) record.Cause
	sentence string // in a headline
}

// causes are in the order in which they are reported. Only a share of a GPU is by design.
var causes = []cause{
	{record.CauseOthers, others, "another process held memory of your GPU"},
	{record.CauseLeftover, leftover, "an earlier job left GPU memory in use"},
	{record.CauseUnlisted, unlisted, "GPU memory was in use without a process"},
	{record.CausePieces, pieces, "free GPU memory is fragmented"},
	{record.CausePool, pool, "fragmentation inside your framework's pool"},
	{record.CauseFault, fault, "GPU or driver had a fault"},
	{record.CauseOwn, own, "your job needed more than the GPU has"},
	{record.CauseProcesses, processes, "several processes of your job share one GPU"},
	{record.CauseLimits, limits, "a limit of your job, not the GPU"},
	{record.CauseShare, share, "your job had only a share of the GPU"},
}

// rank orders causes by how much each explains: the first that is yes comes first in the headline.
var rank = []record.CauseName{
	record.CauseLimits, record.CauseLeftover, record.CauseOthers, record.CauseUnlisted, record.CausePool,
	record.CauseProcesses, record.CauseOwn, record.CausePieces, record.CauseFault, record.CauseShare,
}

// ofNode are the causes that a job may escape on another node.
var ofNode = []record.CauseName{
	record.CauseOthers, record.CauseLeftover, record.CauseUnlisted, record.CausePieces, record.CauseFault,
}

// Why judges every cause. Yes means that it applied and was enough to matter; figures in the job's messages decide.
func Why(in Input) record.Diagnosis {
	e := gather(in)
	var d record.Diagnosis
	for _, of := range causes {
		c := of.judge(e)
		c.Name = of.name
		d.Causes = append(d.Causes, withdrawn(e, elsewhere(e, c)))
	}
	shared := &d.Causes[len(d.Causes)-1]
	if first := explaining(e, d); shared.Answer == record.Yes && first[0] != shared.Name {
		shared.With = first[0] // a share is by design: it never explains a failure by itself
	}
	d.Reason = reason(e, d)
	if d.Reason != "" {
		d.Headline, d.Where, d.Try, d.Reported = headline(e, d), where(e), try(e, d), reported(e)
		d.InOrder = inOrder(e)
	}
	return d
}

// elsewhere withdraws answers that are known for this node only if the job may have failed on another node.
func elsewhere(e evidence, c record.Cause) record.Cause {
	everywhere := []record.CauseName{record.CausePool, record.CauseOwn, record.CauseShare}
	if c.Answer == record.Yes {
		everywhere = append(everywhere, record.CauseFault, record.CauseLimits)
	}
	if e.spread && c.Answer != record.CannotTell && !slices.Contains(everywhere, c.Name) {
		if c.Answer == record.Yes {
			c.Evidence += unweighed
		}
		c.Answer, c.Evidence = record.CannotTell, c.Evidence+"; known of "+e.in.Job.Node+" alone"
	}
	return c
}

// explaining returns the causes that explain the failure, the one that explains most first: a fault that the job met,
// as anything may have followed from it.
func explaining(e evidence, d record.Diagnosis) []record.CauseName {
	all := slices.DeleteFunc(slices.Clone(rank), func(n record.CauseName) bool { return !d.Cause(n).Explains() })
	if at := slices.Index(all, record.CauseFault); e.metFault && at > 0 {
		all = slices.Insert(slices.Delete(all, at, at+1), 0, record.CauseFault)
	}
	return all
}

func answer(a record.Answer, evidence string) record.Cause {
	return record.Cause{Answer: a, Evidence: evidence}
}
func yes(evidence string) record.Cause        { return answer(record.Yes, evidence) }
func no(evidence string) record.Cause         { return answer(record.No, evidence) }
func cannotTell(evidence string) record.Cause { return answer(record.CannotTell, evidence) }

// rules is a decision as a table: the first row that holds has the answer, the zero value if none does.
type rules[T any] []struct {
	holds bool
	then  T
}

func (all rules[T]) first() (none T) {
	for _, rule := range all {
		if rule.holds {
			return rule.then
		}
	}
	return none
}

// on adds the GPU that the evidence is about, if it is certain.
func on(gpu *record.Assigned, c record.Cause) record.Cause {
	if gpu != nil {
		c.Index = &gpu.Index
	}
	return c
}

func worse(a, b record.Cause) record.Cause {
	if b.Answer.Outweighs(a.Answer) {
		return b
	}
	return a
}

// Witness adds what a recording shows of why a run's memory ran out.
func Witness(in *Input, r *record.Recording, self record.Run, from, to time.Duration) {
	if r == nil {
		return
	}
	in.Seen, in.Recorded, in.Every, in.Whole = sightingsOf(r, self), r.GPUs, r.Every, r.Whole(from, to)
	for _, g := range r.GPUs {
		if r.Idle(g, from, to) {
			in.Idle = append(in.Idle, g.ID)
		}
	}
}

func sightingsOf(r *record.Recording, self record.Run) (seen []Sighting) {
	ofJob := func(p record.RecordedProcess) bool { return self.Owns(p.Owner) }
	tracked := slices.ContainsFunc(r.GPUs, func(g record.GPURecording) bool {
		return slices.ContainsFunc(g.Processes, ofJob)
	})
	for _, g := range r.GPUs {
		for _, p := range g.Processes {
			for at, bytes := range p.Known() {
				own := self.Owns(p.Owner) && self.BeganBefore(p) // not an earlier run of the job id
				seen = append(seen, Sighting{At: at, Device: g.ID, PID: p.PID, Bytes: bytes, Own: own,
					Foreign: !own && foreign(p, self.Job),
					Likely:  !tracked && !p.Owner.Found() && !p.Apart && self.MayOwn(p)})
			}
		}
	}
	slices.SortFunc(seen, func(a, b Sighting) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Device, b.Device), cmp.Compare(a.PID, b.PID))
	})
	return seen
}

// foreign reports a process that surely is not the job's: of another job by cgroup, or of another user and in no job's
// cgroup. Root's may belong to any job, and in a container or a PID namespace a UID proves nothing.
func foreign(p record.RecordedProcess, job slurm.Job) bool {
	o := p.Owner
	another := o.ID != 0 && o.ID != job.ID || o.SLUID != "" && job.SLUID != "" && o.SLUID != job.SLUID
	return another || !o.Found() && !p.Apart && p.UID != 0 && p.UID != job.UID
}
