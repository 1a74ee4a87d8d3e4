package world

import (
	"testing"
	"time"

	"bookend/internal/slurm"
)

// What sways moves 64 MiB every 0.7 s for as long as it lives, and is listed all the time.
func TestSway(t *testing.T) {
	n := quiet()
	n.sway(n.newProcess("p", 1), n.Cards[0])
	seen := map[uint64]int{}
	for range 20 {
		r := n.look()
		if len(r.Processes) != 1 {
			t.Fatalf("listed %v", r.Processes)
		}
		seen[r.Processes[0].Memory.Bytes/MiB]++
		n.pass(700 * time.Millisecond)
	}
	if len(seen) != 2 || seen[64] != 10 || seen[128] != 10 {
		t.Errorf("MiB, and how often: %v", seen)
	}
}

// In a container a process may be of any user and mostly has lost its cgroup; where records are missing it keeps the
// mark in its environment, which of a component is the leader's.
func TestContained(t *testing.T) {
	for _, disorder := range []bool{false, true} {
		n := quiet()
		n.Site = Site{Tracking: CgroupID, Disorder: disorder}
		j := &Job{ID: 8, Het: 7, UID: 1001, Cards: n.Cards}
		var users, kept, marked int
		for range 1000 {
			p := n.spawn(j, "p")
			n.contain(p)
			if !p.OtherPIDs && p.Container == "" {
				t.Fatalf("in no container: %+v", p)
			}
			users += min(1, int(max(p.UID, j.UID)-min(p.UID, j.UID)))
			if p.Cgroup.ID == j.ID {
				kept++
			}
			if p.Env == 7 {
				marked++
			} else if p.Env != 0 {
				t.Fatalf("it names job %d", p.Env)
			}
		}
		if users < 300 || users > 900 || kept == 0 || kept > 500 || (marked == 1000) != disorder {
			t.Errorf("disorder %v: %d of other users, %d in their cgroup, %d marked", disorder, users, kept, marked)
		}
	}
}

// Two components have one leader and one mark, ids and cards of their own; hooks are told both ids.
func TestComponent(t *testing.T) {
	n := quiet()
	n.Cards = append(n.Cards, n.card(1))
	j := &Job{ID: 7, Het: 7, UID: 1001, Cards: n.Cards[:1], over: func() {}}
	n.nextID = 7
	n.component(j)
	if len(n.Jobs) != 1 {
		t.Fatalf("%d jobs", len(n.Jobs))
	}
	o := n.Jobs[0]
	if told := o.Told(n.Site, Prolog); told.ID != 8 || told.HetJobID != 7 || o.UID != j.UID || o.mark() != 7 || o.Has(n.Cards[0]) {
		t.Errorf("%+v", told)
	}
	if next := n.newJob(); next.ID == 8 || next.mark() == slurm.JobID(7) {
		t.Errorf("the next job is %d", next.ID)
	}
}
