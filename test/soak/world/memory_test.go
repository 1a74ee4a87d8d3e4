package world

import (
	"testing"
	"time"

	"bookend/internal/gpu"
)

// quiet is a node with one card, on which nothing happens but what a test makes happen.
func quiet() *Node {
	n := New(1, 1, func(_ *Job, _ Side, done func()) { done() })
	n.Site, n.agenda = Site{}, agenda{}
	n.Cards = []*Card{n.card(0)}
	n.Cards[0].Lost = Forever
	return n
}

// pass lets time pass, with what happens in it.
func (n *Node) pass(d time.Duration) {
	end := n.Now + d
	for len(n.agenda.heap) > 0 && n.agenda.heap[0].at <= end {
		e, _ := n.agenda.pop()
		n.Now = max(n.Now, e.at)
		e.do()
	}
	n.Now = end
}

func (n *Node) look() gpu.Reading { return n.Snapshot(n.Cards).Readings[0] }

// The rows of the measured table: what the driver shows while the maker lives, once it is killed, and once its
// successor is.
func TestMemoryOutlivesProcesses(t *testing.T) {
	const bytes = 1024 * MiB
	const nobody, maker, keeper = 0, 1, 2
	tests := []struct {
		name   string
		make   func(n *Node, p, q *Process)
		listed int // after the maker's end
		stays  bool
	}{
		{"a process alone", func(n *Node, p, _ *Process) { n.hold(p, n.Cards[0], bytes) }, nobody, false},
		{"fork without exec", func(n *Node, p, q *Process) { n.share(n.hold(p, n.Cards[0], bytes), q) }, maker, true},
		{"exported handle", func(n *Node, p, q *Process) { n.share(n.chunk(p, n.Cards[0], Exported, bytes), q) }, nobody, true},
		{"importer", func(n *Node, p, q *Process) { n.share(n.chunk(p, n.Cards[0], Imported, bytes), q) }, keeper, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := quiet()
			p, q := n.newProcess("p", 1), n.newProcess("q", 1)
			tt.make(n, p, q)
			if r := n.look(); r.Memory.Used.Bytes < bytes || len(r.Processes) == 0 || r.Processes[0].PID != p.PID {
				t.Errorf("while it lives: %+v", r)
			}
			n.end(p)
			n.pass(500 * time.Millisecond)
			r := n.look()
			if stays := r.Memory.Used.Bytes >= bytes; stays != tt.stays {
				t.Errorf("after its end %d bytes are used", r.Memory.Used.Bytes)
			}
			want := map[int]int{nobody: 0, maker: p.PID, keeper: q.PID}[tt.listed]
			if got := first(r); got != want {
				t.Errorf("after its end PID %d is listed, want %d", got, want)
			}
			n.end(q)
			n.pass(500 * time.Millisecond)
			if r := n.look(); r.Memory.Used.Bytes != 0 || len(r.Processes) != 0 {
				t.Errorf("when all are gone: %+v", r)
			}
		})
	}
}

func first(r gpu.Reading) int {
	if len(r.Processes) == 0 {
		return 0
	}
	return r.Processes[0].PID
}
