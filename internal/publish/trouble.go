package publish

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"bookend/internal/record"
	"bookend/internal/state"
)

const maxDiskDetail = 1 << 10 // bytes of Detail

// noteDisk records the outcome of tasks: the trouble of each, or nil if it succeeded.
func noteDisk(s *state.Store, outcomes map[record.DiskTask]*record.DiskTrouble, at time.Time) error {
	return state.DiskTroubles.Update(s, func(all *[]record.DiskTrouble) error {
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
			return state.ErrNone
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

const sayAgain = time.Hour

var faultsFile = state.Value[map[string]fault]("faults.json", 64<<10)

type fault struct {
	Said       time.Duration `json:"said_ns"` // CLOCK_BOOTTIME
	Suppressed int           `json:"suppressed"`
}

// lately reports whether a fault was reported within the hour. A time after now is of an earlier boot.
func (f fault) lately(now time.Duration) bool {
	return f.Said > 0 && now >= f.Said && now-f.Said < sayAgain
}

// repeat reports whether to report a fault now: once an hour per node. suppressed is how often it was not, since it was
// last reported. If the count cannot be stored, the fault is reported each time: it is never silent.
func repeat(s *state.Store, code string, now time.Duration) (say bool, suppressed int) {
	err := faultsFile.Update(s, func(faults *map[string]fault) error {
		all := maps.Collect(maps.All(*faults))
		f := all[code]
		if f.lately(now) {
			f.Suppressed++
		} else {
			say, suppressed = true, f.Suppressed
			f = fault{Said: now}
		}
		maps.DeleteFunc(all, func(_ string, f fault) bool { return !f.lately(now) }) // or they would accumulate
		all[code] = f
		*faults = all
		return nil
	})
	if err != nil {
		return true, 0
	}
	return say, suppressed
}
