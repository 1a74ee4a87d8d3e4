package state

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"bookend/internal/attrib"
	"bookend/internal/safefile"
	"bookend/internal/slurm"
)

const (
	usersFile   = "stuck-users.json"
	usersLock   = "lock-users"
	maxUsers    = 256 // some 25 KiB of maxShared
	readersFile = "stuck-readers.json"
	maxPlaces   = 8          // of one reader; with MaxReaders some 30 KiB of maxShared
	visitedBy   = "visited-" // op and uid follow
)

// Visit makes the caller the one hook of the node that has a child among a user's files, until leave or the process's
// end: of ends at once on a file system that does not answer, one leaves a child there. It gives ErrLocked where another
// hook still had one after wait. A user who stops his child keeps his own reports waiting, and nobody else's.
func (s *Store) Visit(uid uint32, wait time.Duration) (leave func(), err error) {
	return safefile.LockNumber(filepath.Join(s.dir, usersLock), uid, wait)
}

// visitRecent is how long a child that came back from a user's files vouches for them.
const visitRecent = time.Second

// SetVisited notes that a child has come back from doing op, a word, in a user's files, now (CLOCK_BOOTTIME). Where it cannot
// be kept the next waits its turn.
func (s *Store) SetVisited(op string, uid uint32, now time.Duration) {
	_ = s.writeShared(visitFile(op, uid), answered{now})
}

// VisitedLately reports that a child came back from doing op in a user's files less than a moment before now (CLOCK_BOOTTIME).
func (s *Store) VisitedLately(op string, uid uint32, now time.Duration) bool {
	var last answered
	return s.peek(visitFile(op, uid), &last) && last.At >= 0 && last.At <= now && now-last.At < visitRecent
}

func visitFile(op string, uid uint32) string { return fmt.Sprintf(visitedBy+"%s-%d.json", op, uid) }

// StuckVisit returns the child that is stuck among a user's files, nil when there is none. Those of any user that are not
// alive any more are forgotten. An unusable record is a Damage, set aside.
func (s *Store) StuckVisit(uid uint32, alive func(Stuck) bool) (*Stuck, error) {
	stuck, err := salvaged(s, usersFile, s.stuckVisits)
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

// Reader is a child that reads other processes' /proc and cannot be killed.
type Reader struct {
	Stuck
	At []attrib.Instance `json:"at,omitempty"` // what it was reading; nothing if it did not say, or at too much
}

// MaxReaders is how many stuck readers are kept on record. With so many there must be no other: it could not be recorded.
const MaxReaders = 64

// Readers returns the stuck readers that are alive. A record that cannot be used is none.
func (s *Store) Readers(alive func(Stuck) bool) []Reader {
	var all []Reader
	s.peek(readersFile, &all)
	return slices.DeleteFunc(all, func(r Reader) bool { return !alive(r.Stuck) })
}

// PeekReaders is Readers for programs that make and change nothing.
func PeekReaders(run, node string, alive func(Stuck) bool) []Reader {
	if !slurm.ValidNode(node) {
		return nil
	}
	return (&Store{run: run, node: node, dir: filepath.Join(run, "state", node)}).Readers(alive)
}

// AddReader records a stuck reader, and forgets those that have ended. One that lives is never forgotten for another.
func (s *Store) AddReader(r Reader, alive func(Stuck) bool) error {
	return s.locked(lockOther, func() error {
		all := s.Readers(alive)
		if len(all) >= MaxReaders {
			return fmt.Errorf("record stuck reader %d: there are %d already", r.PID, len(all))
		}
		if len(r.At) > maxPlaces {
			r.At = nil
		}
		return s.writeShared(readersFile, append(all, r))
	})
}

// changeVisits changes the record of stuck visits, without those that have ended. An empty one is no file.
func (s *Store) changeVisits(alive func(Stuck) bool, change func(map[uint32]Stuck) error) error {
	return s.locked(lockOther, func() error {
		all := map[uint32]Stuck{}
		if err := s.readUnderLock(usersFile, &all); err != nil {
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
