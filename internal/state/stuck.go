package state

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"bookend/internal/finding"
)

const maxPlaces = 8 // of one reader; with MaxReaders some 30 KiB of maxShared

var (
	stuckFile   = file[Stuck]{name: "stuck.json", most: maxShared}
	usersFile   = file[map[uint32]Stuck]{name: "stuck-users.json", most: maxShared}
	readersFile = file[[]Reader]{name: "stuck-readers.json", most: maxShared}
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
	return stuckFile.change(s, func(now *Stuck) (*Stuck, error) {
		if now != nil {
			return now, nil
		}
		return &stuck, nil
	})
}

// Stuck returns the stuck child on record, nil when there is none. An unusable record is a Damage, set aside.
func (s *Store) Stuck() (*Stuck, error) { return stuckFile.get(s) }

// PeekStuck is Stuck for those who make and change nothing: nil too where nothing can be read.
func PeekStuck(run, node string) *Stuck { return peek(run, node, stuckFile) }

// ClearStuck forgets the stuck child: it has ended.
func (s *Store) ClearStuck() error {
	return stuckFile.change(s, func(*Stuck) (*Stuck, error) { return nil, nil })
}

// StuckVisit returns the child that is stuck among a user's files, nil when none is that lives. An unusable record is
// a Damage, set aside.
func (s *Store) StuckVisit(uid uint32, alive func(Stuck) bool) (*Stuck, error) {
	on, err := usersFile.get(s)
	if stuck, ok := orNone(on)[uid]; ok && alive(stuck) {
		return &stuck, nil
	}
	return nil, err
}

// SetStuckVisit records a child that is stuck among a user's files, and forgets those that have ended. One of this
// user's that lives on record stays: it has been stuck for longer. There is room for those of some 600 users.
func (s *Store) SetStuckVisit(uid uint32, stuck Stuck, alive func(Stuck) bool) error {
	return usersFile.change(s, func(now *map[uint32]Stuck) (*map[uint32]Stuck, error) {
		all := map[uint32]Stuck{uid: stuck}
		for other, on := range orNone(now) {
			if alive(on) {
				all[other] = on
			}
		}
		return &all, nil
	})
}

// Reader is a child that reads other processes' /proc and cannot be killed.
type Reader struct {
	Stuck
	At []finding.Instance `json:"at,omitempty"` // what it was reading; nothing if it did not say, or at too much
}

// MaxReaders is how many stuck readers are kept on record. With so many there must be no other: it could not be
// recorded.
const MaxReaders = 64

func living(all *[]Reader, alive func(Stuck) bool) []Reader {
	return slices.DeleteFunc(orNone(all), func(r Reader) bool { return !alive(r.Stuck) })
}

// PeekReaders returns the stuck readers that are alive. A record that cannot be used is none; nothing is changed.
func PeekReaders(run, node string, alive func(Stuck) bool) []Reader {
	return living(peek(run, node, readersFile), alive)
}

// AddReader records a stuck reader, and forgets those that have ended. One that lives is never forgotten for another.
func (s *Store) AddReader(r Reader, alive func(Stuck) bool) error {
	if len(r.At) > maxPlaces {
		r.At = nil
	}
	return readersFile.change(s, func(now *[]Reader) (*[]Reader, error) {
		all := living(now, alive)
		if len(all) >= MaxReaders {
			return nil, fmt.Errorf("record stuck reader %d: there are %d already", r.PID, len(all))
		}
		all = append(all, r)
		return &all, nil
	})
}

const sayAgain = time.Hour

var faultsFile = file[map[string]fault]{name: "faults.json", most: maxShared}

// fault is when a fault was last said, and how often it was not since.
type fault struct {
	Said       time.Duration `json:"said_ns"` // CLOCK_BOOTTIME
	Suppressed int           `json:"suppressed"`
}

// lately reports that a fault was said within the hour. What lies before the boot was never said.
func (f fault) lately(now time.Duration) bool {
	return f.Said > 0 && now >= f.Said && now-f.Said < sayAgain
}

// Repeat reports whether a fault is to be said now: once an hour a node. suppressed is how often it was not, since
// it was said last. Where the count cannot be kept it is said each time: a fault is never silent.
func (s *Store) Repeat(code string, now time.Duration) (say bool, suppressed int) {
	err := faultsFile.change(s, func(on *map[string]fault) (*map[string]fault, error) {
		faults := map[string]fault{}
		maps.Copy(faults, orNone(on))
		f := faults[code]
		if f.lately(now) {
			f.Suppressed++
		} else {
			say, suppressed = true, f.Suppressed
			f = fault{Said: now}
		}
		maps.DeleteFunc(faults, func(_ string, f fault) bool { return !f.lately(now) }) // they would grow in number
		faults[code] = f
		return &faults, nil
	})
	if err != nil {
		return true, 0
	}
	return say, suppressed
}
