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

// Judged is what policy decided about one finding.
type Judged struct {
	Action catalog.Action `json:"action"`
	Why    string         `json:"why,omitempty"` // why the action is weaker than configured
}

// Verdict is a hook's outcome.
type Verdict struct {
	Action catalog.Action `json:"action"`
	// Exit is the exit code of the drain, 0 for none. With ByScontrol the hook itself exits 0.
	Exit       int          `json:"exit"`
	ByScontrol bool         `json:"by_scontrol,omitempty"`
	Code       catalog.Code `json:"code,omitempty"`   // the finding that decided, empty if none did
	Held       string       `json:"held,omitempty"`   // why a drain was not carried out: observe mode, or a guard
	Judged     []Judged     `json:"judged,omitempty"` // one for each finding, in order
}

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

// Check is what the node's last health check saw and concluded.
type Check struct {
	At      time.Duration `json:"at_ns"` // CLOCK_BOOTTIME when it began
	Wall    time.Time     `json:"wall"`  // for display
	Took    time.Duration `json:"took_ns,omitempty"`
	Stopped bool          `json:"stopped,omitempty"` // it was stopped early: nothing below is of this check
	Epoch   gpu.Epoch     `json:"epoch,omitzero"`
	// The node's GPUs with Slurm's numbers, -1 if not certain; empty if the driver could not be queried.
	Cards    []Assigned   `json:"cards,omitempty"`
	Snapshot gpu.Snapshot `json:"snapshot"` // one sample of all of them
	// Unexplained is the memory that no listed process accounts for, in bytes, for GPUs where it is known.
	Unexplained map[gpu.ID]uint64 `json:"unexplained,omitempty"`
	// Leaked is what was found on GPUs that no job has, in bytes; no entry for a GPU that is clean or a job's.
	Leaked   map[gpu.ID]uint64 `json:"leaked,omitempty"`
	Findings []Finding         `json:"findings,omitempty"`
	Verdict  Verdict           `json:"verdict"`
	// Health and Kernel are where the next check continues; Boot is the boot whose log Kernel is from.
	Health []gpu.Health    `json:"health,omitempty"`
	Kernel *gpu.KernelMark `json:"kernel,omitempty"`
	Boot   string          `json:"boot,omitempty"`
	// Rest counts, by list, the entries that were left out to keep the record small; nil if it is complete.
	Rest map[string]int `json:"rest,omitempty"`
}

// IDAt returns the GPU that has a number of Slurm's, empty if this check has not seen which. A nil check saw none.
func (c *Check) IDAt(index int) gpu.ID {
	if c != nil {
		for _, card := range c.Cards {
			if card.Index == index && index >= 0 {
				return card.Device.ID
			}
		}
	}
	return ""
}

// Bounded is End.Bounded for a health check.
func (c Check) Bounded() Check { return c.with(End.Bounded) }

// Bare is End.Bare for a health check.
func (c Check) Bare() Check { return c.with(End.Bare) }

func (c Check) with(bound func(End) End) Check {
	c.Wall = c.Wall.UTC().Round(0)
	e := bound(End{Snapshot: c.Snapshot, Findings: c.Findings, Verdict: c.Verdict, Health: c.Health, Rest: c.Rest})
	c.Snapshot, c.Findings, c.Verdict, c.Health, c.Rest = e.Snapshot, e.Findings, e.Verdict, e.Health, e.Rest
	return c
}

// GPUSeen is what one health check saw of a GPU. If it is neither Clean nor Dirty, its state is unknown.
type GPUSeen struct {
	Clean bool   // settled, and nothing on it but what is always there
	Dirty bool   // something is on it, and no job has it
	Why   string // why it is not clean
	Given bool   // Slurm gives it to jobs, or may; other GPUs do not affect when a drain ends
	// ByList says that Clean only means that no process is listed: the GPU's memory cannot be judged.
	ByList bool
}
