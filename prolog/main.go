// Command bookend-prolog is Slurm's Prolog and TaskProlog for GPU jobs.
package main

import (
	"os"

	"bookend/internal/child"
	_ "bookend/internal/nogpu"
	"bookend/internal/stage"
)

var version = "unknown" // set by the linker

func main() {
	os.Exit(stage.Prolog(stage.Env{
		Args: os.Args, Getenv: os.Getenv,
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		EUID: os.Geteuid(), PID: os.Getpid(),
		Clock: child.SystemClock(), Exit: os.Exit, Version: version,
	}))
}
