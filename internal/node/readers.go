package node

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"bookend/internal/child"
	"bookend/internal/procscan"
	"bookend/internal/record"
	"bookend/internal/state"
)

// leftBehind returns the child that a failure left behind, or nil.
func leftBehind(failure error, now time.Duration) *state.Stuck {
	var failed *child.Error
	if !errors.As(failure, &failed) || failed.Result.Outcome != child.Abandoned {
		return nil
	}
	return &state.Stuck{PID: failed.Result.PID, StartTicks: failed.Result.StartTicks, Since: now, Op: failed.Op}
}

// Processes returns what /proc shows of the PIDs; without PIDs it reads nothing.
func (a *Access) Processes(pids []int) (shown map[int]record.Process, faults []record.Finding) {
	shown = map[int]record.Process{}
	for _, pid := range pids {
		shown[pid] = record.Process{PID: pid, Why: "not looked up"}
	}
	if len(pids) == 0 {
		return shown, nil
	}
	var read procscan.Result
	reader, err := a.procReader(procscan.ProcessesOp, a.Left(a.Times.Scan))
	if err == nil {
		read, err = reader.Processes(pids)
	}
	faults, _ = a.readerEnded(procscan.ProcessesOp, err, read.Hung)
	for _, p := range read.Processes {
		shown[p.PID] = p
	}
	return shown, faults
}

// Holders searches /proc in a child, and leaves time for a watch of that length. It first waits until this hook's own
// backend, which has the GPUs open, has ended.
func (a *Access) Holders(then time.Duration) (*record.Scan, []record.Finding) {
	_, unrecorded := a.Ended()
	var found procscan.Result
	timeout := a.Deadline.Left(time.Duration(a.Times.Scan), a.Reserve()+then+BackendReserve)
	reader, err := a.procReader(procscan.HoldersOp, timeout)
	if err == nil {
		found, err = reader.Holders()
	}
	faults, err := a.readerEnded(procscan.HoldersOp, err, found.Hung)
	faults = slices.Concat(unrecorded, faults)
	if err != nil {
		return &record.Scan{Partial: err.Error()}, faults
	}
	found.Scan.Holdings = slices.DeleteFunc(found.Scan.Holdings, a.isBackend)
	return &found.Scan, faults
}

// isBackend reports root's own backend, which holds no memory. Threat: a user's program of that name has another UID.
func (a *Access) isBackend(h record.Holding) bool {
	exe := strings.TrimSuffix(h.Exe, " (deleted)")
	real, _ := filepath.EvalSymlinks(a.Config.Backend) // the path that the kernel shows
	return h.UID == 0 && !h.Cgroup.Found() && exe != "" && (exe == a.Config.Backend || exe == real)
}

// nodes returns the host's nodes; none if that cannot be read, as without root.
func (a *Access) nodes() []string {
	nodes, _ := state.Nodes(a.Config.Paths.Run, "")
	return nodes
}

// stuckReaders returns the readers of /proc on this host that cannot be killed, recorded by any of its nodes.
func (a *Access) stuckReaders() (all []state.Stuck) {
	for _, node := range a.nodes() {
		all = append(all, state.StuckReaders.PeekNode(a.Config.Paths.Run, node, a.alive)...)
	}
	return all
}

// StuckReader returns a recorded reader of that operation, nil for none, and when it was started, as text.
func (a *Access) StuckReader(op string) (stuck *state.Stuck, since string) {
	for _, r := range a.stuckReaders() {
		if r.Op == op {
			return &r, a.at(r.Since)
		}
	}
	return nil, ""
}

// procReader returns a reader of other processes' /proc, or child.ErrStuck if there must be no new one.
func (a *Access) procReader(op string, timeout time.Duration) (procscan.Reader, error) {
	skip, blocked := hungAt(op, a.stuckReaders())
	if blocked || a.unkept {
		return procscan.Reader{}, &child.Error{Op: op, Err: child.ErrStuck}
	}
	paths := a.Config.Paths
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

// readerEnded records a reader that cannot be killed and where it hangs. It returns the failure if there is no result.
func (a *Access) readerEnded(op string, failure error, hung []record.Instance) ([]record.Finding, error) {
	faults := a.AbandonedReader(failure, hung)
	var failed *child.Error
	if failure == nil || errors.As(failure, &failed) && failed.Answered {
		return faults, nil
	}
	return append(faults, a.ChildFault(op, failure)...), failure
}

// AbandonedReader records a child that could not be killed while it read other processes' /proc, for the host's first
// node if the caller has none. The driver may be fine: later hooks only skip what it reads. If it cannot be recorded,
// this hook starts no other.
func (a *Access) AbandonedReader(failure error, hung []record.Instance) []record.Finding {
	left := leftBehind(failure, a.Env.Clock.Boot())
	if left == nil {
		return nil
	}
	store, err := a.Store, error(nil)
	if nodes := a.nodes(); store == nil && len(nodes) > 0 {
		store, err = state.Open(a.Config.Paths.Run, nodes[0])
	}
	if store == nil {
		err = errors.Join(errors.New("no record of a stuck reader can be kept"), err)
	} else {
		left.At = hung
		err = state.StuckReaders.Add(store, *left, a.alive)
	}
	a.unkept = a.unkept || err != nil
	return Fault(err)
}

// Unkept reports that a reader of /proc is stuck and could not be recorded: this program starts no other.
func (a *Access) Unkept() bool { return a.unkept }

// ErrStuckVisit means that there was no visit, because an earlier one is stuck.
var ErrStuckVisit = errors.New("an earlier job's output lies on a file system that does not answer")

// Visit runs an operation on the files of the job's user, unless an earlier child that works on them cannot be killed.
// A stuck one is recorded apart from those stuck in the driver, so that no user can keep hooks from the driver. The
// hook needs reserve afterwards. trouble is about the state.
func Visit[Req, Rep any](
	a *Access, op child.Operation[Req, Rep], request Req, reserve time.Duration,
) (reply Rep, trouble, err error) {
	user := a.Job.UID
	earlier, trouble := a.Store.Stuck(&user, a.alive)
	if earlier != nil {
		err = fmt.Errorf("%w: PID %d (%s) cannot be killed", ErrStuckVisit, earlier.PID, earlier.Op)
		return reply, trouble, err
	}
	reply, err = op.Ask(request, a.Deadline.Left(time.Duration(a.Times.Append), reserve))
	if left := leftBehind(err, a.Env.Clock.Boot()); left != nil {
		left.User = &user
		trouble = errors.Join(trouble, state.StuckChildren.Add(a.Store, *left, a.alive))
	}
	return reply, trouble, err
}
