package main

import (
	"time"

	"bookend/internal/routine"
)

// inParallel calls f for 0 to n-1 at once and returns the results in order. What has not come when it is late is nil;
// its thread stays behind until this process ends. A panic is returned as an error: half an answer would look like a
// whole one.
func inParallel[T any](n int, late <-chan time.Time, f func(int) T) ([]*T, error) {
	type answer struct {
		i      int
		result T
		defect *routine.Panic
	}
	came := make(chan answer, n)
	for i := range n {
		routine.Go(func(p *routine.Panic) { came <- answer{defect: p} }, func() { came <- answer{i: i, result: f(i)} })
	}
	results := make([]*T, n)
	for range n {
		select {
		case a := <-came:
			if a.defect != nil {
				return nil, a.defect
			}
			results[a.i] = &a.result
		case <-late:
			return results, nil
		}
	}
	return results, nil
}
