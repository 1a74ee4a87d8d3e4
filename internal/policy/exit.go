package policy

import (
	"bookend/internal/code"
	"bookend/internal/finding"
)

// ExitOther is the exit code of a drain whose finding has no number of its own.
const ExitOther = 40

// Exits is the table of exit codes: one number a cause, the same in prolog and epilog. Slurm only tells zero
// from non-zero; the number is for the reader of slurmd's log. 0 is every outcome that does not drain; 2 is
// left to the Go runtime's own crashes; 126 and above belong to shells and signals. The scripts in deploy/slurm pass on the
// numbers of two digits alone: a cause with another number would never drain.
var Exits = []struct {
	Code code.Code
	Exit int
}{
	{code.Orphan, 10},
	{code.Residue, 11},
	{code.Phantom, 12},
	{code.Stray, 13},
	{code.Dirty, 14},
	{code.Foreign, 15},
	{code.Gap, 16},
	{code.Blocked, 17},
	{code.Broken, 18},
	{code.Lost, 20},
	{code.Missing, 21},
	{code.NoDriver, 22},
	{code.Mismatch, 23},
	{code.DriverKO, 24},
	{code.Stuck, 25},
	{code.Hang, 26},
	{code.Recovery, 27},
	{code.RemapFailed, 28},
	{code.XidFatal, 29},
	{code.BadEnv, 31},
	{code.BackendMissing, 32},
	{code.BackendRefused, 33},
	{code.BackendCrash, 34},
	{code.BackendGarbage, 35},
	{code.BackendVersion, 36},
	{code.BackendFlood, 37},
	{code.StateDamage, 38},
	{code.StateWrite, 39},
	{code.Panicked, 41},
	{code.Deadline, 42},
}

// CheckExits are the findings with which the health check does not end with 0, by their numbers in Exits: it has not checked
// the node. Slurm only logs that, and nothing else should act on it: what was found stands in log, metrics and state.
var CheckExits = []code.Code{code.BadEnv, code.Panicked, code.Deadline}

// CheckExit returns the exit code of a health check that found all this.
func CheckExit(found []finding.Finding) int {
	for _, c := range CheckExits {
		for _, f := range found {
			if f.Code == c && f.Unknown == "" {
				return ExitCode(c)
			}
		}
	}
	return 0
}

// CodeOf returns the finding that an exit code stands for, false where it stands for several or none.
func CodeOf(exit int) (c code.Code, known bool) {
	for _, e := range Exits {
		if e.Exit == exit {
			return e.Code, true
		}
	}
	return "", false
}

// ExitCode returns the exit code of a drain that c caused.
func ExitCode(c code.Code) int {
	for _, e := range Exits {
		if e.Code == c {
			return e.Exit
		}
	}
	return ExitOther
}
