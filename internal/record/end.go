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
	At time.Duration `json:"at_ns"` // CLOCK_BOOTTIME
	// Began is when the hook began; 0 in records of earlier versions.
	Began time.Duration `json:"began_ns,omitzero"`
	Wall  time.Time     `json:"wall"` // for display
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

// Clock converts a time since this end's boot to wall time.
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
	Wall     time.Time `json:"wall,omitzero"`
	Device   uint64    `json:"device"`          // of the directory: inode numbers mean nothing on another
	Files    []uint64  `json:"files,omitempty"` // inode numbers, sorted
	Segments []uint64  `json:"segments,omitempty"`
	Login    bool      `json:"login,omitempty"` // the user was logged in, or had lingering services
	// Unknown is why something may be missing, empty if it is complete.
	Unknown string       `json:"unknown,omitempty"`
	Others  []SharedMark `json:"others,omitempty"` // of message queues and huge pages
}

// Judged is what policy decided about one finding.
type Judged struct {
	Action catalog.Action `json:"action"`
	Why    string         `json:"why,omitempty"` // why the action is weaker than configured
}

// Verdict is a hook's outcome.
type Verdict struct {
	Action catalog.Action `json:"action"`
	// Exit is the exit code of the drain, 0 for none. With ByScontrol the hook itself exits 0.
	Exit       int  `json:"exit"`
	ByScontrol bool `json:"by_scontrol,omitempty"`
	// Code is the finding that decided, empty if none did.
	Code catalog.Code `json:"code,omitempty"`
	// Held is why a drain was not carried out: observe mode, or a guard.
	Held   string   `json:"held,omitempty"`
	Judged []Judged `json:"judged,omitempty"` // one for each finding, in order
}

// Status returns what the hook exits with.
func (v Verdict) Status() int {
	if v.ByScontrol {
		return 0
	}
	return v.Exit
}

// Of returns the decision about a finding by its index. A finding made after the verdict is reported (Warn).
func (v Verdict) Of(i int) Judged {
	if i < len(v.Judged) {
		return v.Judged[i]
	}
	return Judged{Action: catalog.ToWarn}
}

// Drains reports whether the finding with this index was judged to drain.
func (v Verdict) Drains(i int) bool { return v.Of(i).Action == catalog.ToDrain }

// Decisive returns the index of the finding that decided, -1 if none did: one that drains, with the most memory.
func (v Verdict) Decisive(found []Finding) int {
	best := -1
	for i, f := range found {
		switch {
		case f.Code != v.Code:
		case best < 0, v.Drains(i) && !v.Drains(best),
			v.Drains(i) == v.Drains(best) && f.Bytes.Bytes > found[best].Bytes.Bytes:
			best = i
		}
	}
	return best
}

// Tells reports whether policy reports the finding with this index: it neither ignores nor only notes it.
func (v Verdict) Tells(i int) bool {
	a := v.Of(i).Action
	return a != catalog.ToIgnore && a != catalog.ToNote
}
