// Package deploy holds the hook scripts that slurm.conf names, so that setup writes them and tests run them as they
// ship.
package deploy

import "embed"

// Hooks has the scripts in slurm/hooks.
//
//go:embed slurm/hooks
var Hooks embed.FS
