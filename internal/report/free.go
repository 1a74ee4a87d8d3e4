package report

import (
	"fmt"
	"slices"

	"bookend/internal/finding"
)

// free says how much a job can have: the least over its GPUs, and whether that is what each of them has.
func (s Scene) free() string {
	all := s.freeFigures()
	if len(all) == 0 {
		return "free memory unknown"
	}
	least := slices.Min(all)
	switch {
	case len(s.Cards) == 1:
		return fmt.Sprintf("%d MiB free", least>>20)
	case len(all) < len(s.Cards):
		return fmt.Sprintf("at least %d MiB free on each GPU that could be read", least>>20)
	case slices.Max(all)-least > finding.AsMuch:
		return fmt.Sprintf("at least %d MiB free on each GPU", least>>20)
	}
	return fmt.Sprintf("%d MiB free each", least>>20)
}

// freeFigures are the bytes that are free on each of the job's GPUs, where that is known.
func (s Scene) freeFigures() (all []uint64) {
	for _, c := range s.Cards {
		if r, read := s.Now.Snapshot.Reading(c.Device.ID); read && r.Memory.Free.Known() {
			all = append(all, r.Memory.Free.Bytes)
		}
	}
	return all
}
