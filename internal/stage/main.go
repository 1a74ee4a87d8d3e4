package stage

import (
	"fmt"

	"bookend/internal/operation"
)

// Env is the outside world as a main hands it over.
type Env = operation.Env

// preamble is what every hook program does first: it serves as its own child, or says its version.
func preamble(env Env, name string) (exit int, done bool) {
	if len(env.Args) < 2 {
		return 0, false
	}
	if exit, done := operation.ServeChild(env, nil); done {
		return exit, done
	}
	if env.Args[1] == "--version" {
		fmt.Fprintf(env.Stdout, "%s %s\n", name, env.Version)
		return 0, true
	}
	fmt.Fprintf(env.Stderr, "%s: Slurm runs this program, without arguments; see bookend help\n", name)
	return 0, true
}
