// Package ledger infers from recorded runs which job owns a process or leftover memory. Package state keeps them.
package ledger

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"bookend/internal/diagnosis"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/oom"
	"bookend/internal/settle"
	"bookend/internal/slurm"
	"bookend/internal/slurmconf"
)

// Assigned is one device of a job: Slurm's index and the device behind it.
type Assigned = slurmconf.Assigned

// Run is one run of a job on this node: what its prolog and epilog saw.
type Run struct {
	Version int `json:"version"`
	// Key distinguishes this run from others of the job id; see NewKey.
	Key     string     `json:"key"`
	Job     slurm.Job  `json:"job"`
	Display Display    `json:"display,omitzero"`
	Epoch   gpu.Epoch  `json:"epoch"`
	Devices []Assigned `json:"devices,omitempty"`
	// Numbering is where Devices came from; empty in records of earlier versions, which counted GPUs.
	Numbering slurmconf.Origin `json:"numbering,omitzero"`
	Start     *End             `json:"start,omitempty"` // nil: no prolog, or a lost record
	Ends      []End            `json:"ends,omitempty"`  // one for each epilog; none while the run is open
	Archived  bool             `json:"archived,omitempty"`
}

// Bare is End.Bare for a run, for a record that would be too large.
func (r Run) Bare() Run {
	if r.Start != nil {
		start := r.Start.Bare()
		r.Start = &start
	}
	r.Ends = slices.Clone(r.Ends)
	for i, e := range r.Ends {
		r.Ends[i] = e.Bare()
	}
	given := r.Job.GPUIndexes // one index more than known devices shows that some are unknown
	r.Job.Visible, r.Job.GPUIndexes = nil, given[:min(len(given), len(r.Devices)+1)]
	return r
}

// Damaged is a record that could not be used and was set aside: its job may still run, on any GPU.
type Damaged struct {
	File  string // its present name
	Job   slurm.JobID
	Clear []gpu.ID // on which a health check has since seen neither memory nor a process
}

// MayHold reports whether the job may have a GPU.
func (d Damaged) MayHold(id gpu.ID) bool { return !slices.Contains(d.Clear, id) }

// Display is what only the job's task hook can provide, for display: the user's claim.
type Display struct {
	Array slurm.ArrayTask `json:"array,omitzero"`
	HetID slurm.JobID     `json:"het_id,omitempty"`
}

// End is the start or an end of a run: what its prolog or epilog saw and concluded.
type End struct {
	At time.Duration `json:"at_ns"` // CLOCK_BOOTTIME
	// Began is when the hook began; 0 in records of earlier versions.
	Began time.Duration `json:"began_ns,omitzero"`
	Wall  time.Time     `json:"wall"` // for display
	// Epoch is the driver's epoch as this end found it, if that is not the run's.
	Epoch     gpu.Epoch               `json:"epoch,omitzero"`
	Snapshot  gpu.Snapshot            `json:"snapshot"`
	Curves    map[gpu.ID]settle.Curve `json:"curves,omitempty"`
	Processes []finding.Process       `json:"processes,omitempty"`
	Scan      *finding.Scan           `json:"scan,omitempty"`
	Health    []gpu.Health            `json:"health,omitempty"`
	// Kernel is only the mark at a start; at an end it is what the kernel log has had since that mark.
	Kernel    *gpu.KernelLog       `json:"kernel,omitempty"`
	Probes    []gpu.Probe          `json:"probes,omitempty"`
	Messages  []oom.Message        `json:"messages,omitempty"` // the user's claim
	Outputs   []Output             `json:"outputs,omitempty"`  // searched for Messages; Message.File is the index
	Recording *Recording           `json:"recording,omitempty"`
	Diagnosis *diagnosis.Diagnosis `json:"diagnosis,omitempty"`
	Findings  []finding.Finding    `json:"findings,omitempty"`
	Report    string               `json:"report,omitempty"` // as the user gets it
	// Unseen is why the run is over although no epilog came: nothing was sampled or judged.
	Unseen string `json:"unseen,omitempty"`
	// Presumed is set with Unseen if that follows from how Slurm allocates GPUs, and is not proven.
	Presumed bool            `json:"presumed,omitempty"`
	Verdict  finding.Verdict `json:"verdict"`
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

// DevicesWith returns the GPUs of the run after an end that was given these. Those of its start stay: the end may be
// that of a later run of the job id, whose own start is not on record, and then the record is of both.
func (r Run) DevicesWith(end []Assigned) []Assigned {
	all := slices.Clone(end)
	for _, d := range r.Devices {
		same := func(e Assigned) bool { return e.Device.ID == d.Device.ID }
		if d.Device.ID != "" && !slices.ContainsFunc(end, same) {
			all = append(all, d)
		}
	}
	return all
}

// Closed reports whether the run is over: an epilog has run, or it was settled that none will.
func (r Run) Closed() bool { return len(r.Ends) > 0 }

// Epilog returns the first end that an epilog saw, nil if none has run.
func (r Run) Epilog() *End {
	i := slices.IndexFunc(r.Ends, func(e End) bool { return e.Unseen == "" })
	if i < 0 {
		return nil
	}
	return &r.Ends[i]
}

// Running reports whether a job still has its GPUs, as far as runs, the node's records, show.
func (r Run) Running(runs []Run) bool { return !r.Closed() && r.Superseded(runs) == nil }

// Superseded returns the first of runs, the node's records, that shows that a run without an epilog is over: its job id
// began again, and Slurm runs one job id only once at a time; or the node has booted since. It is nil if there is none.
func (r Run) Superseded(runs []Run) (by *Run) {
	if r.Closed() {
		return nil
	}
	for i, o := range runs {
		if (o.Job.ID == r.Job.ID || o.Epoch.OtherBoot(r.Epoch)) && o.after(r) && (by == nil || by.after(o)) {
			by = &runs[i]
		}
	}
	return by
}

// JobName returns a run's job as its user writes it: "1234_7", "1234+1", or its id.
func (r Run) JobName() string {
	switch {
	case r.Display.Array.Master != 0:
		return fmt.Sprintf("%d_%d", r.Display.Array.Master, r.Display.Array.Task)
	case r.Job.HetJobID != 0 && r.Job.ID >= r.Job.HetJobID:
		return fmt.Sprintf("%d+%d", r.Job.HetJobID, r.Job.ID-r.Job.HetJobID)
	}
	return fmt.Sprint(r.Job.ID)
}

// Name distinguishes a run from all others of its node.
func (r Run) Name() string { return fmt.Sprintf("%d-%s", r.Job.ID, r.Key) }

// EpochOf returns the driver's epoch at one of the run's ends.
func (r Run) EpochOf(e End) gpu.Epoch { return e.Epoch.Or(r.Epoch) }

// Owner returns the run's job as a cgroup names it.
func (r Run) Owner() slurm.Owner { return slurm.Owner{ID: r.Job.ID, SLUID: r.Job.SLUID} }

// First returns the earliest end on record, zero if there is none.
func (r Run) First() (e End) {
	switch {
	case r.Start != nil:
		e = *r.Start
	case len(r.Ends) > 0:
		e = r.Ends[0]
	}
	return e
}

// Last returns the newest end on record, zero if there is none.
func (r Run) Last() (e End) {
	switch {
	case len(r.Ends) > 0:
		e = r.Ends[len(r.Ends)-1]
	case r.Start != nil:
		e = *r.Start
	}
	return e
}

// Boots are the times of a node's boots, by boot id, by the wall clock at each one's newest record, as it may have been
// set before. They convert times since boot to wall times that keep the order of CLOCK_BOOTTIME within each boot.
type Boots map[string]time.Time

// BootsOf returns the boots that records name.
func BootsOf(runs []Run) Boots {
	boots, newest := Boots{}, map[string]time.Duration{}
	for _, r := range runs {
		for _, e := range r.Both() {
			if boot := r.EpochOf(*e).Boot; boot != "" && e.At >= newest[boot] {
				boots[boot], newest[boot] = e.Clock(0), e.At
			}
		}
	}
	return boots
}

// Time returns when an end of a run was, by its own wall clock if its boot is unknown.
func (b Boots) Time(r Run, e End) time.Time {
	if booted, known := b[r.EpochOf(e).Boot]; known {
		return booted.Add(e.At)
	}
	return e.Wall
}

// Newest sorts runs, the one that was last seen first: within a boot by CLOCK_BOOTTIME.
func Newest(runs []Run) []Run {
	boots := BootsOf(runs)
	runs = slices.Clone(runs)
	slices.SortStableFunc(runs, func(a, b Run) int { return boots.Time(b, b.Last()).Compare(boots.Time(a, a.Last())) })
	return runs
}

// Both returns the ends on record, the start first.
func (r Run) Both() []*End {
	all := make([]*End, 0, 1+len(r.Ends))
	if r.Start != nil {
		all = append(all, r.Start)
	}
	for i := range r.Ends {
		all = append(all, &r.Ends[i])
	}
	return all
}

// after reports whether r began after o. Across boots only wall times can be compared.
func (r Run) after(o Run) bool {
	if r.Epoch.OtherBoot(o.Epoch) {
		return r.First().Wall.After(o.First().Wall)
	}
	return r.First().At > o.First().At
}

// MetLast reports whether the last other job that ended, on the finding's GPU if it has one, met the same finding, in
// the same epoch and before this job began: jobs that end together meet one hiccup. A second epilog is not a later end.
func MetLast(runs []Run, self Run, f finding.Finding) bool {
	var last Run
	for _, r := range runs {
		end := r.Epilog()
		if end == nil || r.Job.ID == self.Job.ID || r.Epoch.OtherBoot(self.Epoch) || f.GPU != "" && !r.Given(f.GPU) {
			continue
		}
		if last.Ends == nil || end.At > last.Epilog().At {
			last = r
		}
	}
	if last.Ends == nil || self.Start == nil || self.Start.At < last.Epilog().At {
		return false
	}
	epoch := last.EpochOf(*last.Epilog())
	if epoch.Boot == "" || self.Epoch.Boot == "" || epoch.Changed(self.Epoch) {
		return false
	}
	return slices.ContainsFunc(last.Epilog().Findings, func(o finding.Finding) bool {
		return o.Code == f.Code && o.GPU == f.GPU && o.Unknown == "" && len(o.Doubts) == 0
	})
}

// Check is what the node's last health check saw and concluded.
type Check struct {
	At      time.Duration `json:"at_ns"` // CLOCK_BOOTTIME when it began
	Wall    time.Time     `json:"wall"`  // for display
	Took    time.Duration `json:"took_ns,omitempty"`
	Stopped bool          `json:"stopped,omitempty"` // it was stopped early: nothing below is of this check
	Epoch   gpu.Epoch     `json:"epoch,omitzero"`
	// Cards are the node's GPUs with Slurm's numbers, -1 if not certain; empty if the driver could not be queried.
	Cards []Assigned `json:"cards,omitempty"`
	// Snapshot is one sample of all of them.
	Snapshot gpu.Snapshot `json:"snapshot"`
	// Unexplained is the memory that no listed process accounts for, in bytes, for GPUs where it is known.
	Unexplained map[gpu.ID]uint64 `json:"unexplained,omitempty"`
	// Leaked is what was found on GPUs that no job has, in bytes; no entry for a GPU that is clean or a job's.
	Leaked   map[gpu.ID]uint64 `json:"leaked,omitempty"`
	Findings []finding.Finding `json:"findings,omitempty"`
	Verdict  finding.Verdict   `json:"verdict"`
	// Health and Kernel are where the next check continues; Boot is the boot whose log Kernel is from.
	Health []gpu.Health    `json:"health,omitempty"`
	Kernel *gpu.KernelMark `json:"kernel,omitempty"`
	Boot   string          `json:"boot,omitempty"`
	// Rest counts, by list, the entries that were left out to keep the record small; nil if it is complete.
	Rest map[string]int `json:"rest,omitempty"`
}

// Bounded is End.Bounded for a health check.
func (c Check) Bounded() Check { return c.with(End.Bounded) }

// Bare is End.Bare for a health check.
func (c Check) Bare() Check { return c.with(End.Bare) }

func (c Check) with(bound func(End) End) Check {
	e := bound(End{Snapshot: c.Snapshot, Findings: c.Findings, Verdict: c.Verdict, Health: c.Health, Rest: c.Rest})
	c.Snapshot, c.Findings, c.Verdict, c.Health, c.Rest = e.Snapshot, e.Findings, e.Verdict, e.Health, e.Rest
	return c
}

// OutputKind is which part of a job's output a file receives.
type OutputKind string

const (
	ScriptOutput OutputKind = "output" // of the batch script, or of an interactive shell
	ScriptErrors OutputKind = "errors" // of the batch script, if they are kept apart
	StepOutput   OutputKind = "step"   // of a step, output or errors
)

// Name returns how a text calls it to the job's owner.
func (k OutputKind) Name() string {
	switch k {
	case ScriptOutput:
		return "its output"
	case ScriptErrors:
		return "its errors"
	}
	return "a step's output"
}

// Output is one of a job's outputs, and how much of it was searched for messages about memory.
type Output struct {
	Kind OutputKind `json:"kind"`
	// Path is the user's claim; cut at its beginning if it is long; empty if it is not known.
	Path string `json:"path,omitempty"`
	Size int64  `json:"size_bytes"`
	Read int64  `json:"read_bytes"` // bytes searched, at its end
	// Why is why nothing of it was searched or, unless its length is the reason, no more.
	Why string `json:"why,omitempty"`
}

// MaxOutputPath is the longest path of an output that is kept, in bytes.
const MaxOutputPath = 200

// NewOutput returns an output that has not been searched yet.
func NewOutput(kind OutputKind, path string) Output {
	const cut = "..."
	if len(path) > MaxOutputPath {
		path = cut + path[len(path)-MaxOutputPath+len(cut):]
	}
	return Output{Kind: kind, Path: path}
}

// Unread describes what was not searched of a job's outputs, empty if all was. none means that nothing was.
func Unread(outputs []Output) (words string, none bool) {
	none = true
	var reasons []string
	for _, o := range outputs {
		none = none && o.Read == 0 && o.Why != ""
		if why := o.unread(len(outputs) == 1); why != "" && !slices.Contains(reasons, why) {
			reasons = append(reasons, why)
		}
	}
	return strings.Join(reasons, "; "), none
}

// unread describes what was not searched of one output. only is set if it is the job's only one.
func (o Output) unread(only bool) string {
	text := o.Why
	switch {
	case o.Read == o.Size && o.Why == "":
		return ""
	case o.Read > 0:
		text = fmt.Sprintf("only its last %d KiB", (o.Read+1023)>>10)
	}
	if only {
		return text
	}
	return o.Kind.Name() + ": " + text
}
