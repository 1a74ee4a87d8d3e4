// Command lint holds the tree to the rules of its architecture and says for each breach why the rule is there.
//
//	go run ./test/lint                    the sources
//	go run ./test/lint -static bin/...    programs that must be static, and what they link
//
// It reads syntax only, so that it is quick and also works on a tree that does not compile. Rules that a test
// file need not keep say so (rule.tests); programs under test/ keep only those on imports and vendors.
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	static := flag.Bool("static", false, "check the programs named as arguments instead of the sources")
	flag.Parse()
	breaches, err := run(*static, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "lint:", err)
		os.Exit(2)
	}
	for _, b := range breaches {
		fmt.Println(b)
	}
	if len(breaches) > 0 {
		fmt.Fprintf(os.Stderr, "lint: %d breaches\n", len(breaches))
		os.Exit(1)
	}
}

func run(static bool, programs []string) ([]string, error) {
	if static {
		return checkPrograms(programs)
	}
	files, err := load(".")
	if err != nil {
		return nil, err
	}
	return check(files, true), nil
}
