package session

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

// meet waits for another hook's contact. Where nobody has heard it lately one hook asks and the others wait for what
// comes of it, as long as it sleeps where nothing can wake it: else each would leave a child there. One that is merely slow,
// stopped or busy keeps nobody: they ask beside it. Without state each hook is on its own.
func (d *Driver) meet() bool {
	if d.Store == nil {
		return true
	}
	began := d.Clock.Boot()
	for first := true; first || d.driverTime() > worthAsking; first = false {
		met, err := d.Store.Meet(d.Clock.Boot, min(patience, d.driverTime()))
		d.contact.waited = d.Clock.Boot() - began
		switch {
		case err == nil && met != nil:
			d.contact.met, d.contact.holds = met, true
			d.adopt()
			return d.answers()
		case err == nil:
			return d.answers()
		case !errors.Is(err, state.ErrLocked) || !d.keptByTheDriver():
			return d.answers()
		}
	}
	if d.answers() {
		d.Add(finding.Finding{Code: code.Slow, Unknown: fmt.Sprintf("not asked: another hook's child has been in the driver for more than %v",
			d.contact.waited.Round(time.Millisecond))})
	}
	return false
}

func (d *Driver) driverTime() time.Duration {
	return d.Left(time.Duration(d.Times.Driver), d.Reserve())
}

// keptByTheDriver reports whether the child of the hook that asks sleeps where no signal wakes it.
func (d *Driver) keptByTheDriver() bool {
	asking := d.Store.Asking()
	return asking != nil && child.Uninterruptible(d.Config.Paths.Proc, asking.PID, asking.StartTicks)
}

// adopt takes the stuck child of a hook that was killed for what it is: nobody else has it on record. One that merely ends
// after its hook is soon gone.
func (d *Driver) adopt() {
	asking := d.Store.Asking()
	if asking == nil {
		return
	}
	for range adoptLooks {
		if !child.Orphaned(d.Config.Paths.Proc, asking.PID, asking.StartTicks, asking.Hook) || !d.keptByTheDriver() {
			return
		}
		time.Sleep(patience / adoptLooks)
	}
	d.Try(d.Store.SetStuck(asking.Stuck))
}

// adoptLooks are the looks within patience at which a child must sleep so that nothing wakes it.
const adoptLooks = 6

// started returns what notes a child that asks the driver.
func (d *Driver) started(op string) func(pid int, startTicks uint64) {
	if !d.contact.holds {
		return nil
	}
	return func(pid int, startTicks uint64) {
		d.contact.pids = append(slices.Clone(d.contact.pids), pid)
		// Without it the others ask beside this hook: nothing worth telling.
		_ = d.Store.SetAsking(state.Asking{
			Stuck: state.Stuck{PID: pid, StartTicks: startTicks, Since: d.Clock.Boot(), Op: op}, Hook: d.PID,
		})
	}
}

// Leave ends the first contact, however it went.
func (d *Driver) Leave() {
	d.contact.met(false)
	if d.contact.holds {
		_ = d.Store.ClearAsking(d.contact.pids...)
	}
}

// cutShort reports that waiting for another hook has left the driver less time than it is meant to have: that it did not
// answer in the rest says nothing for certain.
func (d *Driver) cutShort() bool { return d.contact.waited > patience/3 }
