package runrecord

import (
	"fmt"
	"slices"
)

// Kind is what machines have in common that are compared: the number and model of their GPUs.
func (m Machine) Kind() string { return fmt.Sprintf("%d × %s", m.GPUs, m.GPU) }

// Newest keeps, of files that are oldest first, the newest runs of each scenario, its control apart, and the newest times
// of each program, for each kind of machine. A file of which nothing is left is left out.
func Newest(files []File) (kept []File) {
	seen := map[string]bool{}
	for _, f := range slices.Backward(files) {
		here := map[string]bool{}
		isNew := func(what string) bool {
			key := f.Machine.Kind() + "\n" + what
			here[key] = here[key] || !seen[key]
			seen[key] = true
			return here[key]
		}
		if f = f.only(isNew); len(f.Runs) > 0 || f.Timings != nil {
			kept = append(kept, f)
		}
	}
	slices.Reverse(kept)
	return kept
}

// only leaves out what is not wanted, without touching the file's own lists.
func (f File) only(wanted func(what string) bool) File {
	f.Runs = slices.DeleteFunc(slices.Clone(f.Runs), func(r Run) bool {
		return !wanted(fmt.Sprintf("scenario %s, control %v", r.Scenario, r.Control != ""))
	})
	if f.Timings == nil {
		return f
	}
	t := *f.Timings
	t.Programs = slices.DeleteFunc(slices.Clone(t.Programs), func(p Timing) bool { return !wanted("program " + p.Name) })
	t.Pairs = slices.DeleteFunc(slices.Clone(t.Pairs), func(p Pair) bool { return !wanted("pair " + p.Name) })
	if f.Timings = &t; len(t.Programs)+len(t.Pairs) == 0 {
		f.Timings = nil
	}
	return f
}
