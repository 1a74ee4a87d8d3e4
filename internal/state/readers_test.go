package state

import (
	"testing"
	"time"

	"bookend/internal/attrib"
)

// A stuck reader is never forgotten for another, and the record of as many as there may be fits.
func TestReadersAreBounded(t *testing.T) {
	run := t.TempDir()
	s, err := Open(run, node)
	if err != nil {
		t.Fatal(err)
	}
	dead := map[int]bool{}
	alive := func(s Stuck) bool { return !dead[s.PID] }
	places := func(n int) (at []attrib.Instance) {
		for i := range n {
			at = append(at, attrib.Instance{PID: 4_000_000 + i, Start: 1e17 + time.Duration(i)})
		}
		return at
	}
	add := func(pid, n int) error {
		return s.AddReader(Reader{Stuck: Stuck{PID: pid, StartTicks: 1e17, Since: 1e17, Op: "processes"}, At: places(n)}, alive)
	}
	for i := range MaxReaders {
		if err := add(4_000_000+i, 8+i%2); err != nil {
			t.Fatalf("reader %d: %v", i, err)
		}
	}
	on := PeekReaders(run, node, alive)
	if len(on) != MaxReaders || len(on[0].At) != 8 || len(on[1].At) != 0 {
		t.Errorf("on record: %d, with %d and %d places", len(on), len(on[0].At), len(on[1].At))
	}
	if err := add(7, 1); err == nil || len(s.Readers(alive)) != MaxReaders || s.Readers(alive)[0].PID != 4_000_000 {
		t.Errorf("one too many: %v, first %+v", err, s.Readers(alive)[0])
	}
	dead[4_000_000] = true
	if err := add(7, 1); err != nil || len(s.Readers(alive)) != MaxReaders {
		t.Errorf("once one has ended: %v, %d on record", err, len(s.Readers(alive)))
	}
	if PeekReaders(run, "../"+node, alive) != nil {
		t.Error("a name that is no node's was used")
	}
}
