package state

import (
	"cmp"
	"slices"
	"time"

	"bookend/internal/record"
)

const maxDiskDetail = 1 << 10 // bytes of Detail

// DiskTroubles are the troubles of each task whose last attempt failed.
var DiskTroubles = File[[]record.DiskTrouble]{name: "disk-troubles.json", most: maxShared}

// NoteDisk records the outcome of tasks: the trouble of each, or nil if it succeeded.
func (s *Store) NoteDisk(outcomes map[record.DiskTask]*record.DiskTrouble, at time.Time) error {
	return DiskTroubles.Update(s, func(all *[]record.DiskTrouble) error {
		for task, trouble := range outcomes {
			var before record.DiskTrouble
			*all = slices.DeleteFunc(*all, func(t record.DiskTrouble) bool {
				if t.Task == task {
					before = t
				}
				return t.Task == task
			})
			if trouble != nil {
				*all = append(*all, continued(*trouble, before, at))
			}
		}
		if len(*all) == 0 {
			return errNone
		}
		slices.SortFunc(*all, func(a, b record.DiskTrouble) int { return cmp.Compare(a.Task, b.Task) })
		return nil
	})
}

// continued returns t as the continuation of the trouble before, which is zero if there was none.
func continued(t, before record.DiskTrouble, at time.Time) record.DiskTrouble {
	t.Since, t.Last, t.Count, t.Dropped = before.Since, at, before.Count+1, before.Dropped+t.Dropped
	if before.Count == 0 {
		t.Since = at
	}
	t.Detail = t.Detail[:min(len(t.Detail), maxDiskDetail)]
	return t
}
