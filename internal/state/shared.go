package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"bookend/internal/safefile"
	"bookend/internal/slurm"
)

const (
	stuckFile  = "stuck.json"
	faultsFile = "faults.json"
	maxShared  = 64 << 10
	maxFaults  = 256
	sayAgain   = time.Hour
)

// Stuck is a child that could not be killed. While it lives, nobody starts another.
type Stuck struct {
	PID        int           `json:"pid"`
	StartTicks uint64        `json:"start_ticks"` // its start time as /proc gives it
	Since      time.Duration `json:"since_ns"`    // CLOCK_BOOTTIME when it was given up
	Op         string        `json:"op"`          // what it was to do
}

// SetStuck records a stuck child. One that is on record already stays: it has been stuck for longer.
func (s *Store) SetStuck(stuck Stuck) error {
	return s.locked(lockOther, func() error {
		var earlier Stuck
		if err := s.readShared(stuckFile, &earlier); err == nil {
			return nil
		}
		return s.writeShared(stuckFile, stuck)
	})
}

// Stuck returns the stuck child on record, nil when there is none. An unusable record is a Damage, set aside.
func (s *Store) Stuck() (*Stuck, error) {
	var stuck Stuck
	err := s.readShared(stuckFile, &stuck)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &stuck, nil
}

// PeekStuck is Stuck for those who make and change nothing: nil too where nothing can be read.
func PeekStuck(run, node string) *Stuck {
	if !slurm.ValidNode(node) {
		return nil
	}
	s := &Store{run: run, node: node, dir: filepath.Join(run, "state", node)}
	var stuck Stuck
	if !s.peek(stuckFile, &stuck) {
		return nil
	}
	return &stuck
}

// ClearStuck forgets the stuck child: it has ended.
func (s *Store) ClearStuck() error {
	return s.locked(lockOther, func() error { return removeOwn(s.dir, stuckFile) })
}

// fault is when a fault was last said, and how often it was not since.
type fault struct {
	Said       time.Duration `json:"said_ns"` // CLOCK_BOOTTIME
	Suppressed int           `json:"suppressed"`
}

// Repeat reports whether a fault is to be said now: once an hour a node. suppressed is how often it was not, since
// it was said last. Where the count cannot be kept it is said each time: a fault is never silent.
func (s *Store) Repeat(code string, now time.Duration) (say bool, suppressed int) {
	err := s.locked(lockOther, func() error {
		faults := map[string]fault{}
		if err := s.readShared(faultsFile, &faults); err != nil {
			faults = map[string]fault{}
		}
		f := faults[code]
		if f.Said > 0 && now >= f.Said && now-f.Said < sayAgain { // what lies before the boot was never said
			f.Suppressed++
		} else {
			say, suppressed = true, f.Suppressed
			f = fault{Said: now}
		}
		forget(faults, now)
		faults[code] = f
		return s.writeShared(faultsFile, faults)
	})
	if err != nil {
		return true, 0
	}
	return say, suppressed
}

// forget makes room where there are more faults than there can be codes.
func forget(faults map[string]fault, now time.Duration) {
	if len(faults) < maxFaults {
		return
	}
	for code, f := range faults {
		if now < f.Said || now-f.Said >= sayAgain {
			delete(faults, code)
		}
	}
	if len(faults) >= maxFaults {
		clear(faults)
	}
}

// readShared reads one of the shared files. One that cannot be used is set aside and a Damage.
func (s *Store) readShared(name string, into any) error {
	data, err := safefile.Read(s.dir, name, maxShared)
	if err == nil {
		if bad := json.Unmarshal(data, into); bad != nil {
			err = fmt.Errorf("%w: %v", errRecord, bad)
		} else if bytes.Equal(bytes.TrimSpace(data), []byte("null")) { // which leaves a map nil
			err = fmt.Errorf("%w: null", errRecord)
		}
	}
	if !unusable(err) {
		return err
	}
	s.moveAside(name, name)
	return Damage{s.dir + "/" + name, err.Error()}
}

func (s *Store) writeShared(name string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	return safefile.Replace(s.dir, name, append(data, '\n'), 0o600)
}
