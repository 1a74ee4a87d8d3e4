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
	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/safefile"
	"bookend/internal/slurmconf"
)

const checkLock = "lock-check"

// Files of one value. 256 GPUs and 64 Slurm configuration files take about 40 KiB.
var (
	checkFile     = file[*record.Check]{name: "check.json", most: 1 << 20, isValue: true, bare: bareCheck}
	numberingFile = file[*slurmconf.Kept]{name: "numbering.json", most: 128 << 10, isValue: true}
	inventoryFile = file[Inventory]{name: "inventory.json", most: 128 << 10, isValue: true}
	examinedFile  = file[time.Duration]{name: "examined.json", most: 1 << 10, isValue: true}
)

func bareCheck(c *record.Check) *record.Check {
	bare := c.Bare()
	return &bare
}

// BeOnlyCheck makes the caller the node's only running health check until release; ErrLocked if there is another.
func (s *Store) BeOnlyCheck() (release func(), err error) {
	release, err = safefile.Lock(filepath.Join(s.dir, checkLock), 0, true)
	if err != nil {
		return nil, fmt.Errorf("begin health check: %w", err)
	}
	return release, nil
}

// LastCheck returns what the node's last health check saw, nil if none. An unusable file is a Damage, set aside.
func (s *Store) LastCheck() (*record.Check, error) { return checkFile.Load(s) }

// PutLastCheck stores what a health check saw; the caller is the only check. If it is too large, the verdict is kept.
func (s *Store) PutLastCheck(c record.Check) error {
	c = c.Bounded()
	c.Wall = c.Wall.UTC().Round(0)
	return checkFile.Save(s, &c)
}

// Numbering returns what Slurm's GPU numbers mean on the node, nil if that is not stored.
func (s *Store) Numbering() (*slurmconf.Kept, error) { return numberingFile.Load(s) }

// PeekNumbering is Numbering for readers that change nothing. It is nil if nothing can be read.
func PeekNumbering(run, node string) *slurmconf.Kept { return numberingFile.peekNode(run, node) }

// PutNumbering replaces the stored answer. Concurrent hooks get the same answer.
func (s *Store) PutNumbering(k slurmconf.Kept) error { return numberingFile.Save(s, &k) }

// Inventory is the GPUs of the node that the last hook to list them found. It may be out of date at any time.
type Inventory struct {
	From  string         `json:"from"` // the directory that lists them
	Epoch gpu.Epoch      `json:"epoch"`
	Cards []gpu.Physical `json:"cards"`
}

// Inventory returns the stored inventory, empty if it cannot be read: losing it does no harm.
func (s *Store) Inventory() Inventory { return inventoryFile.peek(s) }

// PutInventory stores the inventory for the next hook.
func (s *Store) PutInventory(i Inventory) error { return inventoryFile.Save(s, i) }

// Examined is when the full condition of all GPUs was last read (CLOCK_BOOTTIME), 0 if that is not known.
func (s *Store) Examined() time.Duration { return examinedFile.peek(s) }

// SetExamined records when it was read.
func (s *Store) SetExamined(at time.Duration) error { return examinedFile.Save(s, at) }

const maxDrain = 64 << 10 // bytes; recorded exits that drained take 50 each: more than a node can have

var drainFile = file[drainContent]{name: "drain.json", most: maxDrain, wrong: wrongDrain}

// ErrChanged means that another program has changed what is remembered of the node's drain since it was read.
var ErrChanged = errors.New("the memory of the node's drain has changed meanwhile")

type drainContent struct {
	Version int `json:"version"`
	drain.Remembered
}

// Drain returns what the node remembers of its drain. An unusable file is a Damage: then no reason counts as ours.
func (s *Store) Drain() (drain.Remembered, error) {
	content, err := drainFile.Load(s)
	return content.Remembered, err
}

// SwapDrain replaces what is remembered, or returns ErrChanged if that no longer equals seen.
func (s *Store) SwapDrain(seen, next drain.Remembered) error {
	return drainFile.Update(s, func(now *drainContent) error {
		if !equalDrain(now.Remembered, seen) {
			return ErrChanged
		}
		*now = drainContent{fileVersion, next}
		return nil
	})
}

func equalDrain(a, b drain.Remembered) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

// wrongDrain returns why this program cannot have written it, if so: a reason must never count as ours in doubt.
func wrongDrain(c drainContent) string {
	if w := c.Written; w != nil && (!drain.IsOurReason(w.Reason) || len(w.Causes) == 0 || w.Wall.IsZero()) {
		return fmt.Sprintf("the reason %.200q of %d causes and %v is none of ours", w.Reason, len(w.Causes), w.Wall)
	}
	return otherVersion(c.Version)
}

const (
	recorderLock = "lock-recorder"
	maxRecorded  = 8 << 20 // bytes; 16 GPUs with a curve each take about 150 KiB
)

// RecorderState is what the node's recorder has seen so far.
type RecorderState struct {
	PID   int           `json:"pid"`
	Since time.Duration `json:"since_ns"` // CLOCK_BOOTTIME of its start
	At    time.Duration `json:"at_ns"`    // of its last update
	// Problem is why it sees nothing now, empty if it does see.
	Problem string            `json:"problem,omitempty"`
	Runs    record.Recordings `json:"runs,omitempty"`
}

// recordedFile is in its own directory, so that its changes do not look like changes of the records.
var recordedFile = file[RecorderState]{name: "recorded/runs.json", most: maxRecorded, isValue: true,
	bare: RecorderState.bare}

func (r RecorderState) bare() RecorderState {
	r.Runs = r.Runs.Bare()
	return r
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

// PutRecorderState replaces what was recorded. The caller is the only recorder.
func (s *Store) PutRecorderState(r RecorderState) error { return recordedFile.write(s, r) }

// RecorderState returns what was recorded of the runs that have not ended; empty if there is none.
func (s *Store) RecorderState() RecorderState { return recordedFile.peek(s) }

// Openings tracks the runs of a node that have begun and not ended. It reads the records again only after a change.
type Openings struct {
	store *Store
	seen  time.Time // when the node's directory had changed at the last read
	runs  []record.Run
}

func (s *Store) Openings() *Openings { return &Openings{store: s} }

func (o *Openings) Runs(now time.Time) []record.Run {
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
	known := slices.DeleteFunc(o.runs, func(old record.Run) bool {
		return !unread || slices.ContainsFunc(all, func(r record.Run) bool { return r.Name() == old.Name() })
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

type perGPU[T any] struct {
	Version int `json:"version"`
	Cards   []T `json:"cards"` // the newest last: if there are too many, the oldest are dropped
}

func perGPUFile[T any](name string, most int) file[perGPU[T]] {
	return file[perGPU[T]]{name: name, most: most, wrong: func(c perGPU[T]) string { return otherVersion(c.Version) }}
}

// byGPU returns every entry by its GPU. An unusable file is a Damage, set aside; then nothing is known.
func byGPU[T any](s *Store, f file[perGPU[T]], id func(T) gpu.ID) (map[gpu.ID]T, error) {
	content, err := f.Load(s)
	known := map[gpu.ID]T{}
	for _, c := range content.Cards {
		known[id(c)] = c
	}
	return known, err
}

// replace adds entries, and removes those that are void.
func replace[T any](s *Store, f file[perGPU[T]], void func(T) bool, entries ...T) error {
	return f.Update(s, func(c *perGPU[T]) error {
		all := append(slices.DeleteFunc(c.Cards, void), entries...)
		*c = perGPU[T]{fileVersion, all[max(0, len(all)-maxCards):]}
		return nil
	})
}

// baselineFile holds 128 GPUs with a few services each: about 0.3 KiB a GPU and 0.1 KiB a service.
var baselineFile = perGPUFile[record.Baseline]("baseline.json", 256<<10)

// Baselines returns the memory that is in use on each GPU of the node without any job. A baseline holds only for the
// epoch that it names. An unusable file is a Damage, set aside; then no baseline is known.
func (s *Store) Baselines() (map[gpu.ID]record.Baseline, error) {
	return byGPU(s, baselineFile, func(b record.Baseline) gpu.ID { return b.GPU })
}

// PutBaseline replaces one GPU's baseline and removes those of other epochs. Without a known epoch it returns ErrEpoch.
func (s *Store) PutBaseline(b record.Baseline) error {
	if !b.Epoch.Same(b.Epoch) {
		return fmt.Errorf("put baseline of %q: %w", b.GPU, ErrEpoch)
	}
	void := func(o record.Baseline) bool { return o.GPU == b.GPU || !o.Epoch.Same(b.Epoch) }
	return replace(s, baselineFile, void, b)
}

// DropBaselines removes the baselines of these GPUs, accepted or learned. A GPU without one is no error.
func (s *Store) DropBaselines(ids ...gpu.ID) error {
	return replace(s, baselineFile, func(o record.Baseline) bool { return slices.Contains(ids, o.GPU) })
}

// probesFile holds 128 GPUs, all of them broken, with texts as long as serve.Bounded allows: 2 KiB a GPU.
var probesFile = perGPUFile[record.TestRecord]("probes.json", 512<<10)

// Probes returns each GPU's last test (see health.TestRecord.Holds). An unusable file is a Damage; then there is none.
func (s *Store) Probes() (map[gpu.ID]record.TestRecord, error) {
	return byGPU(s, probesFile, func(r record.TestRecord) gpu.ID { return r.Probe.Device })
}

// PutProbes replaces GPUs' tests and removes those of other epochs. Without GPU or known epoch it returns ErrEpoch.
func (s *Store) PutProbes(records ...record.TestRecord) error {
	records = slices.Clone(records)
	for i := range records {
		r := &records[i]
		if !r.Epoch.Same(records[0].Epoch) || r.Probe.Device == "" {
			return fmt.Errorf("put test of %q: %w", r.Probe.Device, ErrEpoch)
		}
		r.Wall = r.Wall.UTC().Round(0)
	}
	if len(records) == 0 {
		return nil
	}
	return replace(s, probesFile, func(o record.TestRecord) bool {
		same := func(r record.TestRecord) bool { return r.Probe.Device == o.Probe.Device }
		return !o.Epoch.Same(records[0].Epoch) || slices.ContainsFunc(records, same)
	}, records...)
}
