package operation

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"bookend/internal/attrib"
	"bookend/internal/child"
	"bookend/internal/clock"
	"bookend/internal/config"
	"bookend/internal/slurm"
	"bookend/internal/state"
)

// Hung are the processes that stuck readers of /proc are at: a new reader leaves them alone. Blocked says that there must be
// no new one: it would get stuck as well where an earlier one did not say what it is at, and could not be put on record where
// there are too many already.
func Hung(op string, readers []state.Reader) (at []attrib.Instance, blocked bool) {
	blocked = len(readers) >= state.MaxReaders
	for _, r := range readers {
		at, blocked = append(at, r.At...), blocked || len(r.At) == 0 && r.Op == op
	}
	return at, blocked
}

// stuckAt is the reader that a child's failure leaves behind; ok is false if it ended.
func stuckAt(op string, err error, now clock.Clock, at []attrib.Instance) (r state.Reader, ok bool) {
	var failed *Error
	if !errors.As(err, &failed) || failed.Result.Outcome != child.Abandoned {
		return state.Reader{}, false
	}
	stuck := state.Stuck{PID: failed.Result.PID, StartTicks: failed.Result.StartTicks, Since: now.Boot(), Op: op}
	return state.Reader{Stuck: stuck, At: at}, true
}

// Readers are the readers of /proc of this host that got stuck: those that one node's state has on record or, without a
// Store, any node's of the host.
type Readers struct {
	Config config.Config
	Clock  clock.Clock
	Store  *state.Store
}

func (r Readers) alive(s state.Stuck) bool {
	return child.Alive(r.Config.Paths.Proc, s.PID, s.StartTicks)
}

// errNotKept: this host has no state in which a record could be kept.
var errNotKept = errors.New("no record of a stuck reader can be kept")

// nodes are the host's that have state in this boot; none where that cannot be read, as without root.
func (r Readers) nodes() []string {
	nodes, _ := state.Nodes(r.Config.Paths.Run, "")
	return nodes
}

// Stuck are the readers on record. Looking at them changes nothing.
func (r Readers) Stuck() (all []state.Reader) {
	if r.Store != nil {
		return r.Store.Readers(r.alive)
	}
	for _, node := range r.nodes() {
		all = append(all, state.PeekReaders(r.Config.Paths.Run, node, r.alive)...)
	}
	return all
}

// Keep puts a reader that was left behind on record, where a child's failure left one. Without a Store it is for the hooks
// of every node.
func (r Readers) Keep(op string, failure error, at []attrib.Instance) error {
	left, ok := stuckAt(op, failure, r.Clock, at)
	switch {
	case !ok:
		return nil
	case r.Store != nil:
		return r.Store.AddReader(left, r.alive)
	}
	nodes := r.nodes()
	if len(nodes) == 0 {
		return errNotKept
	}
	var failed error
	for _, node := range nodes {
		store, err := state.Open(r.Config.Paths.Run, node)
		if err == nil {
			err = store.AddReader(left, r.alive)
		}
		failed = errors.Join(failed, err)
	}
	return failed
}

// onCardsTime is for one search of the node's processes: 20 000 with 50 descriptors each took 0.9 s.
const onCardsTime = 1500 * time.Millisecond

// Holdings searches for the processes that have a device node of the driver open now. It waits for at most 1.5 s, leaves
// alone what hooks got stuck at, and puts a child that gets stuck itself on record for them.
func Holdings(r Readers) attrib.Scan {
	skip, blocked := Hung(Holders.Name, r.Stuck())
	if blocked {
		return attrib.Scan{Partial: ErrStuck.Error()}
	}
	request := HoldersRequest{Proc: r.Config.Paths.Proc, Dev: r.Config.Paths.Dev, Budget: onCardsTime - ScanReserve, Skip: skip}
	scan, err := Holders.Ask(request, onCardsTime)
	unkept := r.Keep(Holders.Name, err, scan.Hung)
	var failed *Error
	if errors.As(err, &failed) && failed.Answered {
		err = nil // what it found stands
	}
	if err = errors.Join(err, unkept); err != nil {
		scan.Partial = err.Error()
	}
	return scan
}

// JobsOnCards are the jobs whose processes, by their cgroups, have a GPU's device node open now; what cannot be told is no
// trouble of the hooks'.
func JobsOnCards(r Readers) []slurm.Owner {
	var jobs []slurm.Owner
	for _, h := range Holdings(r).Holdings {
		job := slurm.Owner{ID: h.Cgroup.ID, SLUID: h.Cgroup.SLUID}
		if len(h.Minors) > 0 && !h.Gone && job.Found() && !slices.Contains(jobs, job) {
			jobs = append(jobs, job)
		}
	}
	return jobs
}

// ScanReserve is the time a look at processes has to hand in what it found, before its child would be killed.
const ScanReserve = 200 * time.Millisecond

// Backend and SlurmdG stand for the backend and for slurmd -G among the operations of children that got stuck.
const (
	Backend = "backend"
	SlurmdG = "slurmd -G"
)

// InDriver reports whether a child is stuck where only the driver can have kept it.
func InDriver(s state.Stuck) bool { return s.Op == Backend || s.Op == Inventory.Name }

// StuckText words a child that cannot be killed, for hooks and the command line.
func StuckText(s state.Stuck, since string) string {
	if s.Op == SlurmdG { // of an earlier release
		return fmt.Sprintf("stuck since %s: PID %d (%s) cannot be killed", since, s.PID, s.Op)
	}
	if InDriver(s) {
		return fmt.Sprintf("driver not answering since %s: PID %d (%s) cannot be killed", since, s.PID, s.Op)
	}
	return fmt.Sprintf("stuck since %s: PID %d, which was reading /proc (%s), cannot be killed", since, s.PID, s.Op)
}
