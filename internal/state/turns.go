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

	"bookend/internal/child"
	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/safefile"
	"bookend/internal/slurm"
)

// Claim makes the caller the only active hook of a job's start or end, until release or the end of the process. Slurm
// may run such a hook a second time alongside the first, and gives the GPU to the next job once either has ended. Claim
// returns ErrLocked if another hook came first and did not end within wait.
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

// AskDriver makes the caller the only hook of the node that starts to query the driver, until it calls met: once the
// driver has answered, or no child of the hook is left in the driver, or that child is on record. Hooks that begin
// meanwhile wait for that and then query all at once, so that only the first leaves a child in a driver that does not
// answer. ErrLocked means that the first was still waiting when wait was over.
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

// ProbeLock returns the lock file of a GPU. A memory test holds it exclusively and by flock, so that the lock ends with
// the process that holds it. A process that judges that GPU's memory holds it shared.
func (s *Store) ProbeLock(id gpu.ID) string {
	return filepath.Join(s.dir, "probe-"+lockName(id)+".lock")
}

// lockName returns an id for use in a file name. Threat: "..", "/" and the like in the driver's id: it is hashed.
func lockName(id gpu.ID) string {
	h := fnv.New128a()
	_, _ = h.Write([]byte(id)) // never fails, as hash.Hash documents
	return fmt.Sprintf("%x", h.Sum(nil))
}

// Quiet waits, for at most wait in all, until no probe runs on these GPUs, and keeps probes off them until release,
// which must be called and may be called again. busy gives the reason for each GPU for which that failed.
func (s *Store) Quiet(ids []gpu.ID, wait time.Duration) (busy map[gpu.ID]string, release func()) {
	over, end := context.WithTimeout(context.Background(), wait)
	defer end()
	var held []func()
	busy = map[gpu.ID]string{}
	for _, id := range ids {
		// Threat: a process that can open the file can lock it forever: it is root's, 0600, in a directory of root's.
		unlock, err := safefile.LockIn(over, s.ProbeLock(id), false)
		if err != nil && !errors.Is(err, ErrLocked) { // retry: without the lock nothing can be judged of that GPU
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

// NoMPS returns an empty directory of this node: a process that looks for MPS there finds no server to connect to.
func (s *Store) NoMPS() (string, error) {
	path := filepath.Join(s.dir, noMPS)
	// Threat: an MPS server that another process put there; none from users, who cannot write here.
	if err := makeDirs(made{path, 0o700, false}); err != nil {
		return "", fmt.Errorf("make empty directory: %w", err)
	}
	return path, nil
}

// MaxReaders is how many stuck readers of /proc are kept on record. At that number no other reads what could hang, as
// it could not be recorded.
const MaxReaders = 64

const (
	maxPlaces  = 160       // of one reader: more than a search for holders can hang at
	maxReaders = 512 << 10 // bytes: MaxReaders readers with maxPlaces each take about 480 KiB
)

var (
	stuckFile   = file[[]Stuck]{name: "stuck-children.json", most: maxShared} // room for about 600
	readersFile = file[[]Stuck]{name: "stuck-readers.json", most: maxReaders}
)

// Stuck is a child that could not be killed. While it lives, no other is started for the same user, or for the driver.
// One that reads other processes' /proc is a reader, and keeps later ones only from what it was reading.
type Stuck struct {
	PID        int               `json:"pid"`
	StartTicks uint64            `json:"start_ticks"`   // its start time as in /proc
	Since      time.Duration     `json:"since_ns"`      // CLOCK_BOOTTIME when it was abandoned
	Op         string            `json:"op"`            // its operation
	User       *uint32           `json:"uid,omitempty"` // the user whose files it hangs on; nil: it hangs in the driver
	At         []record.Instance `json:"at,omitempty"`  // what a reader was reading; empty if not reported or too much
}

// AliveIn returns a function that reports, from proc ("/proc"), whether a stuck child still lives.
func AliveIn(proc string) func(Stuck) bool {
	return func(s Stuck) bool { return child.Alive(proc, s.PID, s.StartTicks) }
}

// Words describes a child that is stuck in the driver, for hooks and the command line.
func (s Stuck) Words(since string) string {
	return fmt.Sprintf("driver not answering since %s: PID %d (%s) cannot be killed", since, s.PID, s.Op)
}

// SetStuck adds a stuck child to those that live, and forgets the others: concurrent hooks may each leave one.
func (s *Store) SetStuck(stuck Stuck, alive func(Stuck) bool) error {
	return stuckFile.Update(s, func(all *[]Stuck) error {
		*all = append(living(*all, alive), stuck)
		return nil
	})
}

// AddReader records a stuck reader and forgets those that have ended. A live one is never dropped to make room.
func (s *Store) AddReader(reader Stuck, alive func(Stuck) bool) error {
	if len(reader.At) > maxPlaces {
		reader.At = nil
	}
	return readersFile.Update(s, func(all *[]Stuck) error {
		*all = append(living(*all, alive), reader)
		if n := len(*all) - 1; n >= MaxReaders {
			return fmt.Errorf("record stuck reader %d: there are %d already", reader.PID, n)
		}
		return nil
	})
}

func living(all []Stuck, alive func(Stuck) bool) []Stuck {
	return slices.DeleteFunc(all, func(s Stuck) bool { return !alive(s) })
}

// Stuck returns a live child that is stuck on a user's files, or in the driver if user is nil. An unusable record is a
// Damage, set aside.
func (s *Store) Stuck(user *uint32, alive func(Stuck) bool) (*Stuck, error) {
	all, err := stuckFile.Load(s)
	return firstStuck(all, user, alive), err
}

// PeekStuck is Stuck for the driver, for readers that change nothing. It is nil if nothing can be read.
func PeekStuck(run, node string, alive func(Stuck) bool) *Stuck {
	return firstStuck(stuckFile.peekNode(run, node), nil, alive)
}

func firstStuck(all []Stuck, user *uint32, alive func(Stuck) bool) *Stuck {
	for _, s := range all {
		if (user == nil) == (s.User == nil) && (user == nil || *user == *s.User) && alive(s) {
			return &s
		}
	}
	return nil
}

// PeekReaders returns the stuck readers that are alive; none if the record cannot be used. It changes nothing.
func PeekReaders(run, node string, alive func(Stuck) bool) []Stuck {
	return living(readersFile.peekNode(run, node), alive)
}

const sayAgain = time.Hour

var faultsFile = file[map[string]fault]{name: "faults.json", most: maxShared}

type fault struct {
	Said       time.Duration `json:"said_ns"` // CLOCK_BOOTTIME
	Suppressed int           `json:"suppressed"`
}

// lately reports whether a fault was reported within the hour. A time after now is of an earlier boot.
func (f fault) lately(now time.Duration) bool {
	return f.Said > 0 && now >= f.Said && now-f.Said < sayAgain
}

// Repeat reports whether to report a fault now: once an hour per node. suppressed is how often it was not, since it was
// last reported. If the count cannot be stored, the fault is reported each time: it is never silent.
func (s *Store) Repeat(code string, now time.Duration) (say bool, suppressed int) {
	err := faultsFile.Update(s, func(faults *map[string]fault) error {
		all := maps.Collect(maps.All(*faults))
		f := all[code]
		if f.lately(now) {
			f.Suppressed++
		} else {
			say, suppressed = true, f.Suppressed
			f = fault{Said: now}
		}
		maps.DeleteFunc(all, func(_ string, f fault) bool { return !f.lately(now) }) // or they would accumulate
		all[code] = f
		*faults = all
		return nil
	})
	if err != nil {
		return true, 0
	}
	return say, suppressed
}
