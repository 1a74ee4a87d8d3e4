package backendkit

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"bookend/internal/child"
	"bookend/internal/gpu"
	"bookend/internal/protocol"
	"bookend/internal/safefile"
)

// Tests answers one request for test allocations.
type Tests struct {
	Session
	Known map[int]bool  // processes that may be on a GPU
	until time.Duration // when no further attempt begins
	wait  time.Duration // what is left of the time for locks
	lost  error         // a failure to write the answer
}

// Tests begins the answer to a request for test allocations.
func (s Session) Tests() *Tests {
	t := &Tests{Session: s, until: s.End(), wait: s.Req.Probe.LockWait, Known: map[int]bool{os.Getpid(): true}}
	for _, pid := range s.Req.Probe.Known {
		t.Known[pid] = true
	}
	return t
}

// Admit returns the devices to test, in order of id. It skips those for which refuse has a reason, or without a lock.
func (t *Tests) Admit(refuse func(gpu.ID) string) (asked []gpu.Device, err error) {
	seen := map[gpu.ID]bool{}
	for _, d := range t.Req.Devices {
		if d.ID == "" {
			return nil, fmt.Errorf("probe the GPU at %q: it has no id", d.BusID)
		}
		if why := refuse(d.ID); seen[d.ID] {
			continue
		} else if why != "" {
			t.Tell(Skipped(d.ID, why))
		} else if t.Req.Probe.Locks[d.ID] == "" {
			t.Tell(Skipped(d.ID, "no lock was named for it"))
		} else {
			asked = append(asked, d)
		}
		seen[d.ID] = true
	}
	slices.SortFunc(asked, func(a, b gpu.Device) int { return strings.Compare(string(a.ID), string(b.ID)) })
	return asked, nil
}

// Await runs what may hang in a vendor's library in a goroutine. ok is false if the time is up first.
func Await[T any](t *Tests, start func() (T, error)) (value T, ok bool, err error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	child.Go(func(defect *child.Panic) { done <- result{err: defect} }, func() {
		v, err := start()
		done <- result{v, err}
	})
	over := time.NewTimer(t.until - t.Boot())
	defer over.Stop()
	select {
	case r := <-done:
		return r.value, true, r.err
	case <-over.C:
		return value, false, nil
	}
}

// More reports whether there is time for another attempt, and the answer can still be sent.
func (t *Tests) More() bool { return t.lost == nil && t.Boot() < t.until }

// restTime is the pause between two searches of a device.
const restTime = 100 * time.Millisecond

// Rest waits between two searches of a device, or reports that there is no time for it.
func (t *Tests) Rest() bool {
	if t.Boot()+restTime >= t.until {
		return false
	}
	time.Sleep(restTime)
	return true
}

// Lock takes a device's lock, or returns why not. Threat: a user's lock file, held forever: safefile takes only root's.
func (t *Tests) Lock(id gpu.ID) (release func(), why string) {
	begin := t.Boot()
	wait := max(0, min(t.wait, t.until-begin))
	unlock, err := safefile.Lock(t.Req.Probe.Locks[id], wait, true)
	t.wait -= t.Boot() - begin
	if errors.Is(err, safefile.ErrLocked) {
		err = fmt.Errorf("somebody else was testing or judging it for %v", wait.Round(time.Millisecond))
	}
	if err != nil {
		return nil, err.Error()
	}
	return unlock, ""
}

// Tell sends a result. If it cannot be sent, no further test is made.
func (t *Tests) Tell(result gpu.Probe) {
	result.At = t.Boot()
	if t.lost == nil {
		t.lost = t.Out.Write(protocol.Reply{Kind: protocol.KindProbe, Probe: &result})
	}
}

// Skip reports that these devices are not tested, and completes the answer.
func (t *Tests) Skip(asked []gpu.Device, why string, faults ...gpu.Fault) error {
	for _, d := range asked {
		t.Tell(Skipped(d.ID, why))
	}
	if t.lost != nil {
		return t.lost
	}
	return t.Finish(faults...)
}
