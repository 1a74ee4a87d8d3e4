package world

import (
	"testing"
	"time"
)

// The rows of the measured table: what the driver shows while the maker lives, once it is killed, and once its
// successor is.
func TestMemoryOutlivesProcesses(t *testing.T) {
	const bytes = 1024 * MiB
	for name, tt := range map[string]struct {
		make   func(n *Node, p, q *Process)
		listed func(p, q *Process) *Process // after the maker's end
		stays  bool
	}{
		"a process alone": {func(n *Node, p, _ *Process) { n.hold(p, n.Cards[0], bytes) }, nil, false},
		"fork without exec": {func(n *Node, p, q *Process) { n.share(n.hold(p, n.Cards[0], bytes), q) },
			func(p, _ *Process) *Process { return p }, true},
		"exported handle": {func(n *Node, p, q *Process) { n.share(n.chunk(p, n.Cards[0], Exported, bytes), q) }, nil, true},
		"importer": {func(n *Node, p, q *Process) { n.share(n.chunk(p, n.Cards[0], Imported, bytes), q) },
			func(_, q *Process) *Process { return q }, true},
	} {
		t.Run(name, func(t *testing.T) {
			n := New(1, 1, nil)
			n.Site, n.agenda = Site{}, nil
			n.Cards = []*Card{n.card(0)}
			n.Cards[0].Lost = Forever
			p, q := n.newProcess("p", 1), n.newProcess("q", 1)
			shows := func(when string, used bool, listed *Process) {
				t.Helper()
				r := n.Snapshot(n.Cards).Readings[0]
				first := 0
				if len(r.Processes) > 0 {
					first = r.Processes[0].PID
				}
				if r.Memory.Used.Bytes >= bytes != used || listed != nil && first != listed.PID || listed == nil && first != 0 {
					t.Errorf("%s: %+v", when, r)
				}
			}
			tt.make(n, p, q)
			shows("while it lives", true, p)
			n.end(p)
			n.Now += 500 * time.Millisecond
			var listed *Process
			if tt.listed != nil {
				listed = tt.listed(p, q)
			}
			shows("after its end", tt.stays, listed)
			n.end(q)
			n.Now += 500 * time.Millisecond
			shows("when all are gone", false, nil)
		})
	}
}
