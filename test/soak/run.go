package main

import (
	"sync"
	"sync/atomic"
)

// soak plays the pairs below end, on several processors, until they are done or enough is seen to fail.
func soak(seed, end uint64, workers, enough int, each func(done uint64)) (tally, []failure) {
	var (
		next, failed atomic.Uint64
		lock         sync.Mutex
		sum          tally
		failures     []failure
		all          sync.WaitGroup
	)
	cfg := shipped()
	for range workers {
		all.Go(func() {
			var own tally
			for failed.Load() < uint64(enough) {
				n := next.Add(1) - 1
				if n >= end {
					break
				}
				p := play(cfg, seed, n, nil)
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
	return sum, failures
}
