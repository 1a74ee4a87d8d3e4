package stage

import (
	"errors"
	"fmt"
	"time"

	"bookend/internal/child"
	"bookend/internal/state"
)

// visit is one child among the files of the job's user. It may run beside the hook, and so keeps to itself what went wrong
// with the record until the hook collects it.
type visit struct {
	store    *state.Store // nil where state cannot be used: each hook is on its own
	uid      uint32
	alive    func(state.Stuck) bool
	now      func() time.Duration // CLOCK_BOOTTIME
	left     func() time.Duration // for the next step
	troubles []error
}

// What keeps a hook from a visit.
var (
	errStuckVisit = errors.New("an earlier job's output lies on a file system that does not answer")
	errInVisit    = errors.New("the end of another job of this user still waits for the file system of its output")
)

// newVisit readies a visit that leaves the hook the reserve.
func (h *hook) newVisit(reserve time.Duration) *visit {
	proc := h.cfg.Paths.Proc
	return &visit{
		store: h.store, uid: h.job.UID, now: h.env.Clock.Boot,
		alive: func(s state.Stuck) bool { return child.Alive(proc, s.PID, s.StartTicks) },
		left:  func() time.Duration { return h.left(time.Duration(h.times.Append), reserve) },
	}
}

// visited runs one operation in a child among the user's files: while one lives that cannot be killed there, no other is
// started for that user. It is remembered apart from what is stuck in the driver, which is no user's to stop.
func visited[Rep any](v *visit, op string, req any) (reply Rep, err error) {
	leave, err := v.enter(op)
	if err != nil {
		return reply, err
	}
	defer leave()
	reply, err = ask[Rep](op, req, v.left())
	if v.store != nil && err == nil {
		v.store.SetVisited(op, v.uid, v.now()) // reading may work where writing hangs
	}
	var failed *childError
	if v.store != nil && errors.As(err, &failed) && failed.Result.Outcome == child.Abandoned {
		stuck := state.Stuck{PID: failed.Result.PID, StartTicks: failed.Result.StartTicks, Since: v.now(), Op: op}
		v.trouble(v.store.SetStuckVisit(v.uid, stuck, v.alive))
	}
	return reply, err
}

// enter waits for other hooks' children among this user's files, until one has come back: many jobs of one user that end at
// once wait for the first, and not for one another. Without state, or where its lock is out of use, each hook is on its own.
func (v *visit) enter(op string) (leave func(), err error) {
	if v.store == nil {
		return func() {}, nil
	}
	leave, err = v.turn(op)
	if errors.Is(err, state.ErrLocked) {
		return nil, errInVisit
	}
	stuck, err := v.store.StuckVisit(v.uid, v.alive)
	v.trouble(err)
	if stuck != nil {
		leave()
		return nil, fmt.Errorf("%w: PID %d (%s) cannot be killed", errStuckVisit, stuck.PID, stuck.Op)
	}
	return leave, nil
}

// turn returns when a visit may begin, or ErrLocked.
func (v *visit) turn(op string) (leave func(), err error) {
	const step = 20 * time.Millisecond // between two looks whether somebody has come back
	alone := func() {}
	for until := v.now() + v.left(); ; {
		if v.store.VisitedLately(op, v.uid, v.now()) {
			return alone, nil
		}
		leave, err = v.store.Visit(v.uid, step)
		switch {
		case err == nil:
			return leave, nil
		case !errors.Is(err, state.ErrLocked):
			return alone, nil
		case v.now() >= until:
			return nil, err
		}
	}
}

func (v *visit) trouble(err error) {
	if err != nil {
		v.troubles = append(v.troubles, err)
	}
}

// collect makes findings of what went wrong with the record of a visit that is over.
func (h *hook) collect(v *visit) {
	for _, err := range v.troubles {
		h.try(err)
	}
	v.troubles = nil
}
