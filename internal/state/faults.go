package state

import (
	"maps"
	"time"
)

const sayAgain = time.Hour

var faultsFile = file[map[string]fault]{name: "faults.json", most: maxShared}

// fault is when a fault was last said, and how often it was not since.
type fault struct {
	Said       time.Duration `json:"said_ns"` // CLOCK_BOOTTIME
	Suppressed int           `json:"suppressed"`
}

// lately reports that a fault was said within the hour. What lies before the boot was never said.
func (f fault) lately(now time.Duration) bool {
	return f.Said > 0 && now >= f.Said && now-f.Said < sayAgain
}

// Repeat reports whether a fault is to be said now: once an hour a node. suppressed is how often it was not, since
// it was said last. Where the count cannot be kept it is said each time: a fault is never silent.
func (s *Store) Repeat(code string, now time.Duration) (say bool, suppressed int) {
	err := faultsFile.change(s, func(on *map[string]fault) (*map[string]fault, error) {
		faults := map[string]fault{}
		maps.Copy(faults, orNone(on))
		f := faults[code]
		if f.lately(now) {
			f.Suppressed++
		} else {
			say, suppressed = true, f.Suppressed
			f = fault{Said: now}
		}
		maps.DeleteFunc(faults, func(_ string, f fault) bool { return !f.lately(now) }) // they would grow in number
		faults[code] = f
		return &faults, nil
	})
	if err != nil {
		return true, 0
	}
	return say, suppressed
}
