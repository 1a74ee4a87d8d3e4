// Package compare compares a job's start and end, and returns what it finds as data.
package compare

import (
	"slices"

	"bookend/internal/catalog"
	"bookend/internal/record"
)

// Again joins the findings from before and after processes were ended; the input is that of the second samples. A GPU
// that settled again is judged by these alone. On any other GPU a first finding stays unless they repeat it or prove
// that its process is gone, but what an ended process may have held is no longer certain.
func (s Input) Again(first, second []record.Finding) []record.Finding {
	var kept []record.Finding
	for _, f := range first {
		settled := f.GPU != "" && s.Now.Curves[f.GPU].State.AtRest() || f.GPU == "" && s.Now.Settled(s.Cards)
		if settled || slices.ContainsFunc(second, f.Same) || s.Now.Lacks(f) {
			continue
		}
		if f.Holder != nil && f.Code != catalog.Trespass || f.WithoutProcess() {
			f.Doubts = slices.Clone(f.Doubts)
			f.AddDoubt("processes were ended since, and the GPU was not seen settled again")
		}
		kept = append(kept, f)
	}
	return append(kept, second...)
}
