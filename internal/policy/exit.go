package policy

import (
	"bookend/internal/code"
	"bookend/internal/finding"
)

// CheckExit returns the exit code of a health check that found all this: 0 unless it has not checked the node. Slurm only logs
// that, and nothing else should act on it: what was found stands in log, metrics and state.
func CheckExit(found []finding.Finding) int {
	for _, e := range code.All() {
		for _, f := range found {
			if e.Unchecked && f.Code == e.Code && f.Unknown == "" {
				return e.Exit
			}
		}
	}
	return 0
}
