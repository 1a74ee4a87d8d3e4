package ledger

import (
	"cmp"
	"slices"
	"time"

	"bookend/internal/gpu"
)

// maxAccounts is how many processes of accounting a card's record keeps: the driver keeps thousands, of all jobs, and
// the records of a node lie in memory.
const maxAccounts = 32

// Accounts leaves of what accounting has the processes that began since a moment (wall time), the largest first; of an
// unknown moment, since any.
func Accounts(all []gpu.Health, since time.Time) []gpu.Health {
	kept := slices.Clone(all)
	for i := range kept {
		a := &kept[i].Accounting
		a.Processes = slices.DeleteFunc(slices.Clone(a.Processes), func(p gpu.Accounted) bool {
			return !since.IsZero() && !p.Began.IsZero() && p.Began.Before(since)
		})
		slices.SortStableFunc(a.Processes,
			func(x, y gpu.Accounted) int { return cmp.Compare(y.Peak.Bytes, x.Peak.Bytes) })
		a.Processes = a.Processes[:min(len(a.Processes), maxAccounts)]
	}
	return kept
}
