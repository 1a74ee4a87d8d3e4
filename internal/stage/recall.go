package stage

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"bookend/internal/attribution"
	"bookend/internal/catalog"
	"bookend/internal/condition"
	"bookend/internal/config"
	"bookend/internal/diagnosis"
	"bookend/internal/gpu"
	"bookend/internal/judge"
	"bookend/internal/protocol"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/internal/slurmcmd"
	"bookend/internal/slurmconf"
	"bookend/internal/state"
)

// observe asks the driver about the job's GPUs, unless it is known to be stuck or must not be asked from here, and
// reads the kernel's log after a mark, for which since is called once the driver has been asked. Once the epoch is
// known, so is what still counts of the past.
//
// The driver takes longest, so it is asked first, about the GPUs that the last hook found. Meanwhile the kernel's log
// gives the epoch, and Slurm's files give the meaning of the numbers. If these or the answer are not as foreseen, the
// node's GPUs are listed: the answer counts if it is about those, and the driver is asked again if not.
func (r *work) observe(since func() *gpu.KernelMark) {
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
		// The first use of a type takes json 0.6 ms: spend that while the driver answers.
		_, _ = json.Marshal([]any{record.Run{}, protocol.Reply{}})
	}
	asForeseen := func() bool { return foreseen.Same(heard().Epoch) && kept.Equal(numbers()) }
	switch {
	case r.ahead.stuck(): // then nothing else asks the driver
		if !asForeseen() {
			r.Seen = judge.Seen{}
			found = r.fromPast()
		}
	case !r.ahead.shows(r.Seen) || !asForeseen():
		r.Seen = r.Inventory(r.Past.Run, numbers)
		if r.Seen.Epoch != foreseen {
			found = r.fromPast()
		}
	}
	r.Add(found...)
	if r.ahead != nil && len(r.Seen.Cards) == 0 { // its errors are reported, though no GPU can be read
		r.take(r.ahead.answer())
		r.ahead = nil
	}
	r.Seen.Side, r.Seen.Cards = r.Look(r.Seen.Cards)
	r.Seen.Kernel = heard()
}

func (r *work) fromPast() (found []record.Finding) {
	r.Past.Before, found = judge.StartOf(r.Past.Run, r.Job, r.Seen.Epoch)
	r.Past.Baselines = r.baselines(r.Seen.Epoch)
	return found
}

func (r *work) baselines(epoch gpu.Epoch) map[gpu.ID]record.Baseline {
	all, err := r.Store.Baselines()
	r.Try(err)
	return judge.BaselinesOf(all, epoch)
}

// consult reads the node's other records if something needs them; for clean GPUs nothing does.
func (r *work) consult() {
	switch {
	case r.Asks(), r.AsksRecorded():
		r.complete()
	case condition.Compares(r.Seen.Health):
		r.Node = r.readNode()
	}
}

// complete reads what is still missing of the node's records, and whether its GPUs may be shared.
func (r *work) complete() {
	if r.Node == nil {
		r.Node = r.readNode()
	}
	if r.Sharing == nil {
		answer := r.askSharing()
		r.Sharing = &answer
	}
}

// readNode reads the records of all of the node's hooks as they are now: jobs may have begun or ended since.
func (r *work) readNode() *judge.Node {
	n := r.readRuns(r.Store)
	n.Proofs = r.Store.RecorderState().Runs.Proofs()
	return &n
}

// readRuns reads the records of one of this host's nodes.
func (r *work) readRuns(store *state.Store) (n judge.Node) {
	runs, damaged := store.Runs()
	n.Runs = runs
	for _, damage := range damaged {
		if damage.Unread {
			n.Unread = "not all records of this node's jobs were read: another may have this GPU"
		}
		r.Add(record.Saw(catalog.StateDamage, fmt.Sprintf("%s: %s", damage.Path, damage.Why), "a whole record"))
	}
	var err error
	n.Damaged, err = store.Damaged()
	if err != nil { // after the records: those found damaged are among these
		n.Unread = fmt.Sprintf("which records of this node's jobs are damaged could not be read: %v", err)
	}
	return n
}

// askSharing returns whether others may use this job's GPUs. A job with a shard looks like one with the whole GPU.
func (r *work) askSharing() slurmconf.Answer {
	switch {
	case slices.Contains(r.Config.Slurm.SharedPartitions, r.Job.Partition):
		return slurmconf.Answer{Shared: slurmconf.Yes, Why: "its partition is configured as shared"}
	case r.Job.MPSPercent != "":
		return slurmconf.Answer{Shared: slurmconf.Yes, Why: "the job shares it through MPS"}
	}
	return r.nodeSharing()
}

func (r *work) nodeSharing() slurmconf.Answer {
	limit := r.Left(slurmcmd.SharingTime, r.Reserve())
	return slurmcmd.NodeSharing(r.Config.Slurm, r.Getenv("SLURM_CONF"), r.Job.Node, limit)
}

// diagnose determines why the job ran out of memory. If there is something to report, it takes the time to read Slurm's
// files and the node's other records.
func (r *work) diagnose() {
	if r.Past.Again || r.Past.Second {
		return
	}
	in := r.Symptoms(r.Judgement, r.heard)
	if r.briefly {
		in.HealthUnknown = "ECC counters, after a good end"
	}
	if diagnosis.Why(in).Reason != "" {
		r.complete()
		r.why = r.Why(in)
	}
}

// test tests the job's GPUs by an allocation if it may, and uses the results of earlier tests that still hold. Findings
// stay those of the records at the observation; the records right before a test only say whether it may be made.
func (r *work) test(earlier map[gpu.ID]record.TestRecord, sole bool) {
	first := func() string { return gpu.VendorOf(r.Seen.Cards[0].Device).Name }
	other := func(c record.Assigned) bool { return gpu.VendorOf(c.Device).Name != first() }
	if r.Config.Probe.At == config.ProbeNever || len(r.Seen.Cards) == 0 || !r.Config.Tests(first()) ||
		slices.ContainsFunc(r.Seen.Cards, other) { // one backend cannot test GPUs of two vendors
		return
	}
	outcomes, open := r.trusted(earlier)
	if judge.WhenTested(r.Config.Probe.At, r.Phase) && len(open) > 0 {
		now, again := r.recheck()
		plan := judge.TestCase{Scene: now.Whole(), Found: r.Found, InJob: r.InJob, Again: again}
		may, skipped := plan.Plan(open)
		tested, more := r.Test(may, plan.Known(may), sole)
		r.keepTests(tested)
		outcomes = append(outcomes, tested...)
		for _, p := range append(skipped, more...) {
			outcomes = append(outcomes, judge.TestResult{Probe: p})
		}
	}
	r.Tests, r.Later = outcomes, Once(r.Take(), r.Found)
}

func (r *work) earlierTests() map[gpu.ID]record.TestRecord {
	if r.Config.Probe.At == config.ProbeNever {
		return nil
	}
	records, err := r.Store.Probes()
	r.Try(err)
	return records
}

// since returns where a start reads the kernel's log from: before the oldest test that it may trust, nil for none.
func (r *work) since(tested map[gpu.ID]record.TestRecord) (mark *gpu.KernelMark) {
	oldest := r.Clock.Boot() - judge.TestMaxAge
	for _, t := range tested {
		if t.Probe.At >= oldest && t.Kernel != (gpu.KernelMark{}) && (mark == nil || t.Kernel.Seq < mark.Seq) {
			mark = &t.Kernel
		}
	}
	return mark
}

// trusted returns the results of earlier tests that still hold, and the GPUs without one. A start that tests does not
// believe a bad result: the GPU may have been repaired since. If another hook has tested a GPU since the observation
// began, neither test is believed: the kernel's log may not have been read from there on.
func (r *work) trusted(earlier map[gpu.ID]record.TestRecord) (outcomes []judge.TestResult, open []record.Assigned) {
	if r.Phase != slurm.Prolog {
		return r.unworn()
	}
	scene, latest := r.Scene(r.Seen.Side), r.earlierTests()
	for _, card := range r.Seen.Cards {
		test, known := earlier[card.Device.ID]
		since := judge.SinceTest{At: r.Clock.Boot(), Epoch: r.Seen.Epoch, Kernel: r.Seen.Kernel, Scene: scene,
			Card: card, MaxAge: judge.TestMaxAge}
		holds := latest[card.Device.ID].Probe.At == test.Probe.At && since.Trusts(test)
		switch {
		case !known, judge.WhenTested(r.Config.Probe.At, r.Phase) && (!holds || test.Probe.Result != gpu.ProbeOK):
			open = append(open, card)
		case holds:
			outcomes = append(outcomes, judge.TestResult{Probe: test.Probe, Seen: test.Seen, Earlier: test.Wall})
		default:
			const why = "none at a start (probe.at); the last one may not hold any more"
			outcomes = append(outcomes, judge.TestResult{Probe: judge.SkippedTest(card.Device.ID, why)})
		}
	}
	return outcomes, open
}

// unworn returns the last tests that still hold at this end, each with this job counted, and the GPUs to test again.
func (r *work) unworn() (outcomes []judge.TestResult, open []record.Assigned) {
	start := r.Past.Run.Start
	if start == nil || r.Past.Again || r.Past.Second || r.Config.Probe.Every == 0 {
		return nil, r.Seen.Cards
	}
	scene, latest := r.Scene(r.Seen.Side), r.earlierTests()
	var counted []record.TestRecord
	for _, card := range r.Seen.Cards {
		test := latest[card.Device.ID]
		known, _ := start.Probe(card.Device.ID)
		end := judge.AtEnd{
			SinceTest: judge.SinceTest{At: r.Clock.Boot(), Epoch: r.Seen.Epoch, Kernel: r.Seen.Kernel, Scene: scene,
				Card: card, MaxAge: time.Duration(r.Config.Probe.Every)},
			Start: known, Job: r.Job.Exit, Messages: len(r.heard.Messages), Found: r.Found,
			AfterJobs: r.Config.Probe.AfterJobs,
		}
		if end.Outdates(test) {
			open = append(open, card)
			continue
		}
		test.Jobs++
		counted = append(counted, test)
		outcomes = append(outcomes, judge.TestResult{Probe: test.Probe, Seen: test.Seen, Earlier: test.Wall})
	}
	r.Try(r.Store.PutProbes(counted...))
	return outcomes, open
}

// recheck reads the records right before a test. isAgain means that another hook has handled this start or end.
func (r *work) recheck() (now judge.Case, isAgain bool) {
	read := r.Node != nil
	r.complete() // sharing may take a second, but only once
	if now = r.Case; r.Past.Again || r.Past.Second {
		return now, r.Past.Again || r.Past.Second
	}
	if read {
		now.Node = r.readNode()
	}
	run, which, _ := r.Store.Find(r.Job)
	lost := which == attribution.NoRun && r.Past.Run.Key != ""
	began := r.Phase == slurm.Prolog && (which == attribution.OpenRun || run.Sure(r.Job))
	return now, lost || began || which == attribution.ClosedRun && r.Phase == slurm.Epilog
}

// keepTests records tests for later starts, also one without a result: it voids what was known before it.
func (r *work) keepTests(tested []judge.TestResult) {
	var mark gpu.KernelMark
	if r.Seen.Kernel != nil {
		mark = r.Seen.Kernel.Last
	}
	var records []record.TestRecord
	for _, o := range tested {
		records = append(records, record.TestRecord{
			Probe: o.Probe, Epoch: r.Seen.Epoch, Kernel: mark, Wall: r.Clock.Wall(), Seen: o.Seen,
		})
	}
	if len(records) > 0 && r.Seen.Epoch.Same(r.Seen.Epoch) { // a partially known epoch is never trusted
		r.Try(r.Store.PutProbes(records...))
	}
}
