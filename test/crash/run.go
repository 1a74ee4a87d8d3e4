package main

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
)

// crew are stands side by side.
type crew struct {
	stands []*stand
}

// newCrew plays the history on n stands in folders of dir.
func newCrew(dir, programs string, n int) (*crew, error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make stands: %w", err)
	}
	c := &crew{stands: make([]*stand, n)}
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { c.stands[i], errs[i] = newStand(filepath.Join(dir, fmt.Sprintf("stand-%d", i)), programs) })
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return c, nil
}

// each gives the trials to the stands, one after another.
func (c *crew) each(trials []trial, do func(*stand, trial) error) error {
	next := make(chan trial)
	failed := make(chan error, len(c.stands))
	var all sync.WaitGroup
	for _, s := range c.stands {
		all.Go(func() {
			for t := range next {
				if err := do(s, t); err != nil {
					failed <- fmt.Errorf("%s: %w", t, err)
					break
				}
			}
			for range next { // nobody takes them any more
			}
		})
	}
	for _, t := range trials {
		if len(failed) > 0 {
			break
		}
		next <- t
	}
	close(next)
	all.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

// enumerate tries every fault.
func (c *crew) enumerate(trials []trial, t *tally) error {
	return c.each(trials, func(s *stand, tr trial) error {
		a, err := s.try(tr, false)
		if err != nil {
			return err
		}
		v := s.judge(tr, a)
		next, err := s.follow(tr)
		if err != nil {
			return err
		}
		v.wrong = append(v.wrong, s.judgeNext(tr, a, next).wrong...)
		t.add(tr, v)
		return nil
	})
}

// pairs finds the trials with two faults.
func (c *crew) pairs(first []trial, only string) (two []trial, err error) {
	var mu sync.Mutex
	err = c.each(first, func(s *stand, tr trial) error {
		a, err := s.try(tr, true)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		two = append(two, seconds(tr, a.points, only)...)
		return nil
	})
	return two, err
}
