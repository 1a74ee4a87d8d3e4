package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
)

// soak plays the pairs of a seed, on several processors, until they are done, enough is seen to fail, or the context
// ends. The failures come in the order of their pairs.
func soak(ctx context.Context, o options, each func(done uint64)) (tally, []failure) {
	var (
		next, failed atomic.Uint64
		lock         sync.Mutex
		sum          tally
		failures     []failure
		all          sync.WaitGroup
	)
	cfg := shipped()
	for range o.workers {
		all.Go(func() {
			var own tally
			for failed.Load() < uint64(o.enough) && ctx.Err() == nil {
				n := next.Add(1) - 1
				if n >= o.pairs {
					break
				}
				p := play(cfg, o.seed, n, nil)
				own.add(p.tally)
				if len(p.failures) > 0 {
					failed.Add(1)
					lock.Lock()
					failures = append(failures, p.failures...)
					lock.Unlock()
				}
				if n%100000 == 99999 && each != nil {
					each(n + 1)
				}
			}
			lock.Lock()
			sum.add(own)
			lock.Unlock()
		})
	}
	all.Wait()
	if sum.guessesBadly() {
		what := fmt.Sprintf("%d of %d", sum.misguessed, sum.blamed)
		failures = append(failures, failure{o.seed, sum.misguessedAt, badGuesses, what})
	}
	slices.SortStableFunc(failures, func(a, b failure) int { return cmp.Compare(a.n, b.n) })
	return sum, failures
}
