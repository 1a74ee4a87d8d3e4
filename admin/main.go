// Command bookend shows what Bookend's hooks have recorded on this node.
package main

import (
	"os"

	"bookend/internal/doctor"
	"bookend/internal/operation"
	"bookend/internal/routine"
)

// version is set by the linker.
var version = "unknown"

func main() {
	env := operation.Env{
		Args: os.Args, Getenv: os.Getenv,
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		EUID: os.Geteuid(), PID: os.Getpid(),
		Clock: routine.SystemClock(), Exit: os.Exit, Version: version,
	}
	if code, done := operation.ServeChild(env, doctor.Operations()); done {
		os.Exit(code)
	}
	os.Exit(run(env, os.Args[1:]))
}
