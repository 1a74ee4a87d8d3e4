package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"bookend/internal/drain"
	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/slurm"
)

// Files of one value. 256 GPUs and 64 Slurm configuration files take about 40 KiB.
var (
	// LastCheck is what the node's last health check saw. If it is too large, the verdict is kept.
	LastCheck = File[*record.Check]{
		name: "check.json", most: 1 << 20, isValue: true,
		tidy: func(c *record.Check) *record.Check { return new(c.Bounded()) },
		bare: func(c *record.Check) *record.Check { return new(c.Bare()) },
	}
	// LastInventory may be out of date at any time, and losing it does no harm.
	LastInventory = File[Inventory]{name: "inventory.json", most: 128 << 10, isValue: true}
	// LastExamined is when the full condition of all GPUs was last read (CLOCK_BOOTTIME), 0 if that is not known.
	LastExamined = File[time.Duration]{name: "examined.json", most: 1 << 10, isValue: true}
	// Recorded is what the node's recorder has seen of the runs that have not ended: 16 GPUs with a curve each take
	// about 150 KiB. It has its own directory, so that its changes do not look like changes of the records.
	Recorded = File[RecorderState]{name: "recorded/runs.json", most: 8 << 20, isValue: true, bare: RecorderState.bare}
	// Standing is the fatal errors of the node's GPUs that nothing is known to have ended: 128 of them take 160 KiB.
	Standing = File[record.Standing]{name: "standing.json", most: 512 << 10, isValue: true}
	// Quarantines are the jobs that keep GPUs from other jobs: hooks do nothing for them.
	Quarantines = File[[]Quarantine]{name: "quarantine.json", most: 64 << 10, isValue: true}
	// DiskTroubles are the troubles of each task whose last attempt failed.
	DiskTroubles = File[[]record.DiskTrouble]{name: "disk-troubles.json", most: maxShared}
	// drainFile has room for more recorded exits that drained than a node can have: they take 50 bytes each.
	drainFile = File[drainContent]{name: "drain.json", most: 64 << 10, wrong: wrongDrain}
)

// Value is a file of one value of less than most bytes, for values that only a hook's own package knows.
func Value[T any](name string, most int) File[T] {
	return File[T]{name: name, most: most, isValue: true}
}

// Inventory is the GPUs of the node that the last hook to list them found.
type Inventory struct {
	From  string         `json:"from"` // the directory that lists them
	Epoch gpu.Epoch      `json:"epoch"`
	Cards []gpu.Physical `json:"cards"`
	// Gone are GPUs that hooks found earlier in this boot and that the driver does not list any more.
	Gone []gpu.Physical `json:"gone,omitempty"`
}

// Since returns the inventory with the GPUs that are gone since an earlier one.
func (i Inventory) Since(earlier Inventory) Inventory {
	if boot := i.Epoch.Boot; boot == "" || boot != earlier.Epoch.Boot || i.From != earlier.From {
		return i
	}
	i.Gone = slices.DeleteFunc(slices.Concat(earlier.Gone, earlier.Cards), func(then gpu.Physical) bool {
		return then.Device.ID == "" || slices.ContainsFunc(i.Cards, func(now gpu.Physical) bool {
			return now.Device.ID == then.Device.ID || now.Device.ID == "" && now.Device.BusID == then.Device.BusID
		})
	})
	return i
}

// Quarantine is a job of root's that holds a GPU so that no other job gets it, or is to: then GPU is negative.
type Quarantine struct {
	Job    slurm.JobID `json:"job"`
	GPU    int         `json:"gpu"`            // Slurm's number
	UUID   gpu.ID      `json:"uuid,omitempty"` // empty if the driver does not tell
	Since  time.Time   `json:"since"`
	Reason string      `json:"reason,omitempty"`
	// Of what an admin wants beyond a reboot, also this. Zero Until: until it is released. Boot is that of the job.
	Until     time.Time `json:"until,omitzero"`
	Boot      string    `json:"boot,omitempty"`
	Partition string    `json:"partition,omitempty"`
	Account   string    `json:"account,omitempty"`
	Conf      string    `json:"slurm_conf,omitempty"`
	Problem   string    `json:"problem,omitempty"` // why no job holds the GPU at present
	Tried     time.Time `json:"tried,omitzero"`    // when jobs were last queued for it, in vain
	Vain      int       `json:"in_vain,omitzero"`  // how often in a row
}

// Note returns a function that records for hooks which of these GPUs jobs hold, -1 for none yet or no more.
func Note(s *Store, now func() time.Time, all ...Quarantine) func(gpu int, jobs ...slurm.JobID) error {
	return func(gpu int, jobs ...slurm.JobID) error {
		q := all[max(0, slices.IndexFunc(all, Quarantine{GPU: gpu}.SameGPU))]
		return s.Quarantine(Quarantine{GPU: gpu, UUID: q.UUID, Since: now(), Reason: q.Reason}, jobs)
	}
}

// SameGPU reports whether another is of the same number.
func (q Quarantine) SameGPU(o Quarantine) bool { return q.GPU == o.GPU }

// Alike reports whether jobs that are submitted alike can hold both GPUs.
func (q Quarantine) Alike(o Quarantine) bool {
	return q.Partition == o.Partition && q.Account == o.Account && q.Conf == o.Conf && q.Until.Equal(o.Until)
}

// Over reports whether the time for which an admin wanted it has passed.
func (q Quarantine) Over(now time.Time) bool { return !q.Until.IsZero() && !now.Before(q.Until) }

// Holds reports whether this is that job. Threat: a user's job with the number of an earlier one: only root's count.
func (q Quarantine) Holds(j slurm.Job) bool { return q.Job == j.ID && j.UID == 0 }

// Quarantine records jobs that are to hold a GPU, in place of what was recorded of them or of a command that died.
func (s *Store) Quarantine(as Quarantine, jobs []slurm.JobID) error {
	return Quarantines.Update(s, func(list *[]Quarantine) error {
		*list = slices.DeleteFunc(*list, func(q Quarantine) bool {
			return slices.Contains(jobs, q.Job) || q.GPU < 0 && as.Since.Sub(q.Since) > time.Hour
		})
		for _, as.Job = range jobs {
			*list = append(*list, as)
		}
		return nil
	})
}

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
		is, _ := json.Marshal(now.Remembered)
		if was, err := json.Marshal(seen); err != nil || !bytes.Equal(is, was) {
			return ErrChanged
		}
		*now = drainContent{fileVersion, next}
		return nil
	})
}

// wrongDrain returns why this program cannot have written it, if so: a reason must never count as ours in doubt.
func wrongDrain(c drainContent) string {
	if w := c.Written; w != nil && (!drain.IsOurReason(w.Reason) || len(w.Causes) == 0 || w.Wall.IsZero()) {
		return fmt.Sprintf("the reason %.200q of %d causes and %v is none of ours", w.Reason, len(w.Causes), w.Wall)
	}
	return otherVersion(c.Version)
}

// RecorderState is what the node's recorder has seen so far.
type RecorderState struct {
	PID     int               `json:"pid"`
	Since   time.Duration     `json:"since_ns"`          // CLOCK_BOOTTIME of its start
	At      time.Duration     `json:"at_ns"`             // of its last update
	Problem string            `json:"problem,omitempty"` // why it sees nothing now, empty if it does see
	Runs    record.Recordings `json:"runs,omitempty"`
	Outputs Outputs           `json:"outputs,omitempty"`
}

// Outputs are the files of open batch jobs, by Run.Name, as far as they were seen.
type Outputs map[string]slurm.OutputFiles

func (r RecorderState) bare() RecorderState { r.Runs = r.Runs.Bare(); return r }

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

// maxGPUs is more GPUs and MIG instances than a node has: 16 GPUs with 7 instances.
const maxGPUs = 128

// ErrEpoch means that the epoch of a record is not fully known, so that it would hold for no sample.
var ErrEpoch = errors.New("the driver's epoch is unknown")

// PerGPU is a file with an entry for each GPU, which holds only for the epoch that it names.
type PerGPU[T any] struct {
	file File[gpuEntries[T]]
	key  func(T) (gpu.ID, gpu.Epoch)
}

type gpuEntries[T any] struct {
	Version int `json:"version"`
	Entries []T `json:"cards"` // the newest last; beyond the limit the oldest are dropped
}

func perGPU[T any](name string, most int, key func(T) (gpu.ID, gpu.Epoch)) PerGPU[T] {
	wrong := func(c gpuEntries[T]) string { return otherVersion(c.Version) }
	return PerGPU[T]{File[gpuEntries[T]]{name: name, most: most, wrong: wrong}, key}
}

var (
	// Baselines are the memory in use on each GPU without any job: 0.3 KiB a GPU, and 0.1 KiB for each service on it.
	Baselines = perGPU("baseline.json", 256<<10, func(b record.Baseline) (gpu.ID, gpu.Epoch) { return b.GPU, b.Epoch })
	// Probes are each GPU's last test (see judge.SinceTest): 2 KiB a GPU if its texts are as long as they may be.
	Probes = perGPU("probes.json", 512<<10, func(r record.TestRecord) (gpu.ID, gpu.Epoch) {
		return r.Probe.Device, r.Epoch
	})
)

// Load returns every entry by its GPU. An unusable file is a Damage, set aside; then nothing is known.
func (p PerGPU[T]) Load(s *Store) (map[gpu.ID]T, error) {
	content, err := p.file.Load(s)
	known := map[gpu.ID]T{}
	for _, c := range content.Entries {
		id, _ := p.key(c)
		known[id] = c
	}
	return known, err
}

// Put replaces the entries of these GPUs and removes those of other epochs; ErrEpoch unless they share a known epoch.
func (p PerGPU[T]) Put(s *Store, entries ...T) error {
	if len(entries) == 0 {
		return nil
	}
	_, epoch := p.key(entries[0])
	var ids []gpu.ID
	for _, e := range entries {
		id, in := p.key(e)
		if !in.Same(epoch) || id == "" {
			return fmt.Errorf("put %q into %s: %w", id, p.file.name, ErrEpoch)
		}
		ids = append(ids, id)
	}
	stale := func(id gpu.ID, in gpu.Epoch) bool { return !in.Same(epoch) || slices.Contains(ids, id) }
	return p.replace(s, entries, stale)
}

// Drop removes the entries of these GPUs. A GPU without one is no error.
func (p PerGPU[T]) Drop(s *Store, ids ...gpu.ID) error {
	return p.replace(s, nil, func(id gpu.ID, _ gpu.Epoch) bool { return slices.Contains(ids, id) })
}

func (p PerGPU[T]) replace(s *Store, entries []T, void func(gpu.ID, gpu.Epoch) bool) error {
	return p.file.Update(s, func(c *gpuEntries[T]) error {
		all := append(slices.DeleteFunc(c.Entries, func(e T) bool { return void(p.key(e)) }), entries...)
		*c = gpuEntries[T]{fileVersion, all[max(0, len(all)-maxGPUs):]}
		return nil
	})
}
