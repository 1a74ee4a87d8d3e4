// Package nogpu ends a hook whose job has no GPUs before the rest of the program is initialised. Hooks run for
// every job of a node; most have no GPUs and should pay for nothing.
//
// Go initialises packages in order of import path once their imports are done, so this one, which imports next
// to nothing, comes before the libraries (gopkg.in/yaml.v3 alone takes longer to initialise than the decision).
// Should that order ever change, only time is lost: package stage asks again.
package nogpu

import (
	"os"

	"bookend/internal/slurm"
)

func init() {
	if len(os.Args) == 1 && !slurm.HasGPUs(os.Getenv) {
		os.Exit(0)
	}
}
