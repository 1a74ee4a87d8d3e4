// Package ledger reads from a node's records of jobs' ends whose what is. Package state keeps them.
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
	// Key tells this run from others of the job id; package state makes it.
	Key     string     `json:"key"`
	Job     slurm.Job  `json:"job"`
	Display Display    `json:"display,omitzero"`
	Epoch   gpu.Epoch  `json:"epoch"`
	Devices []Assigned `json:"devices,omitempty"`
	// Numbering is where Devices came from; empty in records of earlier versions, which counted.
	Numbering slurmconf.Origin `json:"numbering,omitzero"`
	Start     *End             `json:"start,omitempty"` // nil: no prolog, or a lost record
	Ends      []End            `json:"ends,omitempty"`  // one for each epilog; none while the run is open
	Archived  bool             `json:"archived,omitempty"`
}

// Damaged is a record that could not be used and was set aside: its job may still run, on any GPU.
type Damaged struct {
	File  string // its name now
	Job   slurm.JobID
	Clear []gpu.ID // on which a health check saw neither memory nor a process since
}

// MayHold reports whether the job may have a GPU.
func (d Damaged) MayHold(id gpu.ID) bool { return !slices.Contains(d.Clear, id) }

// Display is what only the job's task hook knows, for display: the user's claim.
type Display struct {
	Array slurm.ArrayTask `json:"array,omitzero"`
	HetID slurm.JobID     `json:"het_id,omitempty"`
}

// End is one of a run's two ends: its prolog's or epilog's look, and what was made of it.
type End struct {
	At time.Duration `json:"at_ns"` // CLOCK_BOOTTIME
	// when the hook began; 0 in records of earlier versions
	Began time.Duration `json:"began_ns,omitzero"`
	Wall  time.Time     `json:"wall"` // for display
	// what this end knew of the driver's epoch, if that is not the run's
	Epoch     gpu.Epoch               `json:"epoch,omitzero"`
	Snapshot  gpu.Snapshot            `json:"snapshot"`
	Curves    map[gpu.ID]settle.Curve `json:"curves,omitempty"`
	Processes []finding.Process       `json:"processes,omitempty"`
	Scan      *finding.Scan           `json:"scan,omitempty"`
	Health    []gpu.Health            `json:"health,omitempty"`
	// Kernel is at a start the mark alone, at an end what the kernel's log had since that mark.
	Kernel    *gpu.KernelLog       `json:"kernel,omitempty"`
	Probes    []gpu.Probe          `json:"probes,omitempty"`
	Messages  []oom.Message        `json:"messages,omitempty"` // the user's claim
	Outputs   []Output             `json:"outputs,omitempty"`  // where they were looked for; Message.File counts these
	Recording *Recording           `json:"recording,omitempty"`
	Diagnosis *diagnosis.Diagnosis `json:"diagnosis,omitempty"`
	Findings  []finding.Finding    `json:"findings,omitempty"`
	Report    string               `json:"report,omitempty"` // as the user gets it
	// Unseen says why the run is over though no epilog came: nothing was looked at or judged.
	Unseen string `json:"unseen,omitempty"`
	// Presumed is set with Unseen where that follows from how Slurm gives cards out, and is not proven.
	Presumed bool            `json:"presumed,omitempty"`
	Verdict  finding.Verdict `json:"verdict"`
	// SlurmConf is the SLURM_CONF of a hook that asked for a drain: a health check gets none, and needs the controller.
	SlurmConf string `json:"slurm_conf,omitempty"`
	// Rest counts, by list, the entries that were left out to keep the record small; nil where it is whole.
	Rest map[string]int `json:"rest,omitempty"`
}

// Probe is the test allocation on a card, false where none is on record.
func (e End) Probe(id gpu.ID) (gpu.Probe, bool) {
	i := slices.IndexFunc(e.Probes, func(p gpu.Probe) bool { return p.Device == id })
	if i < 0 {
		return gpu.Probe{}, false
	}
	return e.Probes[i], true
}

// Over is when the job was over, on CLOCK_BOOTTIME: its epilog watches for seconds what the job left.
func (e End) Over() time.Duration { return cmp.Or(e.Began, e.At) }

// Clock turns time since boot, as this end's, into a wall time.
func (e End) Clock(boot time.Duration) time.Time { return e.Wall.Add(boot - e.At) }

// Closed reports whether the run is over: an epilog has run, or it was settled that none will.
func (r Run) Closed() bool { return len(r.Ends) > 0 }

// Epilog is the first end that an epilog saw, nil where none has run.
func (r Run) Epilog() *End {
	i := slices.IndexFunc(r.Ends, func(e End) bool { return e.Unseen == "" })
	if i < 0 {
		return nil
	}
	return &r.Ends[i]
}

// Running reports that a job has its cards still, as far as runs, the node's records, show.
func (r Run) Running(runs []Run) bool { return !r.Closed() && r.Superseded(runs) == nil }

// Superseded is the first of runs, the node's records, that says that a run without an epilog is over all the same: its
// job id began anew, and Slurm runs one job id once at a time; or one is of a later boot. It is nil for none.
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

// JobName is a run's job as its user names it: "1234_7", "1234+1", or its id.
func (r Run) JobName() string {
	switch {
	case r.Display.Array.Master != 0:
		return fmt.Sprintf("%d_%d", r.Display.Array.Master, r.Display.Array.Task)
	case r.Job.HetJobID != 0 && r.Job.ID >= r.Job.HetJobID:
		return fmt.Sprintf("%d+%d", r.Job.HetJobID, r.Job.ID-r.Job.HetJobID)
	}
	return fmt.Sprint(r.Job.ID)
}

// Name tells a run from all others of its node.
func (r Run) Name() string { return fmt.Sprintf("%d-%s", r.Job.ID, r.Key) }

// EpochOf is the driver's epoch in which one of the run's ends looked.
func (r Run) EpochOf(e End) gpu.Epoch { return e.Epoch.Or(r.Epoch) }

// Owner names the run's job as a cgroup does.
func (r Run) Owner() slurm.Owner { return slurm.Owner{ID: r.Job.ID, SLUID: r.Job.SLUID} }

// First is the earlier end on record, zero where there is none.
func (r Run) First() (e End) {
	switch {
	case r.Start != nil:
		e = *r.Start
	case len(r.Ends) > 0:
		e = r.Ends[0]
	}
	return e
}

// Last is the newest end on record, zero where there is none.
func (r Run) Last() (e End) {
	switch {
	case len(r.Ends) > 0:
		e = r.Ends[len(r.Ends)-1]
	case r.Start != nil:
		e = *r.Start
	}
	return e
}

// Boots are a node's boots, by their id, as the wall clock had them at each one's newest record: it may have been set
// before. They turn times since boot into wall times that are in the order of CLOCK_BOOTTIME within each boot.
type Boots map[string]time.Time

// BootsOf are those that records tell of.
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

// Time is when an end of a run was, by its own wall clock if its boot is unknown.
func (b Boots) Time(r Run, e End) time.Time {
	if booted, known := b[r.EpochOf(e).Boot]; known {
		return booted.Add(e.At)
	}
	return e.Wall
}

// Newest orders runs, the one that was last seen first: within a boot by CLOCK_BOOTTIME.
func Newest(runs []Run) []Run {
	boots := BootsOf(runs)
	runs = slices.Clone(runs)
	slices.SortStableFunc(runs, func(a, b Run) int { return boots.Time(b, b.Last()).Compare(boots.Time(a, a.Last())) })
	return runs
}

// Both are the ends on record, the start first.
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

// after orders runs. Across boots only wall times compare: state that is kept over a boot has both.
func (r Run) after(o Run) bool {
	if r.Epoch.OtherBoot(o.Epoch) {
		return r.First().Wall.After(o.First().Wall)
	}
	return r.First().At > o.First().At
}

// MetLast reports whether the last other job that ended, on a finding's GPU if any, met the same: in the same epoch,
// before this job began: jobs that end side by side meet one hiccup. A second epilog is no later end.
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

// Check is what the node's last health check saw, and what it made of it.
type Check struct {
	At      time.Duration `json:"at_ns"` // CLOCK_BOOTTIME when it began
	Wall    time.Time     `json:"wall"`  // for display
	Took    time.Duration `json:"took_ns,omitempty"`
	Stopped bool          `json:"stopped,omitempty"` // it was ended before it was done: nothing below is of this check
	Epoch   gpu.Epoch     `json:"epoch,omitzero"`
	// Cards are the node's, with Slurm's numbers, -1 if not certain; empty if the driver could not be asked.
	Cards []Assigned `json:"cards,omitempty"`
	// Snapshot is one look at all of them.
	Snapshot gpu.Snapshot `json:"snapshot"`
	// Unexplained is what no listed process accounts for, in bytes, of cards of which that can be told.
	Unexplained map[gpu.ID]uint64 `json:"unexplained,omitempty"`
	// Leaked is what was found on cards that no job has, in bytes; nothing for a card that is clean or a job's.
	Leaked   map[gpu.ID]uint64 `json:"leaked,omitempty"`
	Findings []finding.Finding `json:"findings,omitempty"`
	Verdict  finding.Verdict   `json:"verdict"`
	// Health and Kernel are where the next check goes on from; Boot is the boot of whose log Kernel is.
	Health []gpu.Health    `json:"health,omitempty"`
	Kernel *gpu.KernelMark `json:"kernel,omitempty"`
	Boot   string          `json:"boot,omitempty"`
	// Rest counts, by list, the entries that were left out to keep the record small; nil where it is whole.
	Rest map[string]int `json:"rest,omitempty"`
}

// OutputKind is what of a job goes to an output.
type OutputKind string

const (
	ScriptOutput OutputKind = "output" // of the batch script, or of an interactive shell
	ScriptErrors OutputKind = "errors" // of the batch script, where they are kept apart
	StepOutput   OutputKind = "step"   // of a step, output or errors
)

// Name is what a job's owner calls it.
func (k OutputKind) Name() string {
	switch k {
	case ScriptOutput:
		return "its output"
	case ScriptErrors:
		return "its errors"
	}
	return "a step's output"
}

// Output is one of a job's outputs, and what was looked through of it for messages about memory.
type Output struct {
	Kind OutputKind `json:"kind"`
	// the user's claim; cut at its beginning where it is long; empty where not known
	Path string `json:"path,omitempty"`
	Size int64  `json:"size_bytes"`
	Read int64  `json:"read_bytes"` // so many bytes at its end
	// Why says why nothing of it was looked through, or, where that is no matter of its length, no more.
	Why string `json:"why,omitempty"`
}

// MaxOutputPath is the longest path of an output that is kept, in bytes.
const MaxOutputPath = 200

// NewOutput is an output that nobody has looked at yet.
func NewOutput(kind OutputKind, path string) Output {
	const cut = "..."
	if len(path) > MaxOutputPath {
		path = cut + path[len(path)-MaxOutputPath+len(cut):]
	}
	return Output{Kind: kind, Path: path}
}

// Unread words what was not looked through of a job's outputs. none: of all of them; empty if all was.
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

// unread words what was not looked through of one output, which may be the only one.
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
