package main

import (
	_ "embed"
	"errors"

	"bookend/test/faultinject"
	"bookend/test/rig"
)

//go:embed mutants.yaml
var table []byte

// plantings are the mistakes that must be noticed.
var plantings = faultinject.Mutants(table)

// writing are the faults in the writing of a run's record.
const writing = "start: hook write run/state"

// together stands for two ends at once, among what a mistake's part names.
const together = "two ends at once"

// notice says what notices a planted mistake, "" for nothing.
func (b bench) notice(m faultinject.Mutant) (by string) {
	programs, t := b.programs(m), newTally()
	err := rig.Attempt(func() {
		if m.Part == together {
			b.twoEnds(programs, t)
		} else {
			b.faults(m.Part, 2, programs, t)
		}
	})
	if wrong := wrongHistory(""); errors.As(err, &wrong) {
		return string(wrong)
	}
	if rig.Try(err); len(t.failed) > 0 {
		by = t.failed[0]
	}
	return by
}
