package stage

import (
	"errors"

	"bookend/internal/attrib"
	"bookend/internal/child"
	"bookend/internal/clock"
	"bookend/internal/config"
	"bookend/internal/state"
)

// hung are the processes that stuck readers of /proc are at: a new reader leaves them alone. Blocked says that there must be
// no new one: it would get stuck as well where an earlier one did not say what it is at, and could not be put on record where
// there are too many already.
func hung(op string, readers []state.Reader) (at []attrib.Instance, blocked bool) {
	blocked = len(readers) >= state.MaxReaders
	for _, r := range readers {
		at, blocked = append(at, r.At...), blocked || len(r.At) == 0 && r.Op == op
	}
	return at, blocked
}

// stuckAt is the reader that a child's failure leaves behind; ok is false if it ended.
func stuckAt(op string, err error, now clock.Clock, at []attrib.Instance) (r state.Reader, ok bool) {
	var failed *childError
	if !errors.As(err, &failed) || failed.Result.Outcome != child.Abandoned {
		return state.Reader{}, false
	}
	stuck := state.Stuck{PID: failed.Result.PID, StartTicks: failed.Result.StartTicks, Since: now.Boot(), Op: op}
	return state.Reader{Stuck: stuck, At: at}, true
}

// Readers is what the programs of the command line know of this host's stuck readers of /proc, whichever of its nodes has
// them on record.
type Readers struct {
	Config config.Config
	Clock  clock.Clock
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

// stuck are the readers on record. Looking at them changes nothing.
func (r Readers) stuck() (all []state.Reader) {
	for _, node := range r.nodes() {
		all = append(all, state.PeekReaders(r.Config.Paths.Run, node, r.alive)...)
	}
	return all
}

// keep puts a reader that was left behind on record, for the hooks of every node.
func (r Readers) keep(op string, failure error, at []attrib.Instance) error {
	left, ok := stuckAt(op, failure, r.Clock, at)
	if !ok {
		return nil
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
