package stage

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/diagnosis"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/health"
	"bookend/internal/judge"
	"bookend/internal/ledger"
	"bookend/internal/operation"
	"bookend/internal/slurm"
	"bookend/internal/slurmconf"
	"bookend/internal/state"
	"bookend/internal/wire"
)

// observe asks the driver for the job's GPUs, unless it is known to be stuck or must not be asked from here, and the
// kernel's log since a mark, which is asked for once the driver is. Once the epoch is known, so is what counts of the
// past.
//
// The driver takes longest. So it is asked first, for the GPUs that were found for the last hook, and meanwhile the
// kernel's log tells the epoch and Slurm's files what the numbers mean. Where that, or the answer, is not as it was
// foreseen the node is asked which GPUs there are: then the answer counts if it is about those, and is asked for again
// if not.
func (r *record) observe(since func() *gpu.KernelMark) {
	if r.Job.GPUProblem != "" || r.blinded() || !r.answers() {
		r.Seen.Kernel = r.Listen(since())()
		return
	}
	kept, startNumbering := r.numbering(r.Past.Run)
	r.Seen = r.foresee(r.Past.Run, kept)
	found, foreseen := r.fromPast(), r.Seen.Epoch
	if len(r.Seen.Cards) > 0 {
		r.watchAhead(r.Order(r.Seen.Cards, r.Settle))
	}
	heard, numbers := r.Listen(since()), startNumbering()
	if r.ahead != nil {
		// The first of a kind takes json 0.6 ms: that is spent while the driver is waited for.
		_, _ = json.Marshal([]any{ledger.Run{}, wire.Reply{}})
	}
	asForeseen := func() bool { return foreseen.Same(heard().Epoch) && kept.Equal(numbers()) }
	switch {
	case r.ahead.stuck(): // then nobody else asks the driver
		if !asForeseen() {
			r.Seen = judge.Seen{}
			found = r.fromPast()
		}
	case !r.ahead.shows(r.Seen) || !asForeseen():
		if r.Seen = r.Inventory(r.Past.Run, numbers); r.Seen.Epoch != foreseen {
			found = r.fromPast()
		}
	}
	r.Add(found...)
	if r.ahead != nil && len(r.Seen.Cards) == 0 { // what went wrong is said, though nothing can be looked at
		r.take(r.ahead.answer())
		r.ahead = nil
	}
	r.Seen.Side, r.Seen.Cards = r.Look(r.Seen.Cards)
	r.Seen.Kernel = heard()
}

func (r *record) fromPast() (found []finding.Finding) {
	r.Past.Before, found = judge.StartOf(r.Past.Run, r.Job, r.Seen.Epoch)
	r.Past.Baselines = r.baselines(r.Seen.Epoch)
	return found
}

func (r *record) baselines(epoch gpu.Epoch) map[gpu.ID]finding.Baseline {
	all, err := r.Store.Baselines()
	r.Try(err)
	return judge.BaselinesOf(all, epoch)
}

// consult reads the node's other records where something asks for them; on clean GPUs nothing does.
func (r *record) consult() {
	switch {
	case r.Asks(), r.AsksRecorded():
		r.complete()
	case health.Compares(r.Seen.Health):
		r.Node = r.readNode()
	}
}

// complete reads what has not been read yet of the node's records, and of who may share its GPUs.
func (r *record) complete() {
	if r.Node == nil {
		r.Node = r.readNode()
	}
	if r.Sharing == nil {
		answer := r.askSharing()
		r.Sharing = &answer
	}
}

// readNode reads the records of all of the node's hooks as they are now: jobs may have begun or ended since.
func (r *record) readNode() *judge.Node {
	n := r.readRuns(r.Store)
	n.Proofs = r.Store.Recorded().Runs.Proofs()
	return &n
}

// readRuns reads the records of a node of this host's.
func (r *record) readRuns(store *state.Store) (n judge.Node) {
	runs, damaged := store.Runs()
	n.Runs = runs
	for _, damage := range damaged {
		if damage.Unread {
			n.Unread = "not all records of this node's jobs were read: another may have this GPU"
		}
		r.Add(finding.Saw(code.StateDamage, fmt.Sprintf("%s: %s", damage.Path, damage.Why), "a whole record"))
	}
	var err error
	if n.Damaged, err = store.Damaged(); err != nil { // after the records: what they found damaged is among these
		n.Unread = fmt.Sprintf("which records of this node's jobs are damaged could not be read: %v", err)
	}
	return n
}

// askSharing says whether others may use this job's GPUs. A job with a shard looks like one with the whole GPU.
func (r *record) askSharing() slurmconf.Answer {
	switch {
	case slices.Contains(r.Config.Slurm.SharedPartitions, r.Job.Partition):
		return slurmconf.Answer{Shared: slurmconf.Yes, Why: "its partition is configured as shared"}
	case r.Job.MPSPercent != "":
		return slurmconf.Answer{Shared: slurmconf.Yes, Why: "the job shares it through MPS"}
	}
	return r.nodeSharing()
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
	in := r.Symptoms(r.Judgement, r.heard)
	if r.briefly {
		in.HealthUnknown = "ECC counters, after a good end"
	}
	if first := diagnosis.Why(in); first.Reason != "" || len(first.Peaks) > 0 {
		r.complete()
		r.why = r.Why(in)
	}
}

// test tests the job's GPUs by an allocation where that may be, and takes an earlier test's word where that holds.
// Findings stay those of the records at the look; the records right before a test only say whether there may be one.
func (r *record) test(earlier map[gpu.ID]health.TestRecord, sole bool) {
	first := func() string { return gpu.VendorOf(r.Seen.Cards[0].Device).Name }
	other := func(c finding.Card) bool { return gpu.VendorOf(c.Device).Name != first() }
	if r.Config.Probe.At == config.ProbeNever || len(r.Seen.Cards) == 0 || !r.Config.Tests(first()) ||
		slices.ContainsFunc(r.Seen.Cards, other) { // one program cannot test both
		return
	}
	outcomes, open := r.trusted(earlier)
	if health.WhenTested(r.Config.Probe.At, r.Phase) && len(open) > 0 {
		now, again := r.recheck()
		plan := health.TestCase{Scene: now.Whole(), Found: r.Found, InJob: r.InJob, Again: again}
		may, skipped := plan.Plan(open)
		tested, more := r.Test(may, plan.Known(may), sole)
		r.keepTests(tested)
		outcomes = append(outcomes, tested...)
		for _, p := range append(skipped, more...) {
			outcomes = append(outcomes, health.Outcome{Probe: p})
		}
	}
	r.Tests, r.Later = outcomes, Once(r.Take(), r.Found)
}

func (r *record) earlierTests() map[gpu.ID]health.TestRecord {
	if r.Config.Probe.At == config.ProbeNever {
		return nil
	}
	records, err := r.Store.Probes()
	r.Try(err)
	return records
}

// since is where a start reads the kernel's log from: before the oldest test that it may trust, nil for none.
func (r *record) since(tested map[gpu.ID]health.TestRecord) (mark *gpu.KernelMark) {
	oldest := r.Clock.Boot() - health.TestMaxAge
	for _, t := range tested {
		if t.Probe.At >= oldest && t.Kernel != (gpu.KernelMark{}) && (mark == nil || t.Kernel.Seq < mark.Seq) {
			mark = &t.Kernel
		}
	}
	return mark
}

// trusted returns what earlier tests say of the GPUs, and the GPUs of which none does. A start that tests believes no
// bad news: it may have been repaired since. Of a GPU that another hook has tested since the look began neither test is
// believed: the kernel's log may not have been read from there on.
func (r *record) trusted(earlier map[gpu.ID]health.TestRecord) (outcomes []health.Outcome, open []finding.Card) {
	if r.Phase != slurm.Prolog {
		return r.unworn()
	}
	scene, latest := r.Scene(r.Seen.Side), r.earlierTests()
	for _, card := range r.Seen.Cards {
		test, known := earlier[card.Device.ID]
		holds := latest[card.Device.ID].Probe.At == test.Probe.At && test.Holds(health.SinceTest{
			At: r.Clock.Boot(), Epoch: r.Seen.Epoch, Kernel: r.Seen.Kernel, Scene: scene, Card: card,
			MaxAge: health.TestMaxAge,
		})
		switch {
		case !known, health.WhenTested(r.Config.Probe.At, r.Phase) && (!holds || test.Probe.Result != gpu.ProbeOK):
			open = append(open, card)
		case holds:
			outcomes = append(outcomes, health.Outcome{Probe: test.Probe, Seen: test.Seen, Earlier: test.Wall})
		default:
			const why = "none at a start (probe.at); the last one may not hold any more"
			outcomes = append(outcomes, health.Outcome{Probe: health.SkippedTest(card.Device.ID, why)})
		}
	}
	return outcomes, open
}

// unworn returns the last tests of the GPUs that this end need not test again, which it counts, and the other GPUs.
func (r *record) unworn() (outcomes []health.Outcome, open []finding.Card) {
	start := r.Past.Run.Start
	if start == nil || r.Past.Again || r.Past.Second || r.Config.Probe.Every == 0 {
		return nil, r.Seen.Cards
	}
	scene, latest := r.Scene(r.Seen.Side), r.earlierTests()
	var counted []health.TestRecord
	for _, card := range r.Seen.Cards {
		test := latest[card.Device.ID]
		known, _ := start.Probe(card.Device.ID)
		if test.Worn(health.AtEnd{
			SinceTest: health.SinceTest{At: r.Clock.Boot(), Epoch: r.Seen.Epoch, Kernel: r.Seen.Kernel, Scene: scene,
				Card: card, MaxAge: time.Duration(r.Config.Probe.Every)},
			Start: known, Job: r.Job.Exit, Messages: len(r.heard.Messages), Found: r.Found,
			AfterJobs: r.Config.Probe.AfterJobs,
		}) {
			open = append(open, card)
			continue
		}
		test.Jobs++
		counted = append(counted, test)
		outcomes = append(outcomes, health.Outcome{Probe: test.Probe, Seen: test.Seen, Earlier: test.Wall})
	}
	r.Try(r.Store.PutProbes(counted...))
	return outcomes, open
}

// recheck reads the records right before a test, and reports whether another hook was here for this end, or start.
func (r *record) recheck() (now judge.Case, isAgain bool) {
	read := r.Node != nil
	r.complete() // sharing may take a second, and is known from now on
	if now = r.Case; r.Past.Again || r.Past.Second {
		return now, r.Past.Again || r.Past.Second
	}
	if read {
		now.Node = r.readNode()
	}
	run, which, _ := r.Store.Find(r.Job)
	lost := which == ledger.NoRun && r.Past.Run.Key != ""
	began := r.Phase == slurm.Prolog && (which == ledger.OpenRun || run.Sure(r.Job))
	return now, lost || began || which == ledger.ClosedRun && r.Phase == slurm.Epilog
}

// keepTests records tests for later starts. One that came to nothing too: it voids what was known before it.
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
	if len(records) > 0 && r.Seen.Epoch.Same(r.Seen.Epoch) { // one half known could be trusted by nobody
		r.Try(r.Store.PutProbes(records...))
	}
}
