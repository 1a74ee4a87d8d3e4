// Package nogpu ends a hook whose job has no GPUs before the rest of the program is initialised: hooks run for every
// job on a node, and jobs without GPUs, which are most, should not pay for it.
//
// Go initialises packages in order of import path once their imports are done, so this one, which imports next to
// nothing, comes before the libraries (gopkg.in/yaml.v3 alone takes longer to initialise than the decision). If that
// order ever changes, or a hook has another name, only time is lost: package hook checks again.
package nogpu

import (
	"os"
	"strings"

	"bookend/internal/slurm"
)

func init() {
	hook := strings.HasSuffix(os.Args[0], "/bookend-prolog") || strings.HasSuffix(os.Args[0], "/bookend-epilog")
	if hook && len(os.Args) == 1 && !slurm.HasGPUs(os.Getenv) {
		os.Exit(0)
	}
}
