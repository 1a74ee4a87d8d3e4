package policy

import "bookend/internal/code"

// ExitOther is the exit code of a drain whose finding has no number of its own.
const ExitOther = 40

// Exits is the table of exit codes: one number a cause, the same in prolog and epilog. Slurm only tells zero
// from non-zero; the number is for the reader of slurmd's log. 0 is every outcome that does not drain; 2 is
// left to the Go runtime's own crashes; 126 and above belong to shells and signals.
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

// ExitCode returns the exit code of a drain that c caused.
func ExitCode(c code.Code) int {
	for _, e := range Exits {
		if e.Code == c {
			return e.Exit
		}
	}
	return ExitOther
}
