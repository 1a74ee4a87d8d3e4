package rig

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"bookend/test/mountns"
)

// Each gives items to workers, each of which has a stand of its own, until all are done or one has failed.
func Each[S, T any](stands []S, items []T, do func(S, T) error) error {
	next := make(chan T)
	failed := make(chan error, len(stands))
	var all sync.WaitGroup
	for _, s := range stands {
		all.Go(func() {
			for item := range next {
				if err := do(s, item); err != nil {
					failed <- fmt.Errorf("%v: %w", item, err)
					break
				}
			}
			for range next { // nobody takes them any more
			}
		})
	}
	for _, item := range items {
		if len(failed) > 0 {
			break
		}
		next <- item
	}
	close(next)
	all.Wait()
	close(failed)
	return <-failed
}

// ErrWrong says that something was not as it must be; what, is printed already.
var ErrWrong = errors.New("not all is as it must be")

// Program is the main of one that tries the hooks, as root in a mount namespace of its own. Exit codes: 0 all was as it
// must be, 1 something was not, 64 usage, or something that keeps it from being tried.
func Program(name string, work func(args []string) error) {
	err := mountns.Enter()
	if err == nil {
		err = work(os.Args[1:])
	}
	if err == nil {
		return
	}
	fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
	if errors.Is(err, ErrWrong) {
		os.Exit(1)
	}
	os.Exit(64)
}
