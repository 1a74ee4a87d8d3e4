package maintenance

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"bookend/internal/condition"
	"bookend/internal/gpu"
	"bookend/internal/node"
	"bookend/internal/record"
	"bookend/internal/slurmcmd"
	"bookend/internal/state"
)

// Reset resets one GPU that no job can get.
type Reset struct {
	Access  *node.Access
	Slurm   slurmcmd.Scontrol
	Runs    []record.Run // of the node, all that are on record
	Facts   condition.Reset
	Report  condition.ResetReport
	Changes Changes
	// Run runs a command, bounded; ended means that it ended by itself. Stopped reports whether to go no further.
	Run     func(command ...string) (text string, ended bool, err error)
	Stopped func() bool
	Keep    func([]condition.ResetAttempt) error // stores all attempts
	byCheck bool                                 // no admin has asked for it
	attempt condition.ResetAttempt               // this one
	passed  record.Answer                        // whether the memory test was
}

// backTime is for a GPU to come back after a reset.
const backTime = 30 * time.Second

func Attempts(a *node.Access) ([]condition.ResetAttempt, error) {
	return node.Journal[[]condition.ResetAttempt](a, "resets").Read()
}

// NewReset returns a reset that ends early at a signal, with what is on record of earlier ones.
func NewReset(a *node.Access, s slurmcmd.Scontrol, runs []record.Run, say func(any)) (r *Reset, err error) {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // else Go ends a process whose output has no reader
	r = &Reset{Access: a, Slurm: s, Runs: runs, Changes: Changes{Say: say},
		Run:     node.Programs(a, 2*time.Minute).Run, // systemd gives a service 90 s to stop
		Keep:    node.Journal[[]condition.ResetAttempt](a, "resets").Write,
		Stopped: func() bool { return len(stop) > 0 }}
	r.Facts.Boot, r.Facts.Now = node.ReadEpoch(a.Config.Paths).Boot, a.Env.Clock.Wall()
	r.Facts.Earlier, err = Attempts(a)
	if err != nil {
		err = fmt.Errorf("%w; it says what resets that died have left stopped: see to that, then remove it", err)
	}
	return r, err
}

// SampleAll asks the driver about all GPUs, and for what a ticket needs.
func (r *Reset) SampleAll() node.Glance {
	return SampleAll(r.Access, time.Duration(r.Access.Config.Deadlines.Epilog.Driver), true)
}

// Plan fills in what is known of the GPU before the reset, of which now is a sample, and makes the plan.
func (r *Reset) Plan(card record.Assigned, now node.Glance) {
	f, conf, paths := &r.Facts, r.Access.Config.Reset, r.Access.Config.Paths
	f.Card = card
	f.Before, f.Scan = r.stateOf(now), node.Holders(r.Access)
	f.Open, f.Idle = r.open()
	for _, unit := range conf.Stop {
		if is := r.unitState(unit); is == "active" {
			f.Stops = append(f.Stops, unit)
		} else if !slices.Contains([]string{"inactive", "failed", "unknown"}, is) {
			f.Odd = append(f.Odd, fmt.Sprintf("%s is %.100q", unit, is))
		}
	}
	// Threat: none, only names are read.
	if switches, _ := filepath.Glob(filepath.Join(paths.Dev, "nvidia-nvswitch*")); len(switches) > 0 {
		f.Switches, f.Manager = true, r.unitState("nvidia-fabricmanager.service")
	}
	d := f.Card.Device
	r.Report.Index, r.Report.GPU, r.Report.BusID, r.Report.Kind = f.Card.Index, d.ID, d.BusID, "reset"
	r.Report.Refused, r.Report.Steps = append([]string{}, f.Refusals()...), f.Steps(conf.NVIDIASMI, conf.Systemctl)
	r.Report.Proofs, r.Report.Next = []condition.Proof{}, []string{}
}

// unitState returns what systemctl is-active prints; it exits with another status than 0 for a unit that is not.
func (r *Reset) unitState(unit string) string {
	text, _, err := r.Run(r.Access.Config.Reset.Systemctl, "is-active", unit)
	return cmp.Or(strings.TrimSpace(text), fmt.Sprint(err))
}

func (r *Reset) stateOf(now node.Glance) condition.ResetState {
	bus := r.Facts.Card.Device.BusID
	s := condition.StateOf(bus, now.Snapshot, now.Health)
	if text, _, err := r.Run(r.Access.Config.Reset.NVIDIASMI, "nvlink", "--status", "-i", string(bus)); err == nil {
		s.Links, s.Linked = condition.ActiveLinks(text)
	}
	return s
}

// Finish puts back what resets of this boot that died have changed.
func (r *Reset) Finish() error {
	conf, all := r.Access.Config.Reset, r.Facts.Earlier
	for i := range all {
		for all[i].Boot == r.Facts.Boot && len(all[i].Left) > 0 {
			last := len(all[i].Left) - 1
			left := strings.Join(all[i].Left[last], " ")
			undo, err := condition.Undoing(all[i].Left[last], conf.NVIDIASMI, conf.Systemctl), errNotOurs
			if undo != nil {
				r.Changes.Say(strings.Join(undo, " "))
				_, _, err = r.Run(undo...)
			}
			if err != nil {
				return fmt.Errorf("a reset that died has left this to do, and so would a reboot: %s: %w", left, err)
			}
			all[i].Left = all[i].Left[:last]
			if err := r.Keep(all); err != nil {
				return err
			}
		}
		all[i].Left = nil
	}
	return nil
}

var errNotOurs = errors.New("no reset leaves such a command")

func (r *Reset) begin() {
	id := r.Facts.Card.Device.ID
	r.attempt = condition.ResetAttempt{GPU: id, At: r.Facts.Now, Boot: r.Facts.Boot, ByCheck: r.byCheck}
}

const mostAttempts = 100 // on record

func (r *Reset) keep() error {
	all := append(slices.Clone(r.Facts.Earlier), r.attempt)
	return r.Keep(all[max(0, len(all)-mostAttempts):])
}

// Refuse puts on record that a reset was refused, because an earlier one counts.
func (r *Reset) Refuse() error {
	r.begin()
	r.attempt.Refused = true
	return r.keep()
}

// CarryOut resets the GPU while the node has no recorder, and ends the node's drain if that is ours, for this GPU alone
// and the proof holds.
func (r *Reset) CarryOut() {
	release, err := r.Access.Store.Turns.EndRecorder(15 * time.Second)
	if err != nil {
		r.Report.Failed = fmt.Sprintf("the recorder does not step aside: %v", err)
		return
	}
	defer release()
	r.carryOut()
	if r.Report.Done && r.Report.Proven != record.No && len(r.Changes.Undone()) == 0 {
		r.endDrain()
	}
	r.attempt.Failed = r.Report.Unproven()
	if err := r.keep(); err != nil {
		r.Changes.Say(err)
	}
}

// carryOut runs the plan. What it changes is put back, whatever becomes of it.
func (r *Reset) carryOut() {
	r.begin()
	r.Changes.Keep = func(left [][]string) error {
		r.attempt.Left = left
		return r.keep()
	}
	r.Changes.Run = func(command ...string) (string, error) {
		text, _, err := r.Run(command...)
		return text, err
	}
	err := r.steps()
	log, _ := node.KernelLog(r.Access, nil)
	r.Changes.Back(len(r.Facts.Stops)) // persistence mode comes first: the proof is of the GPU as it will be
	r.Report.Done = err == nil
	if r.Report.Done {
		r.prove(*log)
	} else {
		r.Report.Failed = err.Error()
	}
	if r.Report.Done && r.Report.Proven != record.No && r.passed == record.Yes {
		r.endOlder(*log)
	}
	r.Changes.Back(0)
	for _, command := range r.Changes.Undone() {
		r.Report.Next = append(r.Report.Next, strings.Join(command, " "))
		r.Report.Failed = cmp.Or(r.Report.Failed, "not all that it changed could be put back")
	}
	switch {
	case !r.Report.Done && r.attempt.Done:
		r.Report.Next = append(r.Report.Next, "reboot the node before a job gets the GPU: it may be half reset")
	case r.Report.Done && condition.Unwell(r.Report.Proofs):
		r.Report.Next = append(r.Report.Next, "reboot the node; if that does not help: bookend rma "+
			string(r.Facts.Card.Device.ID))
	}
}

var errStopped = errors.New("stopped by a signal")

func (r *Reset) steps() error {
	plan := r.Report.Steps
	for _, s := range plan[:len(plan)-1] {
		if r.Stopped() {
			return errStopped
		}
		if _, err := r.Changes.Do(s.Do, s.Undo); err != nil {
			return err
		}
	}
	id := r.Facts.Card.Device.ID
	busy, release := r.Access.Store.Turns.Quiet([]gpu.ID{id}, 10*time.Second) // nor does bookend test begin now
	defer release()
	if busy[id] != "" {
		return errors.New(busy[id])
	}
	r.Facts.Scan = node.Holders(r.Access)
	r.Facts.Open, r.Facts.Idle = r.open()
	if late := r.Facts.Late(); len(late) > 0 {
		return errors.New(strings.Join(late, "; "))
	}
	if r.Stopped() {
		return errStopped
	}
	r.attempt.Done = true // until it is known that it was not
	if err := r.keep(); err != nil {
		r.attempt.Done = false
		return err
	}
	do := plan[len(plan)-1].Do
	r.Changes.Say(strings.Join(do, " "))
	text, ended, err := r.Run(do...)
	if err == nil && !strings.Contains(strings.ToLower(text), string(r.Report.BusID)+" was successfully reset") {
		return fmt.Errorf("nvidia-smi does not say that it reset the GPU: %.200q", text)
	}
	if err != nil && ended {
		r.attempt.Done = false
		err = errors.Join(err, r.keep())
	}
	return err
}

// endOlder ends what is on record of the GPU from before the reset: fatal errors, and memory without a job.
func (r *Reset) endOlder(log gpu.KernelLog) {
	d, epoch := r.Facts.Card.Device, node.ReadEpoch(r.Access.Config.Paths)
	next := func(s *record.Standing) error {
		if log.Unknown == "" {
			*s = condition.AfterReset(*s, epoch, d.BusID, log.Last)
		}
		return nil
	}
	store := r.Access.Store
	err := errors.Join(state.Baselines.Drop(store, d.ID), state.Standing.Update(store, next))
	if err != nil {
		r.Changes.Say(err)
	}
}

func (r *Reset) prove(log gpu.KernelLog) {
	clock, limits := r.Access.Env.Clock, record.NewLimits(r.Access.Config.Thresholds.Bytes())
	compare := func(test string, passed record.Answer) record.Answer {
		now := r.stateOf(r.SampleAll())
		since, _ := node.KernelLog(r.Access, &log.Last)
		now.Xids, now.Log = since.Xids, cmp.Or(log.Unknown, since.Unknown)
		r.Report.Proofs = r.Facts.Proofs(now, limits, test, passed)
		r.Report.Proven = condition.Proven(r.Report.Proofs)
		return r.Report.Proven
	}
	until := clock.Boot() + backTime
	for compare("not made", record.CannotTell) == record.No && clock.Boot() < until && !r.Stopped() {
		time.Sleep(time.Second)
	}
	if r.Report.Proven != record.No && !r.Stopped() {
		var text string
		text, r.passed = TestNow(r.Access, r.Facts.Card)
		compare(text, r.passed)
	}
}

// Changes runs commands of a plan, and remembers the commands that put back what they change.
type Changes struct {
	Run  func(command ...string) (text string, err error) // bounded
	Keep func(left [][]string) error                      // stores what is left to put back, before it is changed
	Say  func(what any)                                   // reports each command, and what fails
	left [][]string                                       // the newest last
}

// Do runs a command, and returns what it printed. undo puts back what it changes, also if it fails; empty for nothing.
func (c *Changes) Do(do, undo []string) (string, error) {
	if len(undo) > 0 {
		c.left = append(c.left, undo)
		if err := c.Keep(c.left); err != nil {
			c.left = c.left[:len(c.left)-1]
			return "", err
		}
	}
	c.Say(strings.Join(do, " "))
	return c.Run(do...)
}

// Back puts back all but the first changes, the newest first. What that fails for is left.
func (c *Changes) Back(first int) {
	var failed [][]string
	for n := len(c.left); n > first; n-- {
		undo := c.left[n-1]
		_, err := c.Do(undo, nil)
		c.left = c.left[:n-1]
		if err != nil {
			failed = append([][]string{undo}, failed...)
		}
		if err = errors.Join(err, c.Keep(slices.Concat(c.left, failed))); err != nil {
			c.Say(err)
		}
	}
	c.left = append(c.left, failed...)
}

// Undone returns the commands that are left to run, in their order.
func (c *Changes) Undone() [][]string {
	left := slices.Clone(c.left)
	slices.Reverse(left)
	return left
}
