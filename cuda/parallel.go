package main

import (
	"sync"

	"bookend/internal/routine"
)

// inParallel calls f for 0 to n-1 at once and returns the results in order. A panic is returned as an error:
// half an answer would look like a whole one.
func inParallel[T any](n int, f func(int) T) ([]T, error) {
	results := make([]T, n)
	panics := make(chan *routine.Panic, n)
	var all sync.WaitGroup
	all.Add(n)
	for i := range n {
		routine.Go(func(p *routine.Panic) { panics <- p; all.Done() }, func() {
			results[i] = f(i)
			all.Done()
		})
	}
	all.Wait()
	select {
	case p := <-panics:
		return nil, p
	default:
		return results, nil
	}
}
