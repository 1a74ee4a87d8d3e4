// Command monitoring makes the two fake GPUs on which check.sh runs hooks, in the directory that it is given.
package main

import (
	"fmt"
	"os"

	"bookend/test/fakegpu"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: monitoring DIR")
		os.Exit(64)
	}
	if _, err := fakegpu.New(os.Args[1], fakegpu.GPUs(2)); err != nil {
		fmt.Fprintln(os.Stderr, "monitoring:", err)
		os.Exit(1)
	}
}
