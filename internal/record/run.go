// Package record holds all that is written down of jobs: what their ends saw, found and concluded.
package record

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"bookend/internal/gpu"
	"bookend/internal/slurm"
)

// Run is one run of a job on this node: what its prolog and epilog saw.
type Run struct {
	Version int        `json:"version"`
	Key     string     `json:"key"` // Key distinguishes this run from others of the job id; see NewKey
	Job     slurm.Job  `json:"job"`
	Display Display    `json:"display,omitzero"`
	Epoch   gpu.Epoch  `json:"epoch"`
	Devices []Assigned `json:"devices,omitempty"`
	// Numbering is where Devices came from; empty in records of earlier versions, which counted GPUs.
	Numbering Origin `json:"numbering,omitzero"`
	Start     *End   `json:"start,omitempty"` // nil: no prolog, or a lost record
	Ends      []End  `json:"ends,omitempty"`  // one for each epilog; none while the run is open
	Archived  bool   `json:"archived,omitempty"`
}

// Damaged is a record that could not be used and was set aside: its job may still run, on any GPU.
type Damaged struct {
	File  string // its present name
	Job   slurm.JobID
	Clear []gpu.ID // on which a health check has since seen neither memory nor a process
}

// Display is what only the job's task hook can provide, for display: the user's claim.
type Display struct {
	Array slurm.ArrayTask `json:"array,omitzero"`
	HetID slurm.JobID     `json:"het_id,omitempty"`
}

// SameAs reports whether two records are of one run. A run that is not on record yet has no key.
func (r Run) SameAs(self Run) bool {
	return self.Key != "" && r.Key == self.Key && r.Job.ID == self.Job.ID
}

// Given reports whether a run was given a GPU, or may have been.
func (r Run) Given(id gpu.ID) bool {
	return r.Unplaced() || slices.Contains(r.Numbering.Perhaps, id) || r.Had(id)
}

// Unplaced reports whether it is not known which GPUs the run was given: it may have any.
func (r Run) Unplaced() bool {
	unnamed := func(d Assigned) bool { return d.Device.ID == "" }
	return len(r.Devices) < max(1, len(r.Job.GPUIndexes)) || slices.ContainsFunc(r.Devices, unnamed)
}

// SameRun reports whether two hooks' jobs of one id are surely the same run, or surely another; neither if they lack
// the data. Both hooks of a run have the same start time: Slurm sets it again when nodes have powered up, but before it
// starts a prolog (job_config_fini of slurmctld, 23.02 to 26.05).
func SameRun(a, b slurm.Job) (sure, other bool) {
	switch {
	case a.SLUID != "" && b.SLUID != "":
		sure = a.SLUID == b.SLUID
	case !a.Start.IsZero() && !b.Start.IsZero():
		sure = a.Start.Unix() == b.Start.Unix()
	default:
		return false, false
	}
	return sure, !sure
}

// Sure reports whether a record is of this very run, by its SLUID or start time, and not only of its job id.
func (r Run) Sure(job slurm.Job) bool {
	sure, _ := SameRun(r.Job, job)
	return sure && r.Job.ID == job.ID
}

// Match picks, among the records of one job id, the run that an epilog is for: by SLUID, else by start time, if both
// have it; else the newest, the only one that can be running. A record of another user is another job's. It is zero if
// there is none: no prolog ran, or its record was lost.
func Match(runs []Run, job slurm.Job) Run {
	var best *Run
	for _, r := range runs {
		sure, other := SameRun(r.Job, job)
		if r.Job.ID != job.ID || r.Job.UID != job.UID || other {
			continue
		}
		// Prefer a sure match, then the run that began later: an older open one only lacks its epilog.
		if best == nil || sure && !best.Sure(job) || sure == best.Sure(job) && r.BeganAfter(*best) {
			best = &r
		}
	}
	return *cmp.Or(best, &Run{})
}

// Mistakable reports whether an epilog may be for another run of the job id than r: Slurm does not tell them apart
// (slurm.TellsStart), and a run closed less than within before now may get a second epilog.
func (r Run) Mistakable(runs []Run, job slurm.Job, now, within time.Duration) bool {
	if r.Closed() || r.Sure(job) {
		return false
	}
	return slices.ContainsFunc(runs, func(o Run) bool {
		if o.Job.ID != job.ID || o.Job.UID != job.UID || !o.Closed() || o.Key == r.Key || o.Epoch.Boot != r.Epoch.Boot {
			return false
		}
		ended := o.Ends[len(o.Ends)-1].At
		return ended <= now && now-ended < within
	})
}

// NewKey returns a run's key: its SLUID (slurm.TellsRun), start time (slurm.TellsStart), or when it was first seen.
func (r Run) NewKey() string {
	if r.Job.SLUID != "" {
		return string(r.Job.SLUID)
	}
	if !r.Job.Start.IsZero() {
		return "t" + strconv.FormatInt(max(0, r.Job.Start.Unix()), 10)
	}
	return "w" + strconv.FormatInt(max(0, r.First().Wall.UnixNano()), 10)
}

// MayHold reports whether the job may have a GPU.
func (d Damaged) MayHold(id gpu.ID) bool { return !slices.Contains(d.Clear, id) }

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
		if (o.Job.ID == r.Job.ID || o.Epoch.OtherBoot(r.Epoch)) && o.BeganAfter(r) && (by == nil || by.BeganAfter(o)) {
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

func (r Run) EpochOf(e End) gpu.Epoch { return e.Epoch.Or(r.Epoch) }

// First returns the earliest end on record, zero if there is none.
func (r Run) First() End { return *append(r.AllEnds(), &End{})[0] }

// Last returns the newest end on record, zero if there is none.
func (r Run) Last() End {
	all := append([]*End{{}}, r.AllEnds()...)
	return *all[len(all)-1]
}

// StillThere returns the bytes that were in use at the start and still are, if the end's verdict names no finding.
func (r Run) StillThere(e End) (bytes uint64) {
	if r.Start == nil || e.Verdict.Code != "" || e.Unseen != "" {
		return 0
	}
	for _, d := range r.Devices {
		was, _ := r.Start.Snapshot.Reading(d.Device.ID)
		now, _ := e.Snapshot.Reading(d.Device.ID)
		dirty := r.Start.Curves[d.Device.ID].State.Dirty()
		if dirty && was.Memory.Used.Known() && now.Memory.Used.Known() {
			bytes += min(was.Memory.Used.Bytes, now.Memory.Used.Bytes)
		}
	}
	if bytes < WorthTelling {
		return 0
	}
	return bytes
}

// AllEnds returns the ends on record, the start first.
func (r Run) AllEnds() []*End {
	var all []*End
	if r.Start != nil {
		all = append(all, r.Start)
	}
	for i := range r.Ends {
		all = append(all, &r.Ends[i])
	}
	return all
}

// BeganAfter reports whether r began after o. Across boots only wall times can be compared.
func (r Run) BeganAfter(o Run) bool {
	if r.Epoch.OtherBoot(o.Epoch) {
		return r.First().Wall.After(o.First().Wall)
	}
	return r.First().At > o.First().At
}

// ValidKey reports whether a text is the key of a run, and may be part of a path.
func ValidKey(s string) bool {
	if slurm.ValidSLUID(s) {
		return true
	}
	if len(s) < 2 || len(s) > 20 || s[0] != 't' && s[0] != 'w' {
		return false
	}
	return strings.Trim(s[1:], "0123456789") == ""
}

// Assigned is a device of the job. If the driver had not cached its id, Device.ID is empty and Device.BusID names it. A
// MIG instance has no bus id, which would name the whole GPU; its Parent may be unknown before the first reading.
type Assigned struct {
	Index  int // Slurm's index of the device; -1 if it is not certain
	Device gpu.Device
}

// Source is where the meaning of a job's GPU numbers came from.
type Source string

// The sources, most trusted first. Ambiguous means that there is none.
const (
	ByUUID    Source = "uuid"    // Slurm itself named the devices
	ByMap     Source = "gpu_map" // the admin's nvidia.gpu_map
	BySlurmd  Source = "slurmd"  // slurmd -G
	Ambiguous Source = "ambiguous"
)

// Origin records where the meaning of a job's GPU numbers came from; Why is the reason if it is ambiguous.
type Origin struct {
	Source Source `json:"source"`
	Why    string `json:"why,omitempty"`
	// Perhaps are GPUs that the job may have too: Slurm tells a hook those of one type alone, if a job has several.
	Perhaps []gpu.ID `json:"perhaps,omitempty"`
}

// Settled reports whether the source leaves no doubt about what the numbers mean.
func (s Source) Settled() bool { return s != "" && s != Ambiguous }

// Boots are the times of a node's boots, by boot id, by the wall clock at each one's newest record, as it may have been
// set before. They convert times since boot to wall times that keep the order of CLOCK_BOOTTIME within each boot.
type Boots map[string]time.Time

// BootsOf returns the boots that records name.
func BootsOf(runs []Run) Boots {
	boots, newest := Boots{}, map[string]time.Duration{}
	for _, r := range runs {
		for _, e := range r.AllEnds() {
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
	last := func(a, b Run) int { return boots.Time(b, b.Last()).Compare(boots.Time(a, a.Last())) }
	return slices.SortedStableFunc(slices.Values(runs), last)
}

func IDs(cards []Assigned) (list []gpu.ID) {
	for _, c := range cards {
		list = append(list, c.Device.ID)
	}
	return list
}
