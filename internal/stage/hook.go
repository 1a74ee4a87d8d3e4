package stage

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/diagnosis"
	"bookend/internal/drain"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/ledger"
	"bookend/internal/metrics"
	"bookend/internal/numbering"
	"bookend/internal/policy"
	"bookend/internal/report"
	"bookend/internal/routine"
	"bookend/internal/slurm"
	"bookend/internal/state"
)

// hook is one run of a root hook: what it was told, what it found, how it will end.
type hook struct {
	*frame
	phase  slurm.Context
	job    slurm.Job
	cfg    config.Config
	times  config.HookDeadline
	settle config.SettleTimes
	store  *state.Store // nil where state cannot be used; the hook goes on without
	unkept bool         // a reader of /proc is stuck, and could not be put on record

	epoch   gpu.Epoch
	library string // the driver library's version, empty where its file does not tell
	devices []ledger.Assigned
	// origin is where devices came from, and recalled the record of this run's start.
	origin   numbering.Origin
	recalled ledger.Run
	slurms   map[gpu.BusID]bool // the GPUs that Slurm gives out, for a health check; nil where that is not known
	cards    []finding.Card
	unseen   []finding.Card // the job's by its start's record, not found any more, and something was found on them
	looks    int
	began    time.Time // the start's wall time, zero where there is no record of it
	again    bool      // this run's end is on record already
	second   bool      // another hook is at work on this end, or start, of the job
	sole     bool      // no other hook is at work on this end, or start, of the job, nor will be while this one lives
	inJob    bool      // PrologFlags=RunInJob: the hook sits in the job's own cgroup

	baselines  map[gpu.ID]finding.Baseline // of this epoch
	neighbours *gpu.Snapshot               // the node's other cards, as the first watch saw them
	health     []gpu.Health                // of the job's cards, as the first watch saw them
	healthLook gpu.Snapshot                // the last look of that watch: what was on the cards when their health was read
	kernel     *gpu.KernelLog              // since the job's start, or its newest entry alone; nil where it was not read
	runs       []ledger.Run                // the node's records, once somebody asked for them
	unread     string                      // why there may be more of them, empty where there are none
	sighted    *ledger.Sighted             // what health checks saw, once somebody asked
	checked    *metrics.Check              // what a health check counts; nil for a job's hooks
	sharing    *sharers                    // who else may use the cards, once somebody asked
	probes     []gpu.Probe                 // of the job's cards, by this hook or at a start by an earlier one

	now     finding.Side
	before  *finding.Side // nil at a start, and at an end without a record of it
	found   []finding.Finding
	verdict policy.Verdict
	said    said                 // by the job's output
	why     *diagnosis.Diagnosis // nil where nobody wants to know
	text    []report.Safe
	jobLog  string // what became of the end report, for the log

	contact     contact
	outputHangs bool            // the job's output lies on a file system that did not answer
	drain       *drain.Decision // about the node, where there is news

	unfinished atomic.Pointer[func(ledger.End)] // puts an end on record that the steps could not; nil once they did
}

// rootHook frames a prolog or epilog: nothing to do without GPUs, one deadline, one verdict whatever happens.
func rootHook(env Env, phase slurm.Context, body func(*hook)) (exit int) {
	if !slurm.HasGPUs(env.Getenv) {
		return 0
	}
	h := &hook{frame: newFrame(env), phase: phase}
	confined(env)
	defer routine.Recover(func(p *routine.Panic) {
		h.panicked(p)
		exit = int(h.exit.Load())
	})
	defer h.guard(h.panicked, h.leave)()
	h.attempt(body)
	h.giveReason()
	h.outputs()
	return int(h.exit.Load())
}

// attempt does a hook's work. A defect ends it there; what was found by then still counts and is still said.
func (h *hook) attempt(body func(*hook)) {
	defer routine.Recover(func(p *routine.Panic) {
		h.panicked(p)
		h.giveUp(h.end())
	})
	h.configure()
	if !h.identifyJob() {
		h.decide()
		return
	}
	h.openState()
	body(h)
}

// defect reports whether an error is a panic of ours, and says so.
func (h *hook) defect(err error) bool {
	var p *routine.Panic
	if !errors.As(err, &p) {
		return false
	}
	h.panicked(p)
	return true
}

// panicked makes a panic a finding, and the verdict what policy makes of that. The stack goes to slurmd's log.
func (h *hook) panicked(p *routine.Panic) {
	fmt.Fprintf(h.env.Stderr, "bookend: %v\n%s", p, p.Stack)
	h.add(finding.Finding{Code: code.Panicked, Observed: p.Error(), Expected: "no panic"})
	h.decide()
}

// leave is the last word of a hook that is stopped: for its job's record, and for slurmd's log. It runs beside
// the steps, so it touches nothing that they change.
func (h *hook) leave(why string) {
	f := finding.Finding{Code: code.Deadline, Observed: "stopped by " + why, Expected: "a hook that ends in time"}
	now := h.env.Clock.Boot()
	h.giveUp(ledger.End{
		At: now, Wall: h.env.Clock.Wall(), Findings: []finding.Finding{f},
		Verdict:   policy.Verdict{Action: config.Warn, Exit: int(h.exit.Load()), Code: f.Code},
		SlurmConf: h.slurmConf(),
	})
	fmt.Fprintf(h.env.Stderr, "bookend: %s: %s after %v\n", f.Code, f.Observed, (now - h.start).Round(time.Millisecond))
}

// giveUp puts on record what there is, where nothing has been put there yet.
func (h *hook) giveUp(e ledger.End) {
	if put := h.unfinished.Swap(nil); put != nil {
		(*put)(e)
	}
}

func (h *hook) add(f finding.Finding) { h.found = append(h.found, f) }

// try records a failure of Bookend's own state, which never stops a hook.
func (h *hook) try(err error) {
	switch {
	case err == nil:
	case errors.Is(err, state.ErrExists): // a prolog run twice: the first look counts
	case errors.As(err, new(state.Damage)):
		h.add(finding.Finding{Code: code.StateDamage, Observed: err.Error(), Expected: "a whole record"})
	case errors.Is(err, state.ErrLocked):
		h.add(finding.Finding{Code: code.StateLock, Unknown: err.Error()})
	default:
		h.add(finding.Finding{Code: code.StateWrite, Observed: err.Error(), Expected: "state can be written"})
	}
}

// survey asks the driver for the job's cards, unless it is known to be stuck or must not be asked from here. Once the
// epoch is known, recall says what the start saw.
func (h *hook) survey(recall func()) {
	if h.job.GPUProblem != "" || h.blinded() || !h.driverAnswers() {
		return
	}
	defer h.leaveContact()
	if !h.meet() {
		return
	}
	h.inventory()
	h.recallBaselines()
	recall()
	h.now = h.look()
	if len(h.now.Snapshot.Readings) == 0 { // a library that has just read the cards is none of another version
		h.mismatched(h.library)
	}
}

// compared is what the scene shows, of the job's own GPUs and of others.
func compared(s finding.Scene) []finding.Finding {
	found := append(finding.Compare(s), finding.Trespasses(s)...)
	if scan := s.Now.Scan; scan != nil && scan.Partial != "" {
		found = append(found, finding.Finding{Code: code.Untraced, Unknown: scan.Partial})
	}
	return found
}

// decide lets policy judge what was found so far; the watchdog and SIGTERM end with this verdict.
func (h *hook) decide() {
	h.verdict = policy.Compile(h.cfg, h.phase, h.job.Partition).Decide(h.found, h.job.Restarts)
	h.exit.Store(int32(h.verdict.Exit))
}
