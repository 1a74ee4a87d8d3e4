package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"time"

	"bookend/internal/safefile"
)

const (
	stuckFile  = "stuck.json"
	usersFile  = "stuck-users.json"
	usersLock  = "lock-users"
	faultsFile = "faults.json"
	maxShared  = 64 << 10
	maxFaults  = 256
	maxUsers   = 256 // some 25 KiB of maxShared
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

// ClearStuck forgets the stuck child: it has ended.
func (s *Store) ClearStuck() error {
	return s.locked(lockOther, func() error { return removeOwn(s.dir, stuckFile) })
}

// Visit makes the caller the one hook of the node that has a child among a user's files, until leave or the process's
// end: of ends at once on a file system that does not answer, one leaves a child there. It gives ErrLocked where another
// hook still had one after wait. A user who stops his child keeps his own reports waiting, and nobody else's.
func (s *Store) Visit(uid uint32, wait time.Duration) (leave func(), err error) {
	return safefile.LockNumber(filepath.Join(s.dir, usersLock), uid, wait)
}

// visitRecent is how long a child that came back from a user's files vouches for them.
const visitRecent = time.Second

// SetVisited notes that a child has come back from doing op, a word, in a user's files. Where it cannot be kept the next waits its turn.
func (s *Store) SetVisited(op string, uid uint32, now time.Duration) {
	_ = s.writeShared(visitFile(op, uid), answered{now})
}

// VisitedLately reports that a child came back from doing op in a user's files less than a moment before now (CLOCK_BOOTTIME).
func (s *Store) VisitedLately(op string, uid uint32, now time.Duration) bool {
	var last answered
	return s.peek(visitFile(op, uid), &last) && last.At >= 0 && last.At <= now && now-last.At < visitRecent
}

func visitFile(op string, uid uint32) string { return fmt.Sprintf("visited-%s-%d.json", op, uid) }

// StuckVisit returns the child that is stuck among a user's files, nil when there is none. Those of any user that are not
// alive any more are forgotten. An unusable record is a Damage, set aside.
func (s *Store) StuckVisit(uid uint32, alive func(Stuck) bool) (*Stuck, error) {
	stuck, err := s.stuckVisits()
	if err != nil {
		return nil, err
	}
	on := len(stuck)
	forgetDead(stuck, alive)
	if len(stuck) < on { // else the next hook does
		_ = s.changeVisits(alive, func(map[uint32]Stuck) error { return nil })
	}
	if found, ok := stuck[uid]; ok {
		return &found, nil
	}
	return nil, nil
}

// SetStuckVisit records a child that is stuck among a user's files. One of this user's that lives on record stays: it has
// been stuck for longer.
func (s *Store) SetStuckVisit(uid uint32, stuck Stuck, alive func(Stuck) bool) error {
	return s.changeVisits(alive, func(all map[uint32]Stuck) error {
		if _, ok := all[uid]; ok {
			return nil
		}
		if len(all) >= maxUsers {
			return fmt.Errorf("record stuck child of user %d: there are those of %d users", uid, len(all))
		}
		all[uid] = stuck
		return nil
	})
}

// changeVisits changes the record of stuck visits, without those that have ended. An empty one is no file.
func (s *Store) changeVisits(alive func(Stuck) bool, change func(map[uint32]Stuck) error) error {
	return s.locked(lockOther, func() error {
		all, err := s.stuckVisits()
		if err != nil { // a damaged one was set aside
			all = map[uint32]Stuck{}
		}
		forgetDead(all, alive)
		if err := change(all); err != nil {
			return err
		}
		if len(all) == 0 {
			return removeOwn(s.dir, usersFile)
		}
		return s.writeShared(usersFile, all)
	})
}

// stuckVisits are the children on record that are stuck among users' files, by uid.
func (s *Store) stuckVisits() (map[uint32]Stuck, error) {
	all := map[uint32]Stuck{}
	if err := s.readShared(usersFile, &all); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return all, nil
}

func forgetDead(all map[uint32]Stuck, alive func(Stuck) bool) {
	maps.DeleteFunc(all, func(_ uint32, stuck Stuck) bool { return !alive(stuck) })
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
