package main

import (
	"os"

	"golang.org/x/sys/unix"

	"bookend/internal/operation"
)

// Values of --color.
const (
	colourAuto   = "auto"
	colourAlways = "always"
	colourNever  = "never"
)

// colourful reports whether standard output takes colours.
func colourful(env operation.Env, colour string) bool {
	if colour != colourAuto {
		return colour == colourAlways
	}
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
