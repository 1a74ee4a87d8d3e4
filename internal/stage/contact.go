package stage

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"bookend/internal/child"
	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/state"
)

// contact is this hook's first contact with the driver.
type contact struct {
	holds  bool          // it asks, and others wait for its answer
	waited time.Duration // for another hook's answer, of the time that was meant for the driver
	pids   []int         // of the children that asked
	met    func(answered bool)
}

// patience is how long a hook waits for another's first answer before it looks what keeps that.
const patience = 300 * time.Millisecond

// worthAsking is the least time in which a driver that answers can be expected to.
const worthAsking = 500 * time.Millisecond

// meet reports whether the driver may be asked. Where nobody has heard it lately one hook asks and the others wait for what
// comes of it, as long as it sleeps where nothing can wake it: else each would leave a child there. One that is merely slow,
// stopped or busy keeps nobody: they ask beside it. Without state each hook is on its own.
func (h *hook) meet() bool {
	h.contact.met = func(bool) {}
	if h.store == nil {
		return true
	}
	began := h.env.Clock.Boot()
	for first := true; first || h.driverTime() > worthAsking; first = false {
		met, err := h.store.Meet(h.env.Clock.Boot, min(patience, h.driverTime()))
		h.contact.waited = h.env.Clock.Boot() - began
		switch {
		case err == nil && met != nil:
			h.contact.met, h.contact.holds = met, true
			h.adopt()
			return h.driverAnswers()
		case err == nil:
			return h.driverAnswers()
		case !errors.Is(err, state.ErrLocked) || !h.keptByTheDriver():
			return h.driverAnswers()
		}
	}
	if h.driverAnswers() {
		h.add(finding.Finding{Code: code.Slow, Unknown: fmt.Sprintf("not asked: another hook's child has been in the driver for more than %v",
			h.contact.waited.Round(time.Millisecond))})
	}
	return false
}

func (h *hook) driverTime() time.Duration { return h.left(time.Duration(h.times.Driver), h.reserve()) }

// keptByTheDriver reports whether the child of the hook that asks sleeps where no signal wakes it.
func (h *hook) keptByTheDriver() bool {
	asking := h.store.Asking()
	return asking != nil && child.Uninterruptible(h.cfg.Paths.Proc, asking.PID, asking.StartTicks)
}

// adopt takes the stuck child of a hook that was killed for what it is: nobody else has it on record. One that merely ends
// after its hook is soon gone.
func (h *hook) adopt() {
	asking := h.store.Asking()
	if asking == nil {
		return
	}
	for range adoptLooks {
		if !child.Orphaned(h.cfg.Paths.Proc, asking.PID, asking.StartTicks, asking.Hook) || !h.keptByTheDriver() {
			return
		}
		time.Sleep(patience / adoptLooks)
	}
	h.try(h.store.SetStuck(asking.Stuck))
}

// adoptLooks are the looks within patience at which a child must sleep so that nothing wakes it.
const adoptLooks = 6

// started returns what notes a child that asks the driver.
func (h *hook) started(op string) func(pid int, startTicks uint64) {
	if !h.contact.holds {
		return nil
	}
	return func(pid int, startTicks uint64) {
		h.contact.pids = append(slices.Clone(h.contact.pids), pid)
		// Without it the others ask beside this hook: nothing worth telling.
		_ = h.store.SetAsking(state.Asking{
			Stuck: state.Stuck{PID: pid, StartTicks: startTicks, Since: h.env.Clock.Boot(), Op: op}, Hook: h.env.PID,
		})
	}
}

// leaveContact ends the first contact, however it went.
func (h *hook) leaveContact() {
	h.contact.met(false)
	if h.contact.holds {
		_ = h.store.ClearAsking(h.contact.pids...)
	}
}

// cutShort reports that waiting for another hook has left the driver less time than it is meant to have: that it did not
// answer in the rest says nothing for certain.
func (h *hook) cutShort() bool { return h.contact.waited > patience/3 }
