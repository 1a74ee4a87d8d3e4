package judge

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"bookend/internal/attribution"
	"bookend/internal/compare"
	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/slurm"
)

// On a GPU that does not settle what stays is named, and drains: memory that falls by a few MiB at each look, or goes up
// and down, is not being given back. Memory that would be gone in 5 s at the rate of the whole watch is.
func TestSmallMovements(t *testing.T) {
	const second = time.Second
	falls := func(from, to uint64) func(int) uint64 { // over the seven looks of the first watch, and on
		return func(i int) uint64 { return (from*6 - (from-to)*uint64(min(i, 6))) / 6 }
	}
	saw := func(base, high uint64) func(int) uint64 { return func(i int) uint64 { return base + high*uint64(i%2) } }
	steps := func(all ...uint64) func(int) uint64 {
		return func(i int) uint64 { return all[min(i, len(all)-1)] * gib }
	}
	still := func(bytes uint64) func(int) uint64 { return func(int) uint64 { return bytes } }
	type held struct {
		pid   int // 0: memory that no process is listed for
		curve func(int) uint64
	}
	mine := record.Process{UID: 1001, Start: 5 * second, Cgroup: slurm.Owner{ID: 10}}
	noise := held{71, saw(2*mib, 4*mib)}
	for name, tt := range map[string]struct {
		memory []held
		who    record.Process // each PID
		ends   int            // this PID ends before the last look
		again  int            // looks of the second watch
		holder bool           // a process has the driver open and nothing else, and ends before the last look
		want   string         // what drains is marked "!"
	}{
		"falls by 3 MiB a look":            {memory: []held{{70, falls(9*gib, 9*gib-18*mib)}}, who: mine, want: "ORPHAN:70! MOVING"},
		"goes up and down by 4 MiB":        {memory: []held{{70, saw(9*gib, 4*mib)}}, who: mine, want: "ORPHAN:70! MOVING"},
		"a tenth less at the last look":    {memory: []held{{70, steps(10, 10, 10, 10, 10, 10, 9)}}, who: mine, want: "ORPHAN:70! MOVING"},
		"up and down by half, down now":    {memory: []held{{70, steps(10, 5, 10, 5, 10, 10, 5)}}, who: mine, want: "ORPHAN:70! MOVING"},
		"a pool given back over 6 s":       {memory: []held{{70, falls(60*gib, 8*gib)}}, who: mine, want: "ORPHAN:70 MOVING"},
		"given back after it was taken":    {memory: []held{{70, steps(10, 60, 60, 45, 30, 15, 8)}}, who: mine, want: "ORPHAN:70 MOVING"},
		"jumps of a teardown":              {memory: []held{{70, steps(140, 1, 140, 140, 140, 1, 0)}}, who: mine, want: "ORPHAN:70 MOVING"},
		"beside what is another's":         {memory: []held{{70, falls(60*gib, 8*gib)}, {73, still(gib)}, {0, still(9 * gib)}}, who: mine, want: "ORPHAN:70 STRAY:73 RESIDUE MOVING"},
		"two that are enough together":     {memory: []held{{70, still(300 * mib)}, {72, still(300 * mib)}, noise}, who: mine, want: "ORPHAN:70! ORPHAN:72! ORPHAN:71! MOVING"},
		"two that are not":                 {memory: []held{{70, still(200 * mib)}, {72, still(200 * mib)}, noise}, who: mine, want: "ORPHAN:70 ORPHAN:72 ORPHAN:71 MOVING"},
		"its first thread has ended":       {memory: []held{{70, still(9 * gib)}, noise}, who: state("Z", mine), want: "ORPHAN:70! ORPHAN:71! MOVING"},
		"no process, and another moves":    {memory: []held{{0, still(9 * gib)}, noise}, who: mine, want: "ORPHAN:71! RESIDUE! MOVING"},
		"no process, moves itself":         {memory: []held{{0, saw(9*gib, 4*mib)}}, want: "RESIDUE! MOVING"},
		"no process, falls by 3 MiB":       {memory: []held{{0, falls(9*gib, 9*gib-18*mib)}}, want: "RESIDUE! MOVING"},
		"no process, on its way back":      {memory: []held{{0, falls(60*gib, 8*gib)}}, want: "RESIDUE MOVING"},
		"no process, little":               {memory: []held{{0, still(20 * mib)}, {70, saw(9*gib, 4*mib)}}, who: mine, want: "ORPHAN:70! MOVING"},
		"no process, another in its place": {memory: []held{{0, steps(9, 9, 9, 9, 9, 9, 9, 18, 9)}, noise}, who: mine, want: "ORPHAN:71 RESIDUE MOVING"},
		"no process, and a holder ends":    {memory: []held{{0, saw(9*gib, 4*mib)}}, holder: true, want: "RESIDUE MOVING"},
		"gone, and for a whole watch":      {memory: []held{{70, still(9 * gib)}, noise}, who: record.Process{Gone: true}, again: 7, want: "PHANTOM:70! PHANTOM:71! MOVING"},
		"gone, for one look more":          {memory: []held{{70, still(9 * gib)}, noise}, who: record.Process{Gone: true}, want: "PHANTOM:70 PHANTOM:71 MOVING"},
		"gone, and a holder ends":          {memory: []held{{70, still(9 * gib)}, noise}, who: record.Process{Gone: true}, again: 7, holder: true, want: "PHANTOM:70 PHANTOM:71 MOVING"},
		"a dead one hides no living":       {memory: []held{{70, still(9 * gib)}, noise}, who: mine, ends: -71, want: "ORPHAN:70! PHANTOM:71 MOVING"},
		"one that ends at the last look":   {memory: []held{{70, still(9 * gib)}, noise}, who: mine, ends: 71, want: "ORPHAN:70! MOVING"},
		"memory of one that ends is none":  {memory: []held{{70, still(9 * gib)}, noise}, who: mine, ends: 70, want: "ORPHAN:71 MOVING"},
	} {
		look := func(i int) gpu.Snapshot {
			var used uint64
			var list []gpu.Process
			for _, h := range tt.memory {
				used += h.curve(i)
				if h.pid > 0 {
					used += 9 * mib
					list = append(list, gpu.Process{PID: h.pid, Memory: gpu.Bytes(h.curve(i))})
				}
			}
			return looks(10+i, 1, used, list...)[0]
		}
		e := &eyes{who: map[int]record.Process{}, later: map[int]record.Process{}}
		for _, pid := range []int{70, 71, 72, 73, 80} {
			p := tt.who
			if pid == 73 { // root's
				p = record.Process{Start: 5 * second}
			}
			p.PID = pid
			gone := record.Process{PID: pid, Gone: true}
			if e.who[pid], e.later[pid] = p, p; tt.ends == pid {
				e.later[pid] = gone
			} else if tt.ends == -pid || tt.holder && pid == 80 {
				e.who[pid], e.later[pid] = gone, gone
			}
		}
		if tt.holder {
			keeper := record.Process{PID: 80, UID: 1001, Start: 6 * second}
			e.scan.Holdings = []record.Holding{{Process: keeper, Control: true}}
		}
		e.watches = [][]gpu.Snapshot{nil, nil}
		for i := range 7 + max(2, tt.again) {
			e.watches[min(i/7, 1)] = append(e.watches[min(i/7, 1)], look(i))
		}
		side, cards := Observe(e, order())
		s := compare.Input{
			Job: slurm.Job{ID: 10, UID: 1001, Context: slurm.Epilog}, Cards: cards, Now: side, Limits: order().Limits,
			Book: attribution.Book{
				Self: attribution.Allocation{Job: 10, UID: 1001, GPUs: []gpu.ID{card}, Start: second, Alone: true},
			},
			Before: &record.Side{Snapshot: looks(1, 1, 0)[0], Curves: map[gpu.ID]record.Curve{card: {State: record.Clean}}},
		}
		if got := marked(compare.Compare(s)); got != tt.want {
			t.Errorf("%s: got %q, want %q: %+v", name, got, tt.want, compare.Compare(s))
		}
	}
}

func state(s string, p record.Process) record.Process { p.State = s; return p }

// marked are codes with the PID that they are about, and "!" where nothing keeps a finding from draining.
func marked(found []record.Finding) string {
	var all []string
	for _, f := range found {
		word := strings.TrimPrefix(string(f.Code), "BKD-")
		if f.Holder != nil {
			word += fmt.Sprint(":", f.Holder.PID)
		}
		if len(f.Doubts) == 0 && f.Unknown == "" {
			word += "!"
		}
		all = append(all, word)
	}
	return strings.Join(all, " ")
}
