// Command bookend-prolog is Slurm's Prolog and TaskProlog for GPU jobs.
package main

import (
	"os"

	"bookend/internal/hook"
	_ "bookend/internal/nogpu"
)

var version = "unknown" // set by the linker

func main() {
	os.Exit(hook.Prolog(hook.Env{
		Args: os.Args, Getenv: os.Getenv,
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		EUID: os.Geteuid(), PID: os.Getpid(),
		Exit: os.Exit, Version: version,
	}))
}
