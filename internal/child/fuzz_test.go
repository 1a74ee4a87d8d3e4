package child

import (
	"math"
	"strconv"
	"strings"
	"testing"
)

// Whatever a process calls itself, its state, parent, threads and start stay the kernel's: a live child is never taken
// for dead, nor another process for an ancestor.
func FuzzParseStat(f *testing.F) {
	f.Add("python", "D", 1, 1, uint64(777))
	f.Add("a) b", "Z", 7, 2, uint64(1)<<63)
	f.Add("x) Z 1 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 9 (", "S", 4194304, 40, uint64(0))
	f.Add("\n1 (init) Z", "X", -5, -1, uint64(math.MaxUint64))
	f.Fuzz(func(t *testing.T, name, state string, parent, threads int, ticks uint64) {
		if st, err := parseStat([]byte(name)); err != nil && st != (stat{}) {
			t.Errorf("%+v with error %v", st, err)
		}
		if len(state) != 1 || strings.TrimSpace(state) == "" || state == ")" {
			return
		}
		want := stat{state: state[0], parent: parent, threads: threads, ticks: ticks}
		fields := strings.Repeat(" 0", fieldThreads-fieldParent-1) + " " + strconv.Itoa(threads) + " 0 "
		line := "42 (" + name + ") " + state + " " + strconv.Itoa(parent) + fields + strconv.FormatUint(ticks, 10) + " 9\n"
		got, err := parseStat([]byte(line))
		if (err == nil) != (parent >= 0) || err == nil && got != want {
			t.Errorf("name %q: %+v, %v; want %+v", name, got, err, want)
		}
		if got.dead() && (state != "Z" && state != "X" || threads > 1) {
			t.Errorf("%+v counts as dead", got)
		}
	})
}
