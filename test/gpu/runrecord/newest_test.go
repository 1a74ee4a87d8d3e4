package runrecord

import (
	"fmt"
	"slices"
	"testing"

	"bookend/test/must"
)

// Of each kind of machine the newest runs of a scenario stay, all of one file, and its control; of programs the newest times.
func TestNewest(t *testing.T) {
	file := func(day, gpus int, runs ...Run) File {
		f := good()
		f.Date, f.Machine.GPUs, f.Runs = f.Date.AddDate(0, 0, day), gpus, runs
		return f
	}
	timed := func(day int, programs ...string) File {
		f := file(day, 1)
		f.Timings = &Timings{Pairs: []Pair{{Name: programs[0]}}}
		for _, name := range programs {
			f.Timings.Programs = append(f.Timings.Programs, Timing{Name: name})
		}
		return f
	}
	a, b, control := Run{Scenario: "a"}, Run{Scenario: "b"}, Run{Scenario: "a", Control: "off"}
	again := a
	again.Number = 2
	all := []File{file(1, 1, a, control), file(2, 1, a, b), file(3, 2, a), timed(4, "x", "y"), file(5, 1, a, again), timed(6, "x")}
	var got []string
	for _, f := range Newest(all) {
		for _, r := range f.Runs {
			got = append(got, fmt.Sprint(f.Date.Day(), f.Machine.GPUs, r.Scenario, r.Control, r.Number))
		}
		if f.Timings != nil {
			got = append(got, fmt.Sprint(f.Date.Day(), len(f.Timings.Programs), len(f.Timings.Pairs)))
		}
	}
	from := good().Date.Day()
	want := []string{
		fmt.Sprint(from+1, 1, "a", "off", 0), fmt.Sprint(from+2, 1, "b", "", 0), fmt.Sprint(from+3, 2, "a", "", 0),
		fmt.Sprint(from+4, 1, 0), fmt.Sprint(from+5, 1, "a", "", 0), fmt.Sprint(from+5, 1, "a", "", 2), fmt.Sprint(from+6, 1, 1),
	}
	must.Not(t, !slices.Equal(got, want), "got %q, want %q", got, want)
	must.Not(t, len(all[0].Runs) != 2 || len(all[3].Timings.Programs) != 2, "the files themselves were changed")
}
