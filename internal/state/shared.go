package state

import (
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
	maxShared  = 64 << 10 // bytes of a file
	maxFaults  = 256      // of which it is kept when they were said
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
		if err := s.readUnderLock(stuckFile, new(Stuck)); err == nil {
			return nil
		}
		return s.writeShared(stuckFile, stuck)
	})
}

// Stuck returns the stuck child on record, nil when there is none. An unusable record is a Damage, set aside.
func (s *Store) Stuck() (*Stuck, error) {
	stuck, err := salvaged(s, stuckFile, func() (stuck Stuck, err error) {
		err = s.readShared(stuckFile, &stuck)
		return stuck, err
	})
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
		if err := s.readUnderLock(faultsFile, &faults); err != nil {
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

// readShared reads one of the shared files without a version.
func (s *Store) readShared(name string, into any) error {
	var raw json.RawMessage
	if err := s.readJSON(name, maxShared, &raw); err != nil {
		return err
	}
	if string(raw) == "null" { // which leaves a map nil
		return fmt.Errorf("%w: null", errRecord)
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("%w: %v", errRecord, err)
	}
	return nil
}

// readUnderLock is readShared for who holds the lock and will write the file: one that cannot be used is set aside.
func (s *Store) readUnderLock(name string, into any) error {
	err := s.readShared(name, into)
	if unusable(err) {
		s.moveAside(name, name)
	}
	return err
}

func (s *Store) writeShared(name string, value any) error { return s.writeJSON(name, maxShared, value) }

// readJSON reads a file of the node's folder, of at most so many bytes. Anything else than such a value is errRecord.
func (s *Store) readJSON(name string, most int64, into any) error {
	// Threat: none from users, who cannot write here; damage and mistakes are refused all the same.
	data, err := safefile.Read(s.dir, name, most)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%w: %v", errRecord, err)
	}
	return nil
}

// ofVersion gives errRecord for a file of another format.
func ofVersion(have, want int) error {
	if have != want {
		return fmt.Errorf("%w: version %d, not %d", errRecord, have, want)
	}
	return nil
}

// writeJSON replaces a file of the node's folder, which gets less than so many bytes. Who has read it before holds its lock.
func (s *Store) writeJSON(name string, most int64, value any) error {
	data, err := json.Marshal(value)
	if err == nil && int64(len(data)) >= most {
		err = fmt.Errorf("%d bytes: %w", len(data), safefile.ErrTooLarge)
	}
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	return safefile.Replace(s.dir, name, append(data, '\n'), 0o600)
}
