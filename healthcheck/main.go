// Command bookend-healthcheck looks at all of a node's GPUs between the jobs' hooks. Slurm runs it as
// HealthCheckProgram; where that is taken, NHC or a timer does.
package main

import (
	"os"

	"bookend/internal/routine"
	"bookend/internal/stage"
)

// version is set by the linker.
var version = "unknown"

func main() {
	os.Exit(stage.HealthCheck(stage.Env{
		Args: os.Args, Getenv: os.Getenv,
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		EUID: os.Geteuid(), PID: os.Getpid(),
		Clock: routine.SystemClock(), Exit: os.Exit, Version: version,
	}))
}
