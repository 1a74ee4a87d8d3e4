package node

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"bookend/internal/child"
	"bookend/internal/config"
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
	read, faults, _ := readProc(a, procscan.ProcessesOp, a.Left(a.Times.Scan),
		func(r procscan.Reader) (procscan.Result, error) { return r.Processes(pids) })
	for _, p := range read.Processes {
		shown[p.PID] = p
	}
	return shown, faults
}

// isBackend returns a test for root's own backend, which holds no memory.
// Threat: a user's program of that name has another UID.
func isBackend(program string) func(record.Holding) bool {
	real, _ := filepath.EvalSymlinks(program) // the path that the kernel shows
	return func(h record.Holding) bool {
		exe := strings.TrimSuffix(h.Exe, " (deleted)")
		return h.UID == 0 && !h.Cgroup.Found() && exe != "" && (exe == program || exe == real)
	}
}

// readProc reads other processes' /proc. A reader that cannot be killed is recorded with where it hangs. err is the
// failure if there is no result: child.ErrStuck if there must be no new reader.
func readProc(a *Access, op string, limit time.Duration, do func(procscan.Reader) (procscan.Result, error)) (
	found procscan.Result, faults []record.Finding, err error,
) {
	paths := a.Config.Paths
	skip, blocked := state.HungAt(op, StuckReaders(a))
	if blocked || a.unkept {
		err = &child.Error{Op: op, Err: child.ErrStuck}
	} else {
		found, err = do(procscan.Reader{Proc: paths.Proc, Dev: paths.Dev, Skip: skip, Timeout: limit})
	}
	faults = a.AbandonedReader(err, found.Hung)
	var failed *child.Error
	if err == nil || errors.As(err, &failed) && failed.Answered {
		return found, faults, nil
	}
	return found, append(faults, a.ChildFault(op, err)...), err
}

// StuckReaders returns the readers of /proc on this host that cannot be killed, recorded by any of its nodes; none if
// they cannot be read, as without root.
func StuckReaders(a *Access) (all []state.Stuck) {
	nodes, _ := state.Nodes(a.Config.Paths.Run, "")
	for _, node := range nodes {
		all = append(all, state.StuckReaders.PeekNode(a.Config.Paths.Run, node, a.alive)...)
	}
	return all
}

// AbandonedReader records a child that could not be killed while it read /proc, for the host's first node if the caller
// has none. Later hooks skip only what it reads. If it cannot be recorded, this hook starts no other.
func (a *Access) AbandonedReader(failure error, hung []record.Instance) []record.Finding {
	left := leftBehind(failure, a.Env.Clock.Boot())
	if left == nil {
		return defect(a.Env, failure)
	}
	store, err := a.Store, error(nil)
	if nodes, _ := state.Nodes(a.Config.Paths.Run, ""); store == nil && len(nodes) > 0 {
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

// PeekStuck returns a child of a node's hooks that hangs in the driver, nil without one.
func PeekStuck(paths config.Paths, name string) *state.Stuck {
	return state.PeekStuck(paths.Run, name, child.AliveIn(paths.Proc))
}

// errStuckVisit means that there was no visit, because an earlier one is stuck.
var errStuckVisit = errors.New("an earlier job's output lies on a file system that does not answer")

// Visit runs an operation on the files of the job's user, unless an earlier child that works on them cannot be killed.
// A stuck one is recorded apart from those stuck in the driver, so that no user can keep hooks from the driver. The
// hook needs reserve afterwards. trouble is about the state.
func Visit[Req, Rep any](
	a *Access, op child.Operation[Req, Rep], request Req, reserve time.Duration,
) (reply Rep, trouble, err error) {
	earlier, trouble := a.Store.Stuck(&a.Job.UID, a.alive)
	if earlier != nil {
		return reply, trouble, fmt.Errorf("%w: PID %d (%s) cannot be killed", errStuckVisit, earlier.PID, earlier.Op)
	}
	reply, err = op.Ask(request, a.Deadline.Left(time.Duration(a.Times.Append), reserve))
	if left := leftBehind(err, a.Env.Clock.Boot()); left != nil {
		left.User = &a.Job.UID
		trouble = errors.Join(trouble, state.StuckChildren.Add(a.Store, *left, a.alive))
	}
	return reply, trouble, err
}
