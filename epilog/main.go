// Command bookend-epilog is Slurm's Epilog and TaskEpilog for GPU jobs.
package main

import (
	"os"

	"bookend/internal/hook"
	_ "bookend/internal/nogpu"
)

var version = "unknown" // set by the linker

func main() {
	os.Exit(hook.Epilog(hook.Env{
		Args: os.Args, Getenv: os.Getenv,
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		EUID: os.Geteuid(), PID: os.Getpid(),
		Exit: os.Exit, Version: version,
	}))
}
