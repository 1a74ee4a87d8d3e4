package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"bookend/internal/drain"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/health"
	"bookend/internal/ledger"
	"bookend/internal/safefile"
	"bookend/internal/slurmconf"
)

const checkLock = "lock-check"

const maxCheck = 512 << 10 // bytes

// Files of one value. 256 GPUs and 64 Slurm configuration files take about 40 KiB.
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

// BeOnlyCheck makes the caller the node's only running health check until release; ErrLocked if there is another.
func (s *Store) BeOnlyCheck() (release func(), err error) {
	release, err = safefile.Lock(filepath.Join(s.dir, checkLock), 0, true)
	if err != nil {
		return nil, fmt.Errorf("begin health check: %w", err)
	}
	return release, nil
}

// LastCheck returns what the node's last health check saw, nil if none. An unusable file is a Damage, set aside.
func (s *Store) LastCheck() (*ledger.Check, error) { return valueOf(checkFile.get(s)) }

// PutLastCheck stores what a health check saw; the caller is the only check. If it is too large, the verdict is kept.
func (s *Store) PutLastCheck(c ledger.Check) error {
	c.Wall = c.Wall.UTC().Round(0)
	return checkFile.put(s, versioned[ledger.Check]{fileVersion, c})
}

// Numbering returns what Slurm's GPU numbers mean on the node, nil if that is not stored.
func (s *Store) Numbering() (*slurmconf.Kept, error) { return valueOf(numberingFile.get(s)) }

// PeekNumbering is Numbering for readers that change nothing. It is nil if nothing can be read.
func PeekNumbering(run, node string) *slurmconf.Kept {
	k, _ := valueOf(peek(run, node, numberingFile), nil)
	return k
}

// PutNumbering replaces the stored answer. Concurrent hooks get the same answer.
func (s *Store) PutNumbering(k slurmconf.Kept) error {
	return numberingFile.put(s, versioned[slurmconf.Kept]{fileVersion, k})
}

// Inventory is the GPUs of the node that the last hook to list them found. It may be out of date at any time.
type Inventory struct {
	From  string     `json:"from"` // the directory that lists them
	Epoch gpu.Epoch  `json:"epoch"`
	Cards []gpu.Card `json:"cards"`
}

// Inventory returns the stored inventory, empty if it cannot be read: losing it does no harm.
func (s *Store) Inventory() Inventory { return orNone(inventoryFile.peek(s)).Value }

// PutInventory stores the inventory for the next hook.
func (s *Store) PutInventory(i Inventory) error {
	return inventoryFile.put(s, versioned[Inventory]{fileVersion, i})
}

// Examined is when the full condition of all GPUs was last read (CLOCK_BOOTTIME), 0 if that is not known.
func (s *Store) Examined() time.Duration { return orNone(examinedFile.peek(s)).Value }

// SetExamined records when it was read.
func (s *Store) SetExamined(at time.Duration) error {
	return examinedFile.put(s, versioned[time.Duration]{fileVersion, at})
}

const maxDrain = 64 << 10 // bytes; recorded exits that drained take 50 each: more than a node can have

var drainFile = file[drainContent]{name: "drain.json", most: maxDrain, wrong: wrongDrain}

// ErrChanged means that another program has changed what is remembered of the node's drain since it was read.
var ErrChanged = errors.New("the memory of the node's drain has changed meanwhile")

type drainContent struct {
	Version int `json:"version"`
	drain.Memory
}

// Drain returns what the node remembers of its drain. An unusable file is a Damage: then no reason counts as ours.
func (s *Store) Drain() (drain.Memory, error) {
	c, err := drainFile.get(s)
	return orNone(c).Memory, err
}

// SwapDrain replaces what is remembered, or returns ErrChanged if that no longer equals seen.
func (s *Store) SwapDrain(seen, next drain.Memory) error {
	return drainFile.change(s, func(now *drainContent) (*drainContent, error) {
		if !equalDrain(orNone(now).Memory, seen) {
			return nil, ErrChanged
		}
		return &drainContent{fileVersion, next}, nil
	})
}

func equalDrain(a, b drain.Memory) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

// wrongDrain returns why this program cannot have written it, if so: a reason must never count as ours in doubt.
func wrongDrain(c drainContent) string {
	if w := c.Written; w != nil && (!drain.Recorded(w.Reason) || len(w.Causes) == 0 || w.Wall.IsZero()) {
		return fmt.Sprintf("the reason %.200q of %d causes and %v is none of ours", w.Reason, len(w.Causes), w.Wall)
	}
	return otherVersion(c.Version)
}

const (
	recorderLock = "lock-recorder"
	maxRecorded  = 4 << 20 // bytes; 16 GPUs with a curve each take about 150 KiB
)

// Recorded is what the node's recorder has seen so far.
type Recorded struct {
	PID   int           `json:"pid"`
	Since time.Duration `json:"since_ns"` // CLOCK_BOOTTIME of its start
	At    time.Duration `json:"at_ns"`    // of its last update
	// Problem is why it sees nothing now, empty if it does see.
	Problem string            `json:"problem,omitempty"`
	Runs    ledger.Recordings `json:"runs,omitempty"`
}

// recordedFile is in its own directory, so that its changes do not look like changes of the records.
var recordedFile = versionedFile("recorded/runs.json", maxRecorded, encodeRecorded)

// encodeRecorded leaves out curves, then processes, if they do not fit into the file.
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

// BeRecorder makes the caller the node's only recorder, until release or the end of the process. ErrLocked means that
// there is one. It holds while is returns true: the state may be removed and created again by another recorder.
func (s *Store) BeRecorder() (is func() bool, release func(), err error) {
	return safefile.LockLong(filepath.Join(s.dir, recorderLock), lockWait)
}

// HasRecorder reports whether a recorder is running.
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

// Recorded returns what was recorded of the runs that have not ended; empty if there is none.
func (s *Store) Recorded() Recorded { return orNone(recordedFile.peek(s)).Value }

// Openings tracks the runs of a node that have begun and not ended. It reads the records again only after a change.
type Openings struct {
	store *Store
	seen  time.Time // when the node's directory had changed at the last read
	runs  []ledger.Run
}

func (s *Store) Openings() *Openings { return &Openings{store: s} }

func (o *Openings) Runs(now time.Time) []ledger.Run {
	const lately = time.Second // file times this close may not distinguish two changes
	info, err := os.Lstat(o.store.dir)
	if err == nil && info.ModTime().Equal(o.seen) && now.Sub(o.seen).Abs() >= lately {
		return o.runs
	}
	o.seen = time.Time{}
	all, damage := o.store.Runs()
	unread := slices.ContainsFunc(damage, func(d Damage) bool { return d.Unread })
	if err == nil && !unread {
		o.seen = info.ModTime()
	}
	known := slices.DeleteFunc(o.runs, func(old ledger.Run) bool {
		return !unread || slices.ContainsFunc(all, func(r ledger.Run) bool { return r.Name() == old.Name() })
	})
	o.runs = slices.Clone(known) // runs that could not be read now are kept
	for _, r := range all {
		if r.Start != nil && r.Running(all) {
			o.runs = append(o.runs, r)
		}
	}
	return o.runs
}

// maxCards is more GPUs and MIG instances than a node has: 16 GPUs with 7 instances.
const maxCards = 128

// ErrEpoch means that the epoch of a record is not fully known, so that it would hold for no sample.
var ErrEpoch = errors.New("the driver's epoch is unknown")

type perCard[T any] struct {
	file[cards[T]]
	id func(T) gpu.ID // the GPU's
}

type cards[T any] struct {
	Version int `json:"version"`
	Cards   []T `json:"cards"` // the newest last: if there are too many, the oldest are dropped
}

func cardFile[T any](name string, most int64, id func(T) gpu.ID) perCard[T] {
	wrong := func(all cards[T]) string { return otherVersion(all.Version) }
	return perCard[T]{file[cards[T]]{name: name, most: most, wrong: wrong}, id}
}

// all returns every entry by its GPU. An unusable file is a Damage, set aside; then nothing is known.
func (f perCard[T]) all(s *Store) (map[gpu.ID]T, error) {
	content, err := f.get(s)
	known := map[gpu.ID]T{}
	for _, c := range orNone(content).Cards {
		known[f.id(c)] = c
	}
	return known, err
}

// edit changes the entries. A damaged file is set aside and replaced.
func (f perCard[T]) edit(s *Store, edit func([]T) []T) error {
	return f.change(s, func(now *cards[T]) (*cards[T], error) {
		list := edit(orNone(now).Cards)
		return &cards[T]{fileVersion, list[max(0, len(list)-maxCards):]}, nil
	})
}

// baselineFile holds 128 GPUs with a few services each: about 0.3 KiB a GPU and 0.1 KiB a service.
var baselineFile = cardFile("baseline.json", 256<<10, func(b finding.Baseline) gpu.ID { return b.GPU })

// Baselines returns the memory that is in use on each GPU of the node without any job. A baseline holds only for the
// epoch that it names. An unusable file is a Damage, set aside; then no baseline is known.
func (s *Store) Baselines() (map[gpu.ID]finding.Baseline, error) { return baselineFile.all(s) }

// PutBaseline replaces one GPU's baseline and removes those of other epochs. Without a known epoch it returns ErrEpoch.
func (s *Store) PutBaseline(b finding.Baseline) error {
	if !b.Epoch.Same(b.Epoch) {
		return fmt.Errorf("put baseline of %q: %w", b.GPU, ErrEpoch)
	}
	return baselineFile.edit(s, func(cards []finding.Baseline) []finding.Baseline {
		void := func(o finding.Baseline) bool { return o.GPU == b.GPU || !o.Epoch.Same(b.Epoch) }
		return append(slices.DeleteFunc(cards, void), b)
	})
}

// DropBaselines removes the baselines of these GPUs, accepted or learned. A GPU without one is no error.
func (s *Store) DropBaselines(ids ...gpu.ID) error {
	return baselineFile.edit(s, func(cards []finding.Baseline) []finding.Baseline {
		return slices.DeleteFunc(cards, func(o finding.Baseline) bool { return slices.Contains(ids, o.GPU) })
	})
}

// probesFile holds 128 GPUs, all of them broken, with texts as long as serve.Bounded allows: 2 KiB a GPU.
var probesFile = cardFile("probes.json", 512<<10, func(r health.TestRecord) gpu.ID { return r.Probe.Device })

// Probes returns each GPU's last test (see health.TestRecord.Holds). An unusable file is a Damage; then there is none.
func (s *Store) Probes() (map[gpu.ID]health.TestRecord, error) { return probesFile.all(s) }

// PutProbes replaces GPUs' tests and removes those of other epochs. Without GPU or known epoch it returns ErrEpoch.
func (s *Store) PutProbes(records ...health.TestRecord) error {
	for _, r := range records {
		if !r.Epoch.Same(records[0].Epoch) || r.Probe.Device == "" {
			return fmt.Errorf("put test of %q: %w", r.Probe.Device, ErrEpoch)
		}
	}
	if len(records) == 0 {
		return nil
	}
	return probesFile.edit(s, func(cards []health.TestRecord) []health.TestRecord {
		for _, r := range records {
			r.Wall = r.Wall.UTC().Round(0)
			cards = append(slices.DeleteFunc(cards, func(o health.TestRecord) bool {
				return r.Probe.Device == o.Probe.Device || !o.Epoch.Same(r.Epoch)
			}), r)
		}
		return cards
	})
}
