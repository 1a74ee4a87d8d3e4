// Command fakeworld makes a fake GPU world in a folder, for demonstrations and for tests that are not in Go.
//
//	fakeworld new DIR [KEY=VALUE...]    then run DIR/fakekeeper beside it, and DIR/fakecuda as the user
//	fakeworld set DIR KEY=VALUE...      an empty VALUE removes the key
//	fakeworld thaw DIR                  lets processes go that the action freeze holds
//
// Package fakegpu describes the folder and the keys.
package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"bookend/test/fakegpu"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "fakeworld:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 2 {
		return errors.New("usage: fakeworld new|set|thaw DIR [KEY=VALUE...]")
	}
	verb, dir := args[0], args[1]
	pairs, err := parse(args[2:])
	if err != nil {
		return err
	}
	if verb == "new" {
		return create(dir, pairs)
	}
	w, err := fakegpu.Open(dir)
	switch {
	case err != nil:
		return err
	case verb == "thaw":
		return w.Thaw()
	case verb != "set":
		return fmt.Errorf("unknown verb %q", verb)
	}
	for _, p := range pairs {
		if err := w.Set(p.key, p.value); err != nil {
			return err
		}
	}
	return nil
}

type pair struct{ key, value string }

func parse(args []string) ([]pair, error) {
	var pairs []pair
	for _, arg := range args {
		key, value, ok := strings.Cut(arg, "=")
		if !ok {
			return nil, fmt.Errorf("%q: want KEY=VALUE", arg)
		}
		pairs = append(pairs, pair{key, value})
	}
	return pairs, nil
}

func create(dir string, pairs []pair) error {
	var options []fakegpu.Option
	for _, p := range pairs {
		options = append(options, fakegpu.With(p.key, p.value))
	}
	_, err := fakegpu.New(dir, options...)
	return err
}
