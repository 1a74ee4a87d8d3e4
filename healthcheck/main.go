// Command bookend-healthcheck checks all of a node's GPUs. It runs as HealthCheckProgram, or from NHC or a timer.
package main

import (
	"os"

	"bookend/internal/hook"
)

var version = "unknown" // set by the linker

func main() {
	os.Exit(hook.HealthCheck(hook.Env{
		Args: os.Args, Getenv: os.Getenv,
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		EUID: os.Geteuid(), PID: os.Getpid(),
		Exit: os.Exit, Version: version,
	}))
}
