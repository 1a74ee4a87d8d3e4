package record

import (
	"slices"
	"time"
)

// Boots are the times of a node's boots, by boot id, by the wall clock at each one's newest record, as it may have been
// set before. They convert times since boot to wall times that keep the order of CLOCK_BOOTTIME within each boot.
type Boots map[string]time.Time

// BootsOf returns the boots that records name.
func BootsOf(runs []Run) Boots {
	boots, newest := Boots{}, map[string]time.Duration{}
	for _, r := range runs {
		for _, e := range r.AllEnds() {
			if boot := r.EpochOf(*e).Boot; boot != "" && e.At >= newest[boot] {
				boots[boot], newest[boot] = e.Clock(0), e.At
			}
		}
	}
	return boots
}

// Time returns when an end of a run was, by its own wall clock if its boot is unknown.
func (b Boots) Time(r Run, e End) time.Time {
	if booted, known := b[r.EpochOf(e).Boot]; known {
		return booted.Add(e.At)
	}
	return e.Wall
}

// Newest sorts runs, the one that was last seen first: within a boot by CLOCK_BOOTTIME.
func Newest(runs []Run) []Run {
	boots := BootsOf(runs)
	runs = slices.Clone(runs)
	slices.SortStableFunc(runs, func(a, b Run) int { return boots.Time(b, b.Last()).Compare(boots.Time(a, a.Last())) })
	return runs
}
