package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"bookend/internal/drain"
	"bookend/internal/gpu"
	"bookend/internal/ledger"
	"bookend/internal/safefile"
	"bookend/internal/slurmconf"
)

const checkLock = "lock-check"

const maxCheck = 512 << 10 // bytes

// Files of one value. 256 GPUs and 64 files of Slurm some 40 KiB.
var (
	checkFile = versionedFile("check.json", maxCheck, func(v versioned[ledger.Check]) ([]byte, error) {
		return fitted(maxCheck, func(level int) any {
			return versioned[ledger.Check]{v.Version, v.Value.Bounded(level)}
		})
	})
	numberingFile = versionedFile[slurmconf.Kept]("numbering.json", 128<<10, nil)
	inventoryFile = versionedFile[Inventory]("inventory.json", 128<<10, nil)
	examinedFile  = versionedFile[time.Duration]("examined.json", 1<<10, nil)
)

// BeOnlyCheck makes the caller the node's one health check at work, until release or the process's end. It gives
// ErrLocked where there is another.
func (s *Store) BeOnlyCheck() (release func(), err error) {
	release, err = safefile.Lock(filepath.Join(s.dir, checkLock), 0, true)
	if err != nil {
		return nil, fmt.Errorf("begin health check: %w", err)
	}
	return release, nil
}

// LastCheck is what the node's last health check saw, nil where there was none. An unusable file is a Damage, set
// aside; so it is with all that follows.
func (s *Store) LastCheck() (*ledger.Check, error) { return valueOf(checkFile.get(s)) }

// PutLastCheck keeps what a health check saw, for the next one and for the command line. The caller is the only check.
// Of too much it keeps the verdict rather than nothing.
func (s *Store) PutLastCheck(c ledger.Check) error {
	c.Wall = c.Wall.UTC().Round(0)
	return checkFile.put(s, versioned[ledger.Check]{fileVersion, c})
}

// Numbering is what Slurm's GPU numbers mean on the node, nil where nothing is kept.
func (s *Store) Numbering() (*slurmconf.Kept, error) { return valueOf(numberingFile.get(s)) }

// PeekNumbering is Numbering for readers that change nothing: nil too where nothing can be read.
func PeekNumbering(run, node string) *slurmconf.Kept {
	k, _ := valueOf(peek(run, node, numberingFile), nil)
	return k
}

// PutNumbering keeps an answer in the place of the one before. Hooks that ask at once get the same answer.
func (s *Store) PutNumbering(k slurmconf.Kept) error {
	return numberingFile.put(s, versioned[slurmconf.Kept]{fileVersion, k})
}

// Inventory is which GPUs the last hook that asked found on the node. It may be out of date at any time.
type Inventory struct {
	From  string     `json:"from"` // the directory that lists them
	Epoch gpu.Epoch  `json:"epoch"`
	Cards []gpu.Card `json:"cards"`
}

// Inventory is empty where nothing can be read: what is lost costs nothing.
func (s *Store) Inventory() Inventory { return orNone(inventoryFile.peek(s)).Value }

// PutInventory keeps it for the next hook.
func (s *Store) PutInventory(i Inventory) error {
	return inventoryFile.put(s, versioned[Inventory]{fileVersion, i})
}

// Examined is when the whole condition of all GPUs was read last (CLOCK_BOOTTIME), 0 where nothing tells.
func (s *Store) Examined() time.Duration { return orNone(examinedFile.peek(s)).Value }

// SetExamined says that it was read just now.
func (s *Store) SetExamined(at time.Duration) error {
	return examinedFile.put(s, versioned[time.Duration]{fileVersion, at})
}

const maxDrain = 64 << 10 // 512 exits of 50 bytes and 64 causes of 100

var drainFile = file[drainContent]{name: "drain.json", most: maxDrain, wrong: wrongDrain}

// ErrChanged: another program has changed what is remembered of the node's drain since it was read.
var ErrChanged = errors.New("the memory of the node's drain has changed meanwhile")

type drainContent struct {
	Version int `json:"version"`
	drain.Memory
}

// Drain returns what the node remembers of its drain, nothing where nothing is. An unusable file is a Damage, set
// aside: then nothing is remembered, and no reason that stands is ours.
func (s *Store) Drain() (drain.Memory, error) {
	c, err := drainFile.get(s)
	return orNone(c).Memory, err
}

// SwapDrain replaces what is remembered, and gives ErrChanged where that is not what seen says any more.
func (s *Store) SwapDrain(seen, next drain.Memory) error {
	return drainFile.change(s, func(now *drainContent) (*drainContent, error) {
		if !equalDrain(orNone(now).Memory, seen) {
			return nil, ErrChanged
		}
		return &drainContent{fileVersion, next}, nil
	})
}

// equalDrain compares what would be written.
func equalDrain(a, b drain.Memory) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

// wrongDrain says why this cannot be what was written, empty where it can: what is not surely ours must never make a
// reason ours.
func wrongDrain(c drainContent) string {
	if w := c.Written; w != nil && (!drain.Recorded(w.Reason) || len(w.Causes) == 0 || w.Wall.IsZero()) {
		return fmt.Sprintf("the reason %.200q of %d causes and %v is none of ours", w.Reason, len(w.Causes), w.Wall)
	}
	return otherVersion(c.Version)
}

const (
	recorderLock = "lock-recorder"
	maxRecorded  = 4 << 20 // bytes; 16 GPUs with a course each take some 150 KiB
)

// Recorded is what the node's recorder has seen so far.
type Recorded struct {
	PID   int           `json:"pid"`
	Since time.Duration `json:"since_ns"` // CLOCK_BOOTTIME of its beginning
	At    time.Duration `json:"at_ns"`    // of its last word
	// Problem is why it sees nothing now, empty where it does.
	Problem string            `json:"problem,omitempty"`
	Runs    ledger.Recordings `json:"runs,omitempty"`
}

// recordedFile lies in a folder of its own, so that its changes do not look like those of the records.
var recordedFile = versionedFile("recorded/runs.json", maxRecorded, encodeRecorded)

// encodeRecorded leaves out courses, then processes, where they are too many for the file.
func encodeRecorded(v versioned[Recorded]) ([]byte, error) {
	return fitted(maxRecorded, func(level int) any {
		less := v
		less.Value.Runs = ledger.Recordings{}
		for name, r := range v.Value.Runs {
			less.Value.Runs[name] = *r.Bounded(level)
		}
		return less
	})
}

// BeRecorder makes the caller the node's one recorder, until release or the process's end. It gives ErrLocked where
// there is one.
func (s *Store) BeRecorder() (release func(), err error) {
	return safefile.Lock(filepath.Join(s.dir, recorderLock), lockWait, true)
}

// HasRecorder reports whether a recorder is at work.
func (s *Store) HasRecorder() bool {
	release, err := safefile.Lock(filepath.Join(s.dir, recorderLock), 0, false)
	if err == nil {
		release()
	}
	return errors.Is(err, ErrLocked)
}

// PutRecorded replaces what was recorded. The caller is the only recorder.
func (s *Store) PutRecorded(r Recorded) error {
	return recordedFile.write(s, versioned[Recorded]{fileVersion, r})
}

// Recorded is what was recorded of the runs that have not ended; nothing where there is none.
func (s *Store) Recorded() Recorded { return orNone(recordedFile.peek(s)).Value }

// Openings follows the runs of a node that have begun and not ended. It reads the records again where one has changed.
type Openings struct {
	store *Store
	seen  time.Time // when the node's directory had changed
	runs  []ledger.Run
}

func (s *Store) Openings() *Openings { return &Openings{store: s} }

func (o *Openings) Runs(now time.Time) []ledger.Run {
	const lately = time.Second // in which the clock of files may not tell two changes apart
	info, err := os.Lstat(o.store.dir)
	if err == nil && info.ModTime().Equal(o.seen) && now.Sub(o.seen).Abs() >= lately {
		return o.runs
	}
	if o.runs, o.seen = nil, (time.Time{}); err == nil {
		o.seen = info.ModTime()
	}
	all, _ := o.store.Runs()
	for _, r := range all {
		if r.Start != nil && r.Running(all) {
			o.runs = append(o.runs, r)
		}
	}
	return o.runs
}
