package recorder

import (
	"cmp"
	"slices"
	"time"

	"bookend/internal/record"
	"bookend/internal/state"
)

// noteOutputs notes once where the output of each batch job goes: its epilog cannot derive every name of a file, and
// nothing else shows it after the job. A job whose output is no file is searched again, as it may not have begun.
func (r *recorder) noteOutputs(runs []record.Run) {
	const (
		longest = 30 * time.Second // between two searches
		enough  = time.Second      // for all that are due: samples wait meanwhile
	)
	outputs, searched, news := state.Outputs{}, map[string]time.Duration{}, false
	began, least := r.env.Clock.Boot(), func(x, y record.Run) int { // no job's output keeps others from being found
		return cmp.Compare(r.searched[x.Name()], r.searched[y.Name()])
	}
	for _, run := range slices.SortedStableFunc(slices.Values(runs), least) {
		name, now := run.Name(), r.env.Clock.Boot()
		known, last, age := r.kept.Outputs[name], r.searched[name], now-run.Start.At
		if known.Output.Path == "" && age >= last+min(last, longest) && now-began < enough {
			last = age
			seen := r.a.BatchOutputs(run)
			known.Output, known.Errors = cmp.Or(seen.Output, known.Output), cmp.Or(seen.Errors, known.Errors)
		}
		outputs[name], searched[name] = known, last
		news = news || known != r.kept.Outputs[name]
	}
	r.kept.Outputs, r.searched = outputs, searched
	if news {
		_ = state.Recorded.Write(r.a.Store, r.kept) // as in take
	}
}
