package child

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"bookend/test/must"
)

// Whatever a process calls itself, the rest of its line stays the kernel's: a live child is never taken for dead, nor
// another process for an ancestor.
func FuzzParseStat(f *testing.F) {
	f.Add("python", "D", 1, 4194560, 1, uint64(777))
	f.Add("a) b", "Z", 7, 4, 2, uint64(1)<<63)
	f.Add("x) Z 1 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 9 (", "S", 4194304, 0, 40, uint64(0))
	f.Add("\n1 (init) Z", "X", -5, -1, -1, uint64(math.MaxUint64))
	f.Fuzz(func(t *testing.T, name, state string, parent, flags, threads int, ticks uint64) {
		st, err := ParseStat(name)
		must.Not(t, err != nil && st != (Stat{}) || err == nil && !strings.Contains(name, "("+st.Name+")"),
			"%+v with error %v", st, err)
		if len(state) != 1 || strings.TrimSpace(state) == "" || state == ")" {
			return
		}
		want := Stat{name, state[0], parent, uint64(flags), threads, ticks, flags%2 == 1}
		got, err := ParseStat(fmt.Sprintf("42 (%s) %s %d 0 0 %d 0 %d%s %d 0 %d 9\n", name, state, parent, flags&1*34816, flags,
			strings.Repeat(" 0", fieldThreads-fieldFlags-1), threads, ticks))
		if possible := parent >= 0 && parent < 1<<31 && flags >= 0; (err == nil) != possible || err == nil && got != want {
			t.Errorf("name %q: %+v, %v; want %+v", name, got, err, want)
		}
		must.Not(t, got.dead() && (state != "Z" && state != "X" || threads > 1), "%+v counts as dead", got)
	})
}

// The groups are those of one line of numbers, and never root's.
func FuzzGroups(f *testing.F) {
	f.Add("1000 27 4\n", uint32(1000))
	f.Add("alice 1000 27\n", uint32(1000))
	f.Add("0 4294967295\n", uint32(5))
	f.Add("1\n0\n", uint32(5))
	f.Add("", uint32(0))
	f.Fuzz(func(t *testing.T, out string, gid uint32) {
		all := groupsIn(out, gid)
		rest := slices.Sorted(slices.Values(all[1:]))
		must.Not(t, all[0] != gid || slices.Contains(rest, 0) || slices.Contains(rest, gid) ||
			len(slices.Compact(rest)) != len(all)-1, "%v with group %d", all, gid)
		for _, g := range rest {
			must.Not(t, !slices.Contains(strings.Fields(out), fmt.Sprint(g)) && !strings.Contains(out, "0"), "%d of %q", g, out)
		}
		for _, word := range strings.Fields(out) {
			n, err := strconv.ParseUint(word, 10, 32)
			if bad := err != nil || n == 1<<32-1; bad || strings.Contains(strings.TrimSuffix(out, "\n"), "\n") {
				must.Be(t, out, all, []uint32{gid})
			} else if len(rest) > 0 && n != 0 {
				must.Not(t, !slices.Contains(all, uint32(n)), "%d of %q is missing", n, out)
			}
		}
	})
}

// A user, and a PID namespace, is what the kernel's own lines say, whatever lines a name makes up.
func FuzzStatus(f *testing.F) {
	for _, seed := range []string{"sleep", "x\nUid:\t0\t0\t0\t0", "\nUid:\t1\t1\t1\t1\nUid:", "x\nNSpid:\t1\t2"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if uid, _, err := ParseStatus(text); err == nil && !strings.Contains(text, strconv.FormatUint(uint64(uid), 10)) ||
			err != nil && uid != 0 {
			t.Errorf("%q: %d, %v", text, uid, err)
		}
		rest := "\nUid:\t1000\t0\t0\t0\nGid:\t0\t0\t0\t0\nNSpid:\t7"
		for pids, want := range map[string]bool{"\nNSpgid:\t7\t1\n": false, "\t1\nNSpgid:\t7\t1\n": true} {
			uid, other, err := ParseStatus("Name:\t" + text + rest + pids)
			must.Not(t, uid != 1000 || other != want || err != nil, "name %q: %d, %v, %v", text, uid, other, err)
		}
	})
}
