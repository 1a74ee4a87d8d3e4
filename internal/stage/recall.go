package stage

import (
	"fmt"
	"slices"

	"bookend/internal/code"
	"bookend/internal/diagnosis"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/health"
	"bookend/internal/judge"
	"bookend/internal/ledger"
	"bookend/internal/operation"
	"bookend/internal/session"
	"bookend/internal/slurm"
	"bookend/internal/slurmconf"
)

// observe asks the driver for the job's GPUs, unless it is known to be stuck or must not be asked from here. Once the
// epoch is known, so is what counts of the past.
func (r *record) observe() {
	if !r.MayAsk() {
		return
	}
	defer r.Leave()
	if !r.Meet() {
		return
	}
	i := r.Inventory(r.Past.Run)
	before, found := judge.StartOf(r.Past.Run, r.Job, i.Epoch)
	r.Add(found...)
	r.Past.Before, r.Past.Baselines = before, r.baselines(i.Epoch)
	r.Seen = judge.Seen{Epoch: i.Epoch, Origin: i.Origin}
	r.Seen.Side, r.Seen.Cards = r.Look(i.Cards)
}

// baselines are what the node's GPUs carry without any job.
func (r *record) baselines(epoch gpu.Epoch) map[gpu.ID]finding.Baseline {
	if r.Store == nil {
		return nil
	}
	all, err := r.Store.Baselines()
	r.Try(err)
	return judge.BaselinesOf(all, epoch)
}

// consult reads the node's other records where something asks for them; on clean GPUs nothing does.
func (r *record) consult() {
	switch {
	case r.Asks():
		r.complete()
	case r.AsksCondition():
		r.Node = r.readNode()
	}
}

// complete reads what has not been read yet of the node's records, and of who may share its GPUs.
func (r *record) complete() {
	if r.Node == nil {
		r.Node = r.readNode()
	}
	if r.Sharing == nil {
		r.Sharing = r.askSharing()
	}
}

// readNode reads the records of all of the node's hooks.
func (r *record) readNode() *judge.Node {
	if r.Store == nil {
		return &judge.Node{}
	}
	seen, err := r.Store.Sighted()
	r.Try(err)
	return r.again(judge.Node{Sighted: seen})
}

// again reads the node's records as they are now: jobs may have begun, or ended, meanwhile.
func (r *record) again(n judge.Node) *judge.Node {
	if r.Store == nil {
		return &n
	}
	runs, damaged := r.Store.Runs()
	n.Runs = runs
	for _, damage := range damaged {
		if damage.Unread {
			n.Unread = "not all records of this node's jobs were read: another may have this GPU"
		}
		r.Add(finding.Saw(code.StateDamage, fmt.Sprintf("%s: %s", damage.Path, damage.Why), "a whole record"))
	}
	return &n
}

// askSharing says why others may use this job's GPUs legally, or why nobody can tell. Slurm's environment marks MPS
// alone: a job with a shard looks to its hooks like one with the whole GPU.
func (r *record) askSharing() *judge.Sharing {
	if slices.Contains(r.Config.Slurm.SharedPartitions, r.Job.Partition) {
		return &judge.Sharing{Why: "its partition is configured as shared"}
	}
	if r.Job.MPSPercent != "" {
		return &judge.Sharing{Why: "the job shares it through MPS"}
	}
	answer := r.nodeSharing()
	switch answer.Shared {
	case slurmconf.Yes:
		return &judge.Sharing{Why: answer.Why}
	case slurmconf.No:
		return &judge.Sharing{}
	}
	return &judge.Sharing{Unknown: answer.Why}
}

func (r *record) nodeSharing() slurmconf.Answer {
	limit := r.Left(operation.SharingTime, r.Reserve())
	return operation.NodeSharing(r.Config.Slurm, r.Getenv("SLURM_CONF"), r.Job.Node, limit)
}

// diagnose answers why the job ran out of memory. For an answer that somebody will read, Slurm's files and the node's
// other records are worth their time.
func (r *record) diagnose() {
	if r.Past.Again || r.Past.Second {
		return
	}
	in := r.Symptoms(r.Judgement, r.heard, r.Clock.Wall())
	if first := diagnosis.Why(in); first.Reason != "" || len(first.Peaks) > 0 {
		r.complete()
		r.why = r.Why(in)
	}
}

// test tests the job's GPUs by an allocation where that may be. What was found by the records as they were at the look
// stays found: as they are right before a test they only say whether there may be one.
func (r *record) test(sole bool) {
	if !health.WhenTested(r.Config.Probe.At, r.Phase) || len(r.Seen.Cards) == 0 {
		return
	}
	now, again := r.recheck()
	plan := health.TestCase{Scene: now.Whole(), Found: r.Found, InJob: r.InJob, Again: again}
	may, skipped := plan.Plan(r.Seen.Cards)
	tested, more := r.Test(may, plan.Known(may), sole)
	r.keepTests(tested)
	r.Tests = tested
	for _, p := range append(skipped, more...) {
		r.Tests = append(r.Tests, health.Outcome{Probe: p})
	}
	r.Later = session.Once(r.Take(), r.Found)
}

// recheck reads the records again right before a test: jobs may have begun meanwhile. It reports whether another hook
// was here for this end, or start.
func (r *record) recheck() (now judge.Case, isAgain bool) {
	known := r.Node
	r.complete() // sharing may take a second, and is known from now on
	if now = r.Case; r.Past.Again || r.Past.Second || r.Store == nil {
		return now, r.Past.Again || r.Past.Second
	}
	if known != nil {
		now.Node = r.again(*known)
	}
	run, which, _ := r.Store.Find(r.Job)
	lost := which == ledger.NoRun && r.Past.Run.Key != ""
	began := r.Phase == slurm.Prolog && (which == ledger.OpenRun || run.Sure(r.Job))
	return now, lost || began || which == ledger.ClosedRun && r.Phase == slurm.Epilog
}

// keepTests records tests for who asks for the last of each GPU, also one that was tried and came to nothing.
func (r *record) keepTests(tested []health.Outcome) {
	var mark gpu.KernelMark
	if r.Seen.Kernel != nil {
		mark = r.Seen.Kernel.Last
	}
	var records []health.TestRecord
	for _, o := range tested {
		records = append(records, health.TestRecord{
			Probe: o.Probe, Epoch: r.Seen.Epoch, Kernel: mark, Wall: r.Clock.Wall(), Seen: o.Seen,
		})
	}
	if len(records) > 0 && r.Seen.Epoch.Same(r.Seen.Epoch) { // one half known tells nobody which driver it was
		r.Try(r.Store.PutProbes(records...))
	}
}
