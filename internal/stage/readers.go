package stage

import (
	"errors"
	"fmt"
	"time"

	"bookend/internal/child"
	"bookend/internal/procscan"
	"bookend/internal/record"
	"bookend/internal/state"
)

// The names of the backend and of slurmd -G in the records of stuck children.
const (
	backendOp = "backend"
	slurmdOp  = "slurmd -G"
)

// leftBehind returns the child that a failure left behind, or nil.
func leftBehind(failure error, now time.Duration) *state.Stuck {
	var failed *child.Error
	if !errors.As(failure, &failed) || failed.Result.Outcome != child.Abandoned {
		return nil
	}
	return &state.Stuck{PID: failed.Result.PID, StartTicks: failed.Result.StartTicks, Since: now, Op: failed.Op}
}

// nodes returns the host's nodes; none if that cannot be read, as without root.
func (d *Driver) nodes() []string {
	nodes, _ := state.Nodes(d.Config.Paths.Run, "")
	return nodes
}

// stuckReaders returns the readers of /proc on this host that cannot be killed, recorded by any of its nodes.
func (d *Driver) stuckReaders() (all []state.Stuck) {
	for _, node := range d.nodes() {
		all = append(all, state.PeekReaders(d.Config.Paths.Run, node, d.Alive)...)
	}
	return all
}

// procReader returns a reader of other processes' /proc, or child.ErrStuck if there must be no new one.
func (d *Driver) procReader(op string, timeout time.Duration) (procscan.Reader, error) {
	skip, blocked := hungAt(op, d.stuckReaders())
	if blocked || d.unkept {
		return procscan.Reader{}, &child.Error{Op: op, Err: child.ErrStuck}
	}
	paths := d.Config.Paths
	return procscan.Reader{Proc: paths.Proc, Dev: paths.Dev, Skip: skip, Timeout: timeout}, nil
}

// hungAt returns the processes at which stuck readers of /proc hang: a new reader skips them. With too many readers on
// record, the new one skips every process's memory, which is what hangs. blocked means that there must be no new
// reader: an earlier one did not report where it hangs.
func hungAt(op string, readers []state.Stuck) (at []record.Instance, blocked bool) {
	for _, r := range readers {
		at, blocked = append(at, r.At...), blocked || len(r.At) == 0 && r.Op == op
	}
	if len(readers) >= state.MaxReaders {
		at = []record.Instance{{}}
	}
	return at, blocked
}

// readerEnded records a reader that cannot be killed and where it hangs, and reports a failure without a result, which
// it returns.
func (d *Driver) readerEnded(op string, failure error, hung []record.Instance) error {
	d.abandonedReader(failure, hung)
	var failed *child.Error
	if failure == nil || errors.As(failure, &failed) && failed.Answered {
		return nil
	}
	d.childFault(op, failure)
	return failure
}

// abandonedReader records a child that could not be killed while it read other processes' /proc, for the host's first
// node if the caller has none. The driver may be fine: later hooks only skip what it reads. If it cannot be recorded,
// this hook starts no other.
func (d *Driver) abandonedReader(failure error, hung []record.Instance) {
	left := leftBehind(failure, d.Clock.Boot())
	if left == nil {
		return
	}
	store, err := d.Store, error(nil)
	if nodes := d.nodes(); store == nil && len(nodes) > 0 {
		store, err = state.Open(d.Config.Paths.Run, nodes[0])
	}
	if store == nil {
		err = errors.Join(errors.New("no record of a stuck reader can be kept"), err)
	} else {
		left.At = hung
		err = store.AddReader(*left, d.Alive)
	}
	d.Try(err)
	d.unkept = d.unkept || err != nil
}

// visit is one child that works on the files of the job's user. A hook that runs alongside it collects its trouble.
type visit struct {
	hook    *Driver
	reserve time.Duration // what the hook needs afterwards
	trouble error
}

// errStuckVisit means that there was no visit, because an earlier one is stuck.
var errStuckVisit = errors.New("an earlier job's output lies on a file system that does not answer")

// visited runs an operation on the user's files, unless an earlier child that works on them cannot be killed. A stuck
// one is recorded apart from those stuck in the driver, so that no user can keep hooks from the driver.
func visited[Req, Rep any](v *visit, op child.Operation[Req, Rep], request Req) (reply Rep, err error) {
	d, user := v.hook, v.hook.Job.UID
	earlier, err := d.Store.Stuck(&user, d.Alive)
	v.trouble = errors.Join(v.trouble, err)
	if earlier != nil {
		return reply, fmt.Errorf("%w: PID %d (%s) cannot be killed", errStuckVisit, earlier.PID, earlier.Op)
	}
	reply, err = op.Ask(request, d.Left(time.Duration(d.Times.Append), v.reserve))
	if left := leftBehind(err, d.Clock.Boot()); left != nil {
		left.User = &user
		v.trouble = errors.Join(v.trouble, d.Store.SetStuck(*left, d.Alive))
	}
	return reply, err
}
