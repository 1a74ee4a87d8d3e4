package serve

import "bookend/internal/routine"

// Parallel calls f for 0 to n-1 at once and returns the results in order. A panic is returned as an error: half an
// answer would look like a whole one.
func Parallel[T any](n int, f func(int) T) ([]T, error) {
	results := make([]T, n)
	ended := make(chan *routine.Panic, n)
	for i := range n {
		routine.Go(func(p *routine.Panic) { ended <- p }, func() {
			results[i] = f(i)
			ended <- nil
		})
	}
	for range n {
		if defect := <-ended; defect != nil {
			return nil, defect
		}
	}
	return results, nil
}
