// Package deploy holds the hook scripts that slurm.conf names, for setup to write and tests to run as they ship.
package deploy

import "embed"

// Hooks has the scripts in slurm/hooks.
//
//go:embed slurm/hooks
var Hooks embed.FS

func Script(name string) (string, error) {
	text, err := Hooks.ReadFile("slurm/hooks/" + name)
	return string(text), err
}
