package state

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/safefile"
	"bookend/internal/slurm"
)

// Claim makes the caller the one hook of a job's start, or end, that is at work, until release or the process's end.
// Slurm may run such a hook a second time beside the first, and the card is the next job's once either has ended. It
// gives ErrLocked where another hook came first and did not end within wait.
func (s *Store) Claim(job slurm.Job, phase slurm.Context, wait time.Duration) (release func(), err error) {
	if err := s.check(job); err != nil {
		return nil, fmt.Errorf("claim job: %w", err)
	}
	name := "lock-ends"
	if phase == slurm.Prolog {
		name = "lock-starts"
	}
	return safefile.LockNumber(filepath.Join(s.dir, name), uint32(job.ID), wait)
}

const driverLock = "lock-driver"

// AskDriver makes the caller the one hook of the node that starts to ask the driver, until it calls met: it got an
// answer, has no child left in the driver, or has put it on record. Hooks that begin meanwhile wait for that, and then ask
// all at once: on a driver that does not answer, only the first leaves a child. ErrLocked: the first still waited when
// wait was over.
func (s *Store) AskDriver(wait time.Duration) (met func(), err error) {
	over, end := context.WithTimeout(context.Background(), wait)
	defer end()
	path := filepath.Join(s.dir, driverLock)
	for {
		before := answeredAt(path)
		release, err := safefile.Lock(path, 0, true)
		if err == nil {
			return sync.OnceFunc(func() {
				_ = unix.Utimes(path, nil)
				release()
			}), nil
		}
		if errors.Is(err, ErrLocked) {
			release, err = safefile.LockIn(over, path, false)
		}
		if err != nil {
			return nil, err
		}
		release()
		if !answeredAt(path).Equal(before) {
			return func() {}, nil
		}
	}
}

// answeredAt is when a driver lock was released after an answer; zero if never.
func answeredAt(path string) (at time.Time) {
	// Threat: none, only root can write to the directory.
	if info, err := os.Lstat(path); err == nil {
		at = info.ModTime()
	}
	return at
}

const noMPS = "no-mps"

// ProbeLock is the lock file of a GPU: whoever takes memory of it to test it holds the lock exclusively, and by
// flock, so that the lock ends with the process that holds it. Whoever judges that GPU's memory holds it shared.
func (s *Store) ProbeLock(id gpu.ID) string {
	return filepath.Join(s.dir, "probe-"+lockName(id)+".lock")
}

// lockName is an id as part of a file name. Threat: "..", "/" and the like in the driver's opaque id: it is hashed.
func lockName(id gpu.ID) string {
	h := fnv.New128a()
	_, _ = h.Write([]byte(id)) // cannot fail: hash.Hash says so
	return fmt.Sprintf("%x", h.Sum(nil))
}

// Quiet waits until no probe is at work on these GPUs, for at most wait in all, and keeps probes off them until
// release, which must be called and may be called again. Of each GPU for which that did not succeed, busy says why.
func (s *Store) Quiet(ids []gpu.ID, wait time.Duration) (busy map[gpu.ID]string, release func()) {
	over, end := context.WithTimeout(context.Background(), wait)
	defer end()
	var held []func()
	busy = map[gpu.ID]string{}
	for _, id := range ids {
		// Threat: whoever can open the file can lock it for ever: it is root's, 0600, in a folder of root's.
		unlock, err := safefile.LockIn(over, s.ProbeLock(id), false)
		if err != nil && !errors.Is(err, ErrLocked) { // once more: without it nothing can be judged of that GPU
			unlock, err = safefile.LockIn(over, s.ProbeLock(id), false)
		}
		switch {
		case err == nil:
			held = append(held, unlock)
		case errors.Is(err, ErrLocked):
			busy[id] = "a probe of Bookend was still at work on it"
		default:
			busy[id] = fmt.Sprintf("whether a probe of Bookend is at work on it could not be told: %v", err)
		}
	}
	return busy, sync.OnceFunc(func() {
		for _, unlock := range held {
			unlock()
		}
	})
}

// NoMPS returns an empty directory of this node's: a process that looks for MPS there finds none to be a client of.
func (s *Store) NoMPS() (string, error) {
	path := filepath.Join(s.dir, noMPS)
	// Threat: a service that somebody else put there; none from users, who cannot write here.
	if err := makeFolders(made{path, 0o700, false}); err != nil {
		return "", fmt.Errorf("make empty directory: %w", err)
	}
	return path, nil
}

const (
	maxPlaces  = 160       // of one reader: more than a search for holders can hang at
	maxReaders = 512 << 10 // bytes: maxPlaces of MaxReaders are some 480 KiB
)

var (
	stuckFile   = file[[]Stuck]{name: "stuck-children.json", most: maxShared} // room for some 600
	readersFile = file[[]Reader]{name: "stuck-readers.json", most: maxReaders}
)

// Stuck is a child that could not be killed. While it lives, no other is started where it is.
type Stuck struct {
	PID        int           `json:"pid"`
	StartTicks uint64        `json:"start_ticks"`   // its start time as /proc gives it
	Since      time.Duration `json:"since_ns"`      // CLOCK_BOOTTIME when it was given up
	Op         string        `json:"op"`            // what it was to do
	User       *uint32       `json:"uid,omitempty"` // whose files it is among; nil: it is in the driver
}

// SetStuck records a stuck child beside those that live, and forgets the others: hooks at once may each leave one.
func (s *Store) SetStuck(stuck Stuck, alive func(Stuck) bool) error {
	return stuckFile.change(s, func(now *[]Stuck) (*[]Stuck, error) {
		all := slices.DeleteFunc(orNone(now), func(o Stuck) bool { return !alive(o) })
		all = append(all, stuck)
		return &all, nil
	})
}

// Stuck returns a live child that is stuck among a user's files, or in the driver for nil. An unusable record is a
// Damage, set aside.
func (s *Store) Stuck(user *uint32, alive func(Stuck) bool) (*Stuck, error) {
	all, err := stuckFile.get(s)
	return firstStuck(all, user, alive), err
}

// PeekStuck is Stuck in the driver for those who make and change nothing: nil too where nothing can be read.
func PeekStuck(run, node string, alive func(Stuck) bool) *Stuck {
	return firstStuck(peek(run, node, stuckFile), nil, alive)
}

func firstStuck(all *[]Stuck, user *uint32, alive func(Stuck) bool) *Stuck {
	for _, s := range orNone(all) {
		if (user == nil) == (s.User == nil) && (user == nil || *user == *s.User) && alive(s) {
			return &s
		}
	}
	return nil
}

// Reader is a child that reads other processes' /proc and cannot be killed.
type Reader struct {
	Stuck
	At []finding.Instance `json:"at,omitempty"` // what it was reading; nothing if it did not say, or at too much
}

// MaxReaders is how many stuck readers are kept on record. With so many no other reads what could hang: it could not be
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
