package main

import (
	"os"

	"golang.org/x/sys/unix"

	"bookend/internal/operation"
)

// colourful reports whether standard output takes colours.
func colourful(env operation.Env) bool {
	term := env.Getenv("TERM")
	return isTerminal(env) && env.Getenv("NO_COLOR") == "" && term != "" && term != "dumb"
}

// isTerminal reports whether standard output is a terminal.
func isTerminal(env operation.Env) bool {
	f, is := env.Stdout.(*os.File)
	if !is {
		return false
	}
	_, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	return err == nil
}
