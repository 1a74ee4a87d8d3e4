package health

import (
	"slices"

	"bookend/internal/finding"
	"bookend/internal/gpu"
)

// Compares reports whether Judge wants Input.Before: only where a counter is not at rest.
func Compares(now []gpu.Health) bool {
	return slices.ContainsFunc(now, func(h gpu.Health) bool {
		f, ok := h.Fact(gpu.ECCUncorrected)
		return ok && f.Unknown == "" && f.Value != "0"
	})
}

// Disputed reports a finding whose own line of the table has a doubt: what was seen need not be a fault of the card,
// such as what a program's kernel can bring about. Doubts of other origin, such as a fault that was mended since, do
// not count.
func Disputed(f finding.Finding) bool {
	return slices.ContainsFunc(table(), func(r Row) bool {
		return r.Code == f.Code && r.Doubt != "" && slices.Contains(f.Doubts, r.Doubt)
	})
}
