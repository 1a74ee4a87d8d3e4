package state

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/safefile"
	"bookend/internal/slurm"
)

// Turns are locks in a node's directory: they let one process at a time do what must not be done by two. Each is held
// until release or the end of the process, and refused with ErrLocked.
type Turns struct{ dir string }

// Claim makes the caller the only active hook of a job's start or end. Slurm may run such a hook a second time next to
// the first, and gives the GPU to the next job once either has ended. Claim waits for the other hook.
func (t Turns) Claim(job slurm.JobID, phase slurm.Context, wait time.Duration) (release func(), err error) {
	name := "lock-ends"
	if phase == slurm.Prolog {
		name = "lock-starts"
	}
	return safefile.LockNumber(filepath.Join(t.dir, name), uint32(job), wait)
}

// Check makes the caller the node's only running health check, or reset.
func (t Turns) Check(wait time.Duration) (release func(), err error) {
	return safefile.Lock(filepath.Join(t.dir, "lock-check"), wait, true)
}

// Quarantine makes the caller the only one that changes which GPUs are in quarantine.
func (t Turns) Quarantine(wait time.Duration) (release func(), err error) {
	return safefile.Lock(filepath.Join(t.dir, "lock-quarantine"), wait, true)
}

const recorderLock = "lock-recorder"

// Recorder makes the caller the node's only recorder while is returns true: another may create the state again.
func (t Turns) Recorder() (is func() bool, release func(), err error) {
	return safefile.LockLong(filepath.Join(t.dir, recorderLock), lockWait)
}

// EndRecorder makes the node's recorder end, within wait, and keeps hooks from starting another until release.
func (t Turns) EndRecorder(wait time.Duration) (release func(), err error) {
	return safefile.TakeOver(filepath.Join(t.dir, recorderLock), wait)
}

// HasRecorder reports whether a recorder is running.
func (t Turns) HasRecorder() bool {
	release, err := safefile.Lock(filepath.Join(t.dir, recorderLock), 0, false)
	if err == nil {
		release()
	}
	return errors.Is(err, ErrLocked)
}

// Part is a part of the driver that can hang while others answer.
type Part string

const (
	Library Part = "driver"       // what answers NVML and its like
	Files   Part = "driver-files" // in /proc and /sys
)

// AskDriver makes the caller the only hook of the node that starts to query a part of the driver, until it calls next:
// once that has answered, or no child of the hook is left in it, or that child is on record. Hooks that begin meanwhile
// wait for that and then query all at once if it has answered, else one after the other: only the first leaves a child
// in a driver that does not answer. None waits if the part has answered within the last few seconds. ErrLocked means
// that another was still waiting when wait was over.
func (t Turns) AskDriver(part Part, now time.Time, wait time.Duration) (next func(answered bool), err error) {
	const lately = 3 * time.Second // several samples of the recorder's
	over, end := context.WithTimeout(context.Background(), wait)
	defer end()
	before := t.answeredAt(part)
	if now.Sub(before).Abs() < lately { // another may answer while this hook starts
		return func(bool) {}, nil
	}
	for path := filepath.Join(t.dir, "lock-"+string(part)); ; {
		release, err := safefile.Lock(path, 0, true)
		first := err == nil
		if errors.Is(err, ErrLocked) {
			release, err = safefile.LockIn(over, path, false)
		}
		switch {
		case err != nil:
			return nil, err
		case !t.answeredAt(part).Equal(before):
			release()
			return func(bool) {}, nil
		case first:
			var once sync.Once
			return func(answered bool) { once.Do(func() { t.next(part, answered, release) }) }, nil
		}
		release()
	}
}

func (t Turns) next(part Part, answered bool, release func()) {
	if answered {
		t.DriverAnswered(part)
	}
	release()
}

// answer is the name of a file whose time of change is when the part last answered.
func (p Part) answer() string { return string(p) + "-answered" }

func (t Turns) DriverAnswered(part Part) {
	for _, p := range slices.Compact([]Part{part, Files}) { // a driver whose library answers has files that do
		if unix.Utimes(filepath.Join(t.dir, p.answer()), nil) != nil {
			_ = safefile.Replace(t.dir, p.answer(), nil, 0o600) // without it hooks only wait for each other
		}
	}
}

// answeredAt is when a part of the driver last answered, zero if never in this boot.
func (t Turns) answeredAt(part Part) (at time.Time) {
	// Threat: none, only root can write to the directory.
	if info, err := os.Lstat(filepath.Join(t.dir, part.answer())); err == nil {
		at = info.ModTime()
	}
	return at
}

// ProbeLock returns the lock file of a GPU. A memory test holds it exclusively and by flock, so that the lock ends with
// the process that holds it. A process that judges that GPU's memory holds it shared.
func (t Turns) ProbeLock(id gpu.ID) string {
	// Threat: "..", "/" and the like in the driver's id: it is hashed.
	h := fnv.New128a()
	_, _ = h.Write([]byte(id)) // never fails, as hash.Hash documents
	return filepath.Join(t.dir, fmt.Sprintf("probe-%x.lock", h.Sum(nil)))
}

// Quiet waits, for at most wait in all, until no probe runs on these GPUs, and keeps probes off them until release,
// which must be called and may be called again. busy gives the reason for each GPU for which that failed.
func (t Turns) Quiet(ids []gpu.ID, wait time.Duration) (busy map[gpu.ID]string, release func()) {
	over, end := context.WithTimeout(context.Background(), wait)
	defer end()
	var held []func()
	busy = map[gpu.ID]string{}
	for _, id := range ids {
		// Threat: a process that can open the file can lock it forever: it is root's, 0600, in a directory of root's.
		unlock, err := safefile.LockIn(over, t.ProbeLock(id), false)
		if err != nil && !errors.Is(err, ErrLocked) { // once more: without the lock nothing can be judged of that GPU
			unlock, err = safefile.LockIn(over, t.ProbeLock(id), false)
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
func (t Turns) NoMPS() (string, error) {
	path := filepath.Join(t.dir, "no-mps")
	// Threat: an MPS server that another process put there; none from users, who cannot write here.
	if err := makeDirs(made{path, 0o700, false}); err != nil {
		return "", fmt.Errorf("make empty directory: %w", err)
	}
	return path, nil
}

// MaxReaders is how many stuck readers of /proc are kept on record. At that number no other reads what could hang.
const MaxReaders = 64

const (
	maxPlaces  = 160       // of one reader: more than a search for holders can hang at
	maxReaders = 512 << 10 // bytes: MaxReaders readers with maxPlaces each take about 480 KiB
)

// StuckList is a file of stuck children.
type StuckList struct {
	file File[[]Stuck]
	most int
}

var (
	// StuckChildren are stuck in the driver or on a user's files.
	StuckChildren = StuckList{File[[]Stuck]{name: "stuck-children.json", most: maxShared}, 512}
	// StuckReaders read other processes' /proc. Each keeps later ones only from what it was reading.
	StuckReaders = StuckList{File[[]Stuck]{name: "stuck-readers.json", most: maxReaders}, MaxReaders}
)

// HungAt returns the processes at which stuck readers of /proc hang: a new reader skips them. With too many readers on
// record, the new one skips every process's memory, which is what hangs. blocked means that there must be no new
// reader: an earlier one did not report where it hangs.
func HungAt(op string, readers []Stuck) (at []record.Instance, blocked bool) {
	for _, r := range readers {
		at, blocked = append(at, r.At...), blocked || len(r.At) == 0 && r.Op == op
	}
	if len(readers) >= MaxReaders {
		at = []record.Instance{{}}
	}
	return at, blocked
}

// Stuck is a child that could not be killed. While it lives, no other is started for the same user, or for the driver.
type Stuck struct {
	PID        int               `json:"pid"`
	StartTicks uint64            `json:"start_ticks"`   // its start time as in /proc
	Since      time.Duration     `json:"since_ns"`      // CLOCK_BOOTTIME when it was abandoned
	Op         string            `json:"op"`            // its operation
	User       *uint32           `json:"uid,omitempty"` // the user whose files it hangs on; nil: it hangs in the driver
	At         []record.Instance `json:"at,omitempty"`  // what a reader was reading; empty if not reported or too much
}

// Alive reports whether a child still lives, by its PID and its start in clock ticks since boot.
type Alive = func(pid int, startTicks uint64) bool

// Words describes a child that is stuck in the driver, for hooks and the command line.
func (s Stuck) Words(since string) string {
	return fmt.Sprintf("driver not answering since %s: PID %d (%s) cannot be killed", since, s.PID, s.Op)
}

// Add records a stuck child and forgets those that have ended. A live one is never dropped to make room.
func (l StuckList) Add(s *Store, stuck Stuck, alive Alive) error {
	if len(stuck.At) > maxPlaces {
		stuck.At = nil
	}
	return l.file.Update(s, func(all *[]Stuck) error {
		*all = append(living(*all, alive), stuck)
		if n := len(*all) - 1; n >= l.most {
			return fmt.Errorf("record stuck child %d: there are %d already", stuck.PID, n)
		}
		return nil
	})
}

func living(all []Stuck, alive Alive) []Stuck {
	return slices.DeleteFunc(all, func(s Stuck) bool { return !alive(s.PID, s.StartTicks) })
}

// PeekNode returns those that are alive, for readers that change nothing; none if the file cannot be used.
func (l StuckList) PeekNode(run, node string, alive Alive) []Stuck {
	return living(l.file.PeekNode(run, node), alive)
}

// Stuck returns a live child that is stuck on a user's files, or in the driver if user is nil.
func (s *Store) Stuck(user *uint32, alive Alive) (*Stuck, error) {
	all, err := StuckChildren.file.Load(s)
	return firstStuck(all, user, alive), err
}

// PeekStuck is Stuck for the driver, for readers that change nothing. It is nil if nothing can be read.
func PeekStuck(run, node string, alive Alive) *Stuck {
	return firstStuck(StuckChildren.file.PeekNode(run, node), nil, alive)
}

func firstStuck(all []Stuck, user *uint32, alive Alive) *Stuck {
	for _, s := range all {
		if (user == nil) == (s.User == nil) && (user == nil || *user == *s.User) && alive(s.PID, s.StartTicks) {
			return &s
		}
	}
	return nil
}
