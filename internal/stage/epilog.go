package stage

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"bookend/internal/attribution"
	"bookend/internal/catalog"
	"bookend/internal/compare"
	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/judge"
	"bookend/internal/procscan"
	"bookend/internal/record"
	"bookend/internal/report"
	"bookend/internal/slurm"
	"bookend/internal/state"
)

func (r *work) prolog() {
	store, job := r.Store, r.Job
	begin := func(run record.Run) func(record.End) {
		return func(start record.End) {
			run.Start = &start
			_ = store.Begin(run)
		}
	}
	r.Unfinished(begin(record.Run{Job: job}))
	var sole bool
	var tested map[gpu.ID]record.TestRecord
	r.observe(func() *gpu.KernelMark {
		sole = r.claim()
		r.Try(r.Store.RemoveReport(r.Job)) // an earlier run's must not be taken for this one's, whatever happens
		tested = r.earlierTests()
		return r.since(tested)
	})
	r.Unfinished(begin(r.Self())) // its exit counts in this boot, which is known by now
	r.consult()
	for _, b := range judge.Learn(r.Case) {
		r.Try(r.Store.PutBaseline(b))
	}
	r.judge() // counts even if the hook is stopped in a wait or a test
	r.outlast()
	r.test(tested, sole)
	r.judge()
	r.text = report.Start(r.report())
	start, run := r.end(), r.Self() // on record for the job's end, and for its task hooks
	run.Start = &start
	r.Finish()
	r.Try(r.Store.Begin(run))
	r.Try(r.Store.PutReport(r.Job, state.Report{Clean: r.report().Clean(), Text: start.Report}))
	r.Try(r.Store.MakeDrop(r.Job))
	if len(run.Devices) > 0 {
		r.startRecorder()
	}
	r.add(r.Take()...)
}

// epilog checks the GPUs after the job, compares them with its start, and reports in the job's own output.
func (r *work) epilog() {
	sole := r.recall()
	var out *output
	var listened func() judge.JobOutput
	r.observe(func() *gpu.KernelMark {
		out = r.output()
		listened = r.listen(out)
		r.Past.Recording = r.Store.RecorderState().Runs.About(r.Past.Run)
		return judge.Mark(r.Past.Run, r.Job)
	})
	store, run := r.Store, r.completed()
	r.Unfinished(func(e record.End) { _ = store.Close(run, e) })
	r.consult()
	r.Faults = append(r.Faults, r.Take()...) // before those of the clean-up
	r.cleanUp()
	r.judge() // counts even if the hook is stopped in a wait or a test
	r.outlast()
	r.heard = listened() // a message may ask for a test
	r.test(nil, sole)
	r.judge()
	r.diagnose()
	r.add(r.Take()...)
	r.text = report.End(r.report())
	r.close(out)
	r.leaveReport()
	if !r.Past.Again && !r.Past.Second {
		r.append(out)
	}
}

// recall finds the record of the job's start. Without one, or if this end is already on record, nothing is certain.
func (r *work) recall() (sole bool) {
	const once = "one epilog a run"
	if sole = r.claim(); r.Past.Second {
		r.Add(record.Saw(catalog.Again, "another epilog of this job is at work", once))
	}
	run, which, err := r.Store.Find(r.Job)
	r.Try(err)
	switch which {
	case attribution.NoRun:
		r.Add(record.Saw(catalog.NoRecord, "no record of this job's start on this node", "a prolog before each epilog"))
	case attribution.ClosedRun:
		r.Past.Again = true
		r.Add(record.Saw(catalog.Again, "this job's epilog has run before", once))
	}
	r.Past.Run = run
	store := r.Store
	run.Job = r.Job
	r.Unfinished(func(e record.End) { _ = store.Close(run, e) })
	return sole
}

// claim makes this hook the only one that may test for this start or end of its job, while it lives. Past.Second means
// that another came first and has not ended: Slurm may run an epilog twice at once, and gives the GPU away when either
// has ended. If that is not known, the hook is neither second nor the only one, and makes no test.
func (r *work) claim() (sole bool) {
	_, err := r.Store.Claim(r.Job, r.Phase, 0)
	r.Past.Second = errors.Is(err, state.ErrLocked)
	return err == nil
}

// outlast keeps a hook that is not the first of its kind until the first has ended, if that one may be testing: once
// this one ends, the next job may get the GPU. The first has the earlier deadline. It then sets Again if the first
// closed the run; one that died on the way closed nothing, and this is the job's end.
func (r *work) outlast() {
	if !r.Past.Second {
		return
	}
	wait := time.Duration(0)
	if judge.WhenTested(r.Config.Probe.At, r.Phase) {
		wait = r.Left(time.Hour, r.Reserve())
	}
	if _, err := r.Store.Claim(r.Job, r.Phase, wait); err != nil {
		return // nothing else can be done
	}
	_, which, _ := r.Store.Find(r.Job)
	r.Past.Second, r.Past.Again = false, which == attribution.ClosedRun
}

// close records the job's end. What follows is optional, and partly under the user's control.
func (r *work) close(out *output) {
	run := r.completed()
	if out.told {
		run.Display = record.Display{Array: out.drop.Array, HetID: out.drop.HetID}
	}
	r.Finish()
	err := r.Store.Close(run, r.end())
	if err == nil && (r.Past.Run.Start == nil || r.Past.Again) { // its start may be in a record that was set aside
		err = r.Store.Settle(r.Job.ID)
	}
	r.Try(err)
	r.add(r.Take()...)
}

// completed returns the run with what its end has found out about it.
func (r *work) completed() record.Run {
	run := r.Self()
	if len(r.Seen.Cards) > 0 { // an end without readings keeps the GPUs known from the start
		run.Devices, run.Numbering = run.DevicesWith(r.Seen.Cards), r.Seen.Origin
	}
	if run.Epoch == (gpu.Epoch{}) {
		run.Epoch = r.Seen.Epoch
	}
	return run
}

func (r *work) leaveReport() {
	if len(r.text) == 0 || r.Past.Again || r.Past.Second {
		return
	}
	r.Try(r.Store.ChangeReport(r.Job, func(told *state.Report) { told.End = joined(r.text) }))
}

// cleanUp ends what a cgroup proved to be the ended job's, if the admin enabled that, and samples the GPUs again.
func (r *work) cleanUp() {
	if !r.mayCleanUp() {
		return
	}
	targets := compare.Proven(judge.Compared(r.Scene(r.Seen.Side)), r.Job)
	if len(targets) == 0 {
		return
	}
	cleaned := judge.Cleaned{First: r.Seen.Side}
	did, ended := r.endAll(targets)
	cleaned.Looked = ended
	if ended {
		cleaned.After, r.Seen.Cards = r.Look(r.Seen.Cards)
		if len(cleaned.After.Snapshot.Readings) > 0 {
			r.Seen.Side = cleaned.After
		}
	}
	cleaned.Did = append(did, r.Take()...)
	r.Cleaned = &cleaned
}

// mayCleanUp reports whether processes may be ended: only by the one epilog of a run, started by slurmd itself.
func (r *work) mayCleanUp() bool {
	return r.Config.CleanUp.Enabled && !r.InJob && !r.Past.Again && !r.Past.Second
}

func (r *work) endAll(targets []record.Holder) (did []record.Finding, ended bool) {
	// The time to see that the GPU is clean afterwards: teardown takes 0.1 to 0.4 s (measured).
	const cleanWatch = 1500 * time.Millisecond
	grace := time.Duration(r.Config.CleanUp.Grace)
	limit := grace + 2*config.KillWait
	if need := limit + cleanWatch; r.Left(need, r.Reserve()) < need {
		return append(did, record.Unsure(catalog.Ended, "no time left to end the job's processes")), false
	}
	var processes []record.Process
	for _, t := range targets {
		processes = append(processes, t.Process)
	}
	results, err := procscan.Cleanup.Ask(procscan.CleanupRequest{
		Proc: r.Config.Paths.Proc, Processes: processes, Grace: grace,
		Owner: slurm.Owner{ID: r.Job.ID, SLUID: r.Job.SLUID, Node: r.Job.Node},
	}, r.Left(limit, r.Reserve()))
	if err != nil { // it is not known what became of them
		r.abandonedReader(err, nil)
		r.childFault(procscan.Cleanup.Name, err)
		return nil, true
	}
	for i, result := range results {
		did = append(did, r.outcome(targets[i], result))
		ended = ended || result.Outcome != record.Refused
	}
	return did, ended
}

// outcome returns the finding for one process, with its GPU. A process that only had a GPU open is on none.
func (r *work) outcome(h record.Holder, result procscan.CleanupResult) record.Finding {
	f := record.Finding{
		Code: catalog.Ended, Bytes: h.Memory, Holder: &h, Owner: h.Owner, Ended: result.Outcome,
		Expected: "a job that ends its own processes",
		Observed: fmt.Sprintf("process %d: %s", result.PID, result.Outcome.Text()),
	}
	if result.Why != "" {
		f.Observed += ": " + result.Why
	}
	for _, c := range r.Seen.Cards {
		reading, _ := r.Seen.Side.Snapshot.Reading(c.Device.ID)
		if slices.ContainsFunc(reading.Processes, func(p gpu.Process) bool { return p.PID == h.PID }) {
			f.GPU, f.Index = c.Device.ID, &c.Index
			break
		}
	}
	return f
}
