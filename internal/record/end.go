package record

import (
	"cmp"
	"slices"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/gpu"
)

// End is the start or an end of a run: what its prolog or epilog saw and concluded.
type End struct {
	At    time.Duration `json:"at_ns"`             // CLOCK_BOOTTIME
	Began time.Duration `json:"began_ns,omitzero"` // when the hook began; 0 in records of earlier versions
	Wall  time.Time     `json:"wall"`              // for display
	// Epoch is the driver's epoch as this end found it, if that is not the run's.
	Epoch     gpu.Epoch        `json:"epoch,omitzero"`
	Snapshot  gpu.Snapshot     `json:"snapshot"`
	Curves    map[gpu.ID]Curve `json:"curves,omitempty"`
	Processes []Process        `json:"processes,omitempty"`
	Scan      *Scan            `json:"scan,omitempty"`
	Health    []gpu.Health     `json:"health,omitempty"`
	// Kernel is only the mark at a start; at an end it is what the kernel log has had since that mark.
	Kernel       *gpu.KernelLog `json:"kernel,omitempty"`
	Probes       []gpu.Probe    `json:"probes,omitempty"`
	Messages     []Message      `json:"messages,omitempty"` // the user's claim
	Outputs      []Output       `json:"outputs,omitempty"`  // searched for Messages; Message.File is the index
	Recording    *Recording     `json:"recording,omitempty"`
	Diagnosis    *Diagnosis     `json:"diagnosis,omitempty"`
	Findings     []Finding      `json:"findings,omitempty"`
	Report       string         `json:"report,omitempty"`        // as the user gets it
	SharedMemory *SharedMark    `json:"shared_memory,omitempty"` // at a start
	// Unseen is why the run is over although no epilog came: nothing was sampled or judged.
	Unseen string `json:"unseen,omitempty"`
	// Presumed is set with Unseen if that follows from how Slurm allocates GPUs, and is not proven.
	Presumed bool    `json:"presumed,omitempty"`
	Verdict  Verdict `json:"verdict"`
	// SlurmConf is the SLURM_CONF of a hook that asked for a drain: a health check gets none, but needs the controller.
	SlurmConf string `json:"slurm_conf,omitempty"`
	// Rest counts, by list, the entries that were left out to keep the record small; nil if it is complete.
	Rest map[string]int `json:"rest,omitempty"`
}

// Probe returns the test allocation on a GPU, false if none is on record.
func (e End) Probe(id gpu.ID) (gpu.Probe, bool) {
	i := slices.IndexFunc(e.Probes, func(p gpu.Probe) bool { return p.Device == id })
	if i < 0 {
		return gpu.Probe{}, false
	}
	return e.Probes[i], true
}

// Over returns when the job was over, on CLOCK_BOOTTIME: its epilog then spends seconds watching what the job left.
func (e End) Over() time.Duration { return cmp.Or(e.Began, e.At) }

func (e End) Clock(boot time.Duration) time.Time { return e.Wall.Add(boot - e.At) }

// Leftovers returns the findings of an end that may still be on a GPU at a later one. Memory without a process has no
// owner if not all were kept that had the driver open: the attribution depends on each of them.
func (e End) Leftovers() (left []Finding) {
	for _, f := range e.Findings {
		if f.Code == catalog.Residue && e.Rest["candidates"]+e.Rest[Everything] > 0 {
			f.Owner = nil
		}
		if !f.OnlyRecorded() {
			left = append(left, f)
		}
	}
	return left
}

// SharedMark is what the record of a job's start keeps of its user's shared memory.
type SharedMark struct {
	Wall     time.Time    `json:"wall,omitzero"`
	Device   uint64       `json:"device"`          // of the directory: inode numbers mean nothing on another
	Files    []uint64     `json:"files,omitempty"` // inode numbers, sorted
	Segments []uint64     `json:"segments,omitempty"`
	Login    bool         `json:"login,omitempty"`   // the user was logged in, or had lingering services
	Unknown  string       `json:"unknown,omitempty"` // why something may be missing, empty if it is complete
	Others   []SharedMark `json:"others,omitempty"`  // of message queues and huge pages
}
