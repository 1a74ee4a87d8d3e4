// Package deploy holds the hook scripts that slurm.conf names, so that setup writes them and tests run them as they
// ship,
// and the manual page of the configuration, of which a program shows parts.
package deploy

import "embed"

// Hooks has the scripts in slurm/hooks.
//
//go:embed slurm/hooks
var Hooks embed.FS

// ConfigPage is bookend.yaml(5): each key after a line ".TP", with its default in bold, then its meaning in one line.
//
//go:embed man/bookend.yaml.5
var ConfigPage string
