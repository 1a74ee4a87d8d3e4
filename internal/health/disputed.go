package health

import (
	"slices"

	"bookend/internal/finding"
)

// Disputed reports a finding whose own line of the table has a doubt: what was seen need not be a fault of the card,
// such as what a program's kernel can bring about. Doubts of other origin, such as a fault that was mended since, do
// not count.
func Disputed(f finding.Finding) bool {
	return slices.ContainsFunc(table(), func(r Row) bool {
		return r.Code == f.Code && r.Doubt != "" && slices.Contains(f.Doubts, r.Doubt)
	})
}
