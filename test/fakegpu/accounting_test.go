//go:build cgo

package fakegpu

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Accounting keeps the most that a process ever held, also when it has given most of it back, and for as long as
// anybody keeps its memory it counts as running.
func TestAccountingKeepsPeaks(t *testing.T) {
	const context = 527 - 9
	w := newWorld(t, GPUs(2), With("gpu1.accounting_mode", "1"))
	c := attach(t, w)
	start(t, w, "alloc", "--gpu", "0", "--mib", "10") // accounting is off there
	freed := start(t, w, "alloc", "--gpu", "1", "--mib", "100", "--holes", "2048")
	forked := start(t, w, "alloc", "--gpu", "1", "--mib", "30", "--fork-hold")
	check := func(what string, want ...accounted) {
		t.Helper()
		got := c.look().Cards[1].Accounted
		slices.SortFunc(want, func(a, b accounted) int { return int(a.PID) - int(b.PID) })
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %+v, want %+v", what, got, want)
		}
	}
	check("alive", accounted{pid(freed), (100 + context) * MiB, true}, accounted{pid(forked), (30 + context) * MiB, true})
	freed.End()
	check("one gone, one's memory kept", accounted{pid(freed), (100 + context) * MiB, false}, accounted{pid(forked), (30 + context) * MiB, true})
	forked.End() // the child that held is not ours to wait for
	var used uint64
	var err error
	await(t, "what both held to be free", func() bool { used, err = w.Used(1); return used == 0 && err == nil },
		func() string { return fmt.Sprintf("left behind: %d, %v", used, err) })
	check("both gone", accounted{pid(freed), (100 + context) * MiB, false}, accounted{pid(forked), (30 + context) * MiB, false})
	if got := c.look().Cards[0]; got.Accounting != 0 || got.Accounted != nil {
		t.Errorf("where it is off: %+v", got)
	}
}

// Of the dead a driver keeps 128, the newest.
func TestAccountingForgetsTheOldDead(t *testing.T) {
	var list []string
	for i := range 200 {
		n := strconv.Itoa(i + 1)
		list = append(list, n+":1:"+n+":0:"+strconv.Itoa((i+1)%2)) // the even ones are dead
	}
	w := newWorld(t, GPUs(1), With("gpu0.accounting_mode", "1"), With("gpu0.accounted", strings.Join(list, " ")))
	if got := attach(t, w).look().Cards[0].Accounted; len(got) != 200 {
		t.Errorf("%d of 100 alive and 100 dead", len(got))
	}
	list = append(list, "301:1:301:0:0 302:-1:302:0:1")
	for i := range 60 {
		list = append(list, strconv.Itoa(1000+i)+":1:"+strconv.Itoa(1000+i)+":0:0")
	}
	set(t, w, "gpu0.accounted", strings.Join(list, " "))
	got := attach(t, w).look().Cards[0].Accounted
	gone := slices.IndexFunc(got, func(a accounted) bool { return a.PID == 66 })
	kept := slices.IndexFunc(got, func(a accounted) bool { return a.PID == 68 })
	if len(got) != 101+128 || gone >= 0 || kept < 0 {
		t.Errorf("%d kept, 66 at %d, 68 at %d", len(got), gone, kept)
	}
}

// MIG mode forces accounting off.
func TestAccountingInMIGMode(t *testing.T) {
	w := newWorld(t, GPUs(1), With("gpu0.accounting_mode", "1"))
	c := attach(t, w)
	if got := c.look().Cards[0].Accounting; got != 1 {
		t.Errorf("mode %d", got)
	}
	set(t, w, "gpu0.mig", "1")
	if got := c.look().Cards[0].Accounting; got != 0 {
		t.Errorf("mode %d in MIG mode", got)
	}
}
