package operation

import (
	"errors"
	"fmt"
	"time"

	"bookend/internal/child"
	"bookend/internal/state"
)

// Visit is one child among the files of the job's user. It may run beside the hook, and so keeps to itself what went
// wrong with the record until the hook collects it.
type Visit struct {
	Store    *state.Store // nil where state cannot be used: each hook is on its own
	UID      uint32
	Alive    func(state.Stuck) bool
	Now      func() time.Duration // CLOCK_BOOTTIME
	Left     func() time.Duration // for the next step
	Troubles []error
}

// What keeps a hook from a visit.
var (
	ErrStuckVisit = errors.New("an earlier job's output lies on a file system that does not answer")
	errInVisit    = errors.New("the end of another job of this user still waits for the file system of its output")
)

// Visited has an operation done among the user's files: while one lives that cannot be killed there, no other is
// started for that user. It is remembered apart from what is stuck in the driver, which is no user's to stop.
func (o Operation[Req, Rep]) Visited(v *Visit, req Req) (reply Rep, err error) {
	op := o.Name
	leave, err := v.enter(op)
	if err != nil {
		return reply, err
	}
	defer leave()
	reply, err = o.Ask(req, v.Left())
	if v.Store != nil && err == nil {
		v.Store.SetVisited(op, v.UID, v.Now()) // reading may work where writing hangs
	}
	var failed *Error
	if v.Store != nil && errors.As(err, &failed) && failed.Result.Outcome == child.Abandoned {
		stuck := state.Stuck{PID: failed.Result.PID, StartTicks: failed.Result.StartTicks, Since: v.Now(), Op: op}
		v.trouble(v.Store.SetStuckVisit(v.UID, stuck, v.Alive))
	}
	return reply, err
}

// enter waits for other hooks' children among this user's files, until one has come back: many jobs of one user that end at
// once wait for the first, and not for one another. Without state, or where its lock is out of use, each hook is on its own.
func (v *Visit) enter(op string) (leave func(), err error) {
	if v.Store == nil {
		return func() {}, nil
	}
	leave, err = v.turn(op)
	if errors.Is(err, state.ErrLocked) {
		return nil, errInVisit
	}
	stuck, err := v.Store.StuckVisit(v.UID, v.Alive)
	v.trouble(err)
	if stuck != nil {
		leave()
		return nil, fmt.Errorf("%w: PID %d (%s) cannot be killed", ErrStuckVisit, stuck.PID, stuck.Op)
	}
	return leave, nil
}

// turn returns when a visit may begin, or ErrLocked.
func (v *Visit) turn(op string) (leave func(), err error) {
	const step = 20 * time.Millisecond // between two looks whether somebody has come back
	alone := func() {}
	for until := v.Now() + v.Left(); ; {
		if v.Store.VisitedLately(op, v.UID, v.Now()) {
			return alone, nil
		}
		leave, err = v.Store.Visit(v.UID, step)
		switch {
		case err == nil:
			return leave, nil
		case !errors.Is(err, state.ErrLocked):
			return alone, nil
		case v.Now() >= until:
			return nil, err
		}
	}
}

func (v *Visit) trouble(err error) {
	if err != nil {
		v.Troubles = append(v.Troubles, err)
	}
}
