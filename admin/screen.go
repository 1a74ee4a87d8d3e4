package main

import (
	"os"

	"golang.org/x/sys/unix"

	"bookend/internal/operation"
	"bookend/internal/view"
)

// screenOf is what standard output can do. What is no terminal gets whole lines, for grep.
func screenOf(env operation.Env) view.Screen {
	width, term := columns(env), env.Getenv("TERM")
	return view.Screen{Width: width, Colour: width > 0 && env.Getenv("NO_COLOR") == "" && term != "" && term != "dumb"}
}

// usualWidth is that of a terminal which does not say.
const usualWidth = 80

// columns is the width of the terminal that standard output is; 0 for none.
func columns(env operation.Env) int {
	f, is := env.Stdout.(*os.File)
	if !is {
		return 0
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	switch {
	case err != nil:
		return 0
	case size.Col == 0:
		return usualWidth
	}
	return int(size.Col)
}
