package faults

import (
	"os"
	"testing"
)

// A job that fills the drop has filled it until its end; whoever gets its id then, though no end came, finds nothing of
// it, and the earlier user writes into nothing of theirs.
func TestDropEnds(t *testing.T) {
	n := newNode(t, "enforce")
	n.mountRun("size=64m,nr_inodes=8k")
	n.clean(prolog, newJob())
	earlier, err := os.OpenFile(n.dropped(), os.O_WRONLY, 0)
	must(t, err)
	defer earlier.Close()
	must(t, os.Truncate(n.dropped(), 8<<20))
	if o := n.hook(prolog, newJob().Of(bystander)); o.exit != 0 {
		t.Fatal(o)
	}
	_, err = earlier.WriteString("mine")
	must(t, err)
	if text := n.get(n.dropped()); text != "" {
		t.Errorf("the later user finds %.80q", text)
	}
	n.dropRaw("x")
	must(t, os.Chown(n.dropped(), bystander, bystander))
	if o := n.hook(epilog, newJob().Of(bystander)); o.exit != 0 {
		t.Error(o)
	}
	if left, err := os.ReadDir(n.in("run/drop")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
