package state

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"bookend/internal/safefile"
)

const (
	contactLock  = "lock-driver"
	answeredFile = "answered.json"
	askingFile   = "asking.json"
	// recent is how long an answer of the driver to one hook vouches for the next: many hooks of a node that begin at once
	// wait for the first one's answer, some 20 ms, and not for one another.
	recent = 100 * time.Millisecond
)

// answered is when the driver answered last.
type answered struct {
	At time.Duration `json:"at_ns"` // CLOCK_BOOTTIME
}

// Meet makes the caller the one hook that asks a driver of which nobody knows whether it answers: hooks that begin at once
// on one that does not must not all leave a child stuck in it. Where it answered another hook a moment ago it may be asked
// by any: then met is nil. Else the caller calls met when the driver has answered, or has not: once, what comes later has no
// effect. It gives ErrLocked where another hook still had no answer after wait. now is CLOCK_BOOTTIME.
func (s *Store) Meet(now func() time.Duration, wait time.Duration) (met func(answered bool), err error) {
	if s.answeredLately(now()) {
		return nil, nil
	}
	release, err := safefile.Lock(filepath.Join(s.dir, contactLock), wait, true)
	if err != nil {
		return nil, err
	}
	if s.answeredLately(now()) {
		release()
		return nil, nil
	}
	var once sync.Once
	return func(ok bool) {
		once.Do(func() {
			if ok {
				_ = s.writeShared(answeredFile, answered{now()}) // without it the next hook waits its turn
			}
			release()
		})
	}, nil
}

// answeredLately reports an answer of less than a moment ago. One in the future is of another boot.
func (s *Store) answeredLately(now time.Duration) bool {
	var last answered
	return s.peek(answeredFile, &last) && last.At >= 0 && last.At <= now && now-last.At < recent
}

// Asking is a child that asks the driver.
type Asking struct {
	Stuck
	Hook int `json:"hook"` // the PID of the hook that started it
}

// SetAsking puts on record the child by which the holder of the first contact asks: others look at it when it takes long,
// and where its hook is killed nobody else knows of it.
func (s *Store) SetAsking(child Asking) error { return s.writeShared(askingFile, child) }

// Asking returns the child on record, nil for none.
func (s *Store) Asking() *Asking {
	var asking Asking
	if !s.peek(askingFile, &asking) || asking.PID <= 0 {
		return nil
	}
	return &asking
}

// ClearAsking forgets the children of these PIDs.
func (s *Store) ClearAsking(pids ...int) error {
	if asking := s.Asking(); asking == nil || !slices.Contains(pids, asking.PID) {
		return nil
	}
	return removeOwn(s.dir, askingFile)
}

// peek reads a shared file whose loss costs nothing: what cannot be used is none, and is written over by the next.
func (s *Store) peek(name string, into any) bool {
	data, err := safefile.Read(s.dir, name, maxShared)
	return err == nil && json.Unmarshal(data, into) == nil
}
