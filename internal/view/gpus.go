package view

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/gpu"
	"bookend/internal/record"
)

// Readings is what the documents about the node's GPUs as they are now are made from.
type Readings struct {
	Now       gpu.Snapshot // without readings if the driver did not answer
	Who       map[int]record.Process
	At        func(time.Duration) time.Time // converts time since boot to wall time
	Runs      []record.Run
	Epoch     gpu.Epoch                  // the current one
	Baselines map[gpu.ID]record.Baseline // those that are valid now
	Limits    record.Limits
}

// GPU is the identity of a GPU.
type GPU struct {
	Index *int `json:"index"` // Slurm's index; null if no record has it
	gpu.Device
}

// GPUStatus is the current state of one GPU.
type GPUStatus struct {
	GPU
	State       string      `json:"state"` // as the text shows it; in capitals if an admin is needed
	Memory      gpu.Memory  `json:"memory"`
	Unexplained gpu.Figure  `json:"unexplained"` // memory used beyond the listed processes and the GPU's baseline
	Processes   []Process   `json:"processes"`
	Unlisted    string      `json:"processes_unknown,omitempty"` // why the process list is missing or incomplete
	Jobs        []string    `json:"jobs"`                        // jobs that have it now
	Last        *LastSample `json:"last"`                        // null if no record of a hook has it
}

// Process is a process that the driver lists on a GPU, or that holds or may hold its memory.
type Process struct {
	PID       int            `json:"pid"`
	Gone      bool           `json:"gone,omitempty"`   // it is dead, though the driver lists it
	Reused    bool           `json:"reused,omitempty"` // another process has its PID by now
	Why       string         `json:"why,omitempty"`    // why the rest is unknown
	UID       uint32         `json:"uid"`
	User      string         `json:"user,omitempty"` // if a record has it
	Name      string         `json:"name,omitempty"`
	State     string         `json:"state,omitempty"` // as in /proc: R, S, D, T
	BeganAt   time.Time      `json:"began_at,omitzero"`
	Job       string         `json:"job,omitempty"` // in whose cgroup it is
	JobEnded  time.Time      `json:"job_ended_at,omitzero"`
	EnvJob    uint32         `json:"env_job,omitempty"` // SLURM_JOB_ID in its environment: a hint
	Service   string         `json:"service,omitempty"` // the system's unit in which it is
	Container string         `json:"container,omitempty"`
	Memory    gpu.Figure     `json:"memory"`
	Classes   []record.Class `json:"classes,omitempty"`
	Owner     *record.Owner  `json:"owner,omitempty"` // of a candidate; a holder's owner is that of its finding
	Open      []string       `json:"open,omitempty"`  // device nodes that it has open, if that was read
}

func newProcess(p record.Process, memory gpu.Figure, clock func(time.Duration) time.Time) Process {
	out := Process{PID: p.PID, Gone: p.Gone, Reused: p.Reused, Why: p.Why, UID: p.UID, Name: p.Name, State: p.State,
		Job: p.Cgroup.Name(), EnvJob: uint32(p.EnvJobID), Service: p.Service, Container: p.Container, Memory: memory}
	if p.Start > 0 {
		out.BeganAt = clock(p.Start)
	}
	return out
}

// LastSample is what the latest start or end of a job with this GPU found.
type LastSample struct {
	Job   string         `json:"job"`
	At    time.Time      `json:"at"`
	Codes []catalog.Code `json:"codes"` // empty if nothing was found that was not there before
	dirty bool           // its job got the GPU with memory in use, and there is still some
}

// NewGPUs returns each GPU that the driver reports now, sorted by Slurm's index, then by bus ID.
func NewGPUs(in Readings) []GPUStatus {
	in.Runs = record.Newest(in.Runs)
	gpus := each(in.Now.Readings, in.status)
	slices.SortStableFunc(gpus, func(a, b GPUStatus) int {
		return cmp.Or(cmp.Compare(a.order(), b.order()), cmp.Compare(a.BusID, b.BusID))
	})
	return gpus
}

func (c GPU) order() int { return *cmp.Or(c.Index, new(math.MaxInt)) }

func (in Readings) status(r gpu.Reading) GPUStatus {
	rest := record.Unexplained(r, in.Limits, in.Baselines[r.Device.ID])
	g := GPUStatus{GPU: GPU{in.index(r.Device.ID), r.Device}, Memory: r.Memory,
		Unexplained: gpu.Figure{Bytes: rest.Bytes, Unknown: cmp.Or(r.ProcessesUnknown, rest.Unknown)},
		Processes:   each(r.Processes, in.process), Unlisted: r.ProcessesUnknown, Jobs: in.jobs(r.Device),
		Last: in.lastSample(r.Device.ID)}
	g.State = g.state()
	return g
}

// process returns a process that the driver lists on a GPU, with what /proc and the newest records contain about it.
func (in Readings) process(listed gpu.Process) Process {
	facts, known := in.Who[listed.PID]
	facts.PID = listed.PID
	if !known {
		facts.Why = "not read"
	}
	p := newProcess(facts, listed.Memory, in.At)
	named := func(r record.Run) bool { return r.Job.UID == p.UID && r.Job.User != "" }
	if i := slices.IndexFunc(in.Runs, named); i >= 0 && p.read() {
		p.User = in.Runs[i].Job.User
	} else if p.read() && p.UID == 0 {
		p.User = "root"
	}
	owns := func(r record.Run) bool { return r.Owns(facts.Cgroup) }
	if i := slices.IndexFunc(in.Runs, owns); i >= 0 && in.Runs[i].Epilog() != nil {
		p.JobEnded = in.Runs[i].Epilog().Wall
	}
	return p
}

func (p Process) read() bool { return !p.Gone && p.Why == "" }

func (in Readings) jobs(d gpu.Device) []string {
	jobs := []string{}
	has := func(a record.Assigned) bool { return a.Device.ID == d.ID || a.Device.Parent == d.ID && d.ID != "" }
	for _, r := range in.Runs {
		if r.Running(in.Runs) && !r.Epoch.OtherBoot(in.Epoch) && slices.ContainsFunc(r.Devices, has) {
			jobs = append(jobs, r.JobName())
		}
	}
	slices.Sort(jobs)
	return slices.Compact(jobs)
}

// lastSample returns the newest recorded sample that a hook took of a GPU. Its findings are those that policy does not
// hide; if the GPU was not clean, all of them.
func (in Readings) lastSample(id gpu.ID) *LastSample {
	var newest *LastSample
	var last time.Time
	boots := record.BootsOf(in.Runs)
	for _, r := range in.Runs {
		for _, e := range r.AllEnds() {
			reading, read := e.Snapshot.Reading(id)
			if at := boots.Time(r, *e); read && (newest == nil || at.After(last)) {
				dirty := r.Start != nil && slices.Contains(codesOn(id, *r.Start), catalog.Dirty) &&
					reading.Memory.Used.Bytes >= record.WorthTelling
				newest, last = &LastSample{r.JobName(), e.Wall, codesOn(id, *e), dirty}, at
			}
		}
	}
	return newest
}

func codesOn(id gpu.ID, e record.End) []catalog.Code {
	codes := []catalog.Code{}
	for i, f := range e.Findings {
		if f.GPU == id && (e.Verdict.Tells(i) || e.Curves[id].State != record.Clean) {
			codes = append(codes, f.Code)
		}
	}
	slices.Sort(codes)
	return slices.Compact(codes)
}

func (in Readings) index(id gpu.ID) *int {
	for _, r := range in.Runs {
		for _, a := range r.Devices {
			if a.Device.ID == id && id != "" {
				return &a.Index
			}
		}
	}
	return nil
}

// number returns Slurm's index of a GPU. If no record has it, it is N of nvidiaN in parentheses.
func (c GPU) number() string {
	switch {
	case c.Index != nil:
		return fmt.Sprint(*c.Index)
	case c.Minor != nil:
		return fmt.Sprintf("(%d)", *c.Minor)
	}
	return "?"
}

// identity returns the names of a GPU other than its number.
func (c GPU) identity() string {
	return strings.Join(given(string(c.ID), c.Name, c.Node()), "  ")
}

func (c GPUStatus) row(now time.Time) string {
	processes := some(c.Processes, 8, "and %d more: bookend snapshot",
		func(p Process) string { return p.short(now, len(c.Processes) > 1) })
	state, used := c.state(), "unknown: "+c.Memory.Used.Unknown
	if state == stateUnexplained {
		state += " " + figure(c.Unexplained)
	}
	if m := c.Memory; m.Used.Known() && m.Total.Known() {
		used = fmt.Sprintf("%.1f/%.1f GiB", float64(m.Used.Bytes)/(1<<30), float64(m.Total.Bytes)/(1<<30))
	} else if m.Used.Known() {
		used = figure(m.Used)
	}
	return row(c.number(), used, state, cmp.Or(strings.Join(c.Jobs, ","), "-"),
		cmp.Or(strings.Join(processes, "\n"+row("", "", "", "", "")), "-"))
}

// The states of a GPU. Those in capitals need an admin's attention.
const (
	stateUnknown     = "unknown"
	stateInUse       = "in use"
	stateFree        = "free"
	stateLeftover    = "LEFTOVER"    // a process of a job that has ended, or memory that its end found is still in use
	stateUnexplained = "UNEXPLAINED" // memory that no listed process accounts for
	stateStray       = "STRAY"       // a process of no job that has this GPU, of no service and not of root
)

func (c GPUStatus) problem() bool {
	return slices.Contains([]string{stateLeftover, stateUnexplained, stateStray}, c.state())
}

func (c GPUStatus) state() string {
	left := func(p Process) bool { return !p.JobEnded.IsZero() || p.Gone && len(c.Jobs) == 0 }
	stray := func(p Process) bool { return p.Job != "" || p.Service == "" && p.read() && p.UID != 0 }
	stay := func(c catalog.Code) bool { return c.Traits().Memory.Stays() }
	stays := c.Last != nil && (c.Last.dirty || slices.ContainsFunc(c.Last.Codes, stay))
	strays := len(c.Jobs) == 0 && slices.ContainsFunc(c.Processes, stray)
	unexplained := c.Unexplained.Known() && c.Unexplained.Bytes >= record.WorthTelling
	switch {
	case !c.Memory.Used.Known():
		return stateUnknown
	case slices.ContainsFunc(c.Processes, left), (unexplained || strays) && stays:
		return stateLeftover
	case unexplained:
		return stateUnexplained
	case strays:
		return stateStray
	case len(c.Jobs)+len(c.Processes) > 0:
		return stateInUse
	}
	return stateFree
}

// short formats a process for a table, with its memory if several share the GPU.
func (p Process) short(now time.Time, several bool) string {
	text, user, ended, memory := fmt.Sprint(p.PID)+after(" ", p.Name), "", "", ""
	if p.Gone {
		text = fmt.Sprintf("%d gone", p.PID)
	}
	if p.read() {
		user = owner(p.User, p.UID)
	}
	if !p.JobEnded.IsZero() {
		ended = "ended " + day(p.JobEnded, now)
	}
	if p.Memory.Known() && several {
		memory = figure(p.Memory)
	}
	facts := given(user, after("job ", p.Job), p.Service, after("container ", p.Container), ended, memory)
	if len(facts) == 0 {
		return text
	}
	return text + " (" + strings.Join(facts, ", ") + ")"
}

// Snapshot is printed by "bookend snapshot": the driver's current answer.
type Snapshot struct {
	Head
	At      time.Time   `json:"at,omitzero"`
	Release string      `json:"driver_release"` // empty if the driver did not report it
	GPUs    []GPUStatus `json:"gpus"`
	Faults  []gpu.Fault `json:"faults"`
	Problem string      `json:"problem"` // why the answer is incomplete; empty if it is complete
}

// NewSnapshot returns the document for one sample.
func NewSnapshot(in Readings, problem string) Snapshot {
	d := Snapshot{Head: head("snapshot"), Release: in.Now.Driver.Version, GPUs: []GPUStatus{},
		Faults: append([]gpu.Fault{}, in.Now.Faults...), Problem: problem}
	if in.Now.At > 0 {
		d.At, d.GPUs = in.At(in.Now.At), NewGPUs(in)
	}
	return d
}

func (s Snapshot) Text(w io.Writer) {
	for _, c := range s.GPUs {
		m, reserve := c.Memory, amount(c.Memory.Reserved) // neither used nor free: the driver reserves it on every GPU
		if reserve != "" {
			reserve = fmt.Sprintf(" (%s reserved by the driver itself)", reserve)
		}
		fmt.Fprintf(w, "%s %s  %s  %s used, %s free of %s%s\n", c.BusID, cmp.Or(c.Node(), "(minor unknown)"), c.ID,
			figure(m.Used), figure(m.Free), figure(m.Total), reserve)
		if c.Unlisted != "" {
			fmt.Fprintf(w, "  processes unknown: %s\n", c.Unlisted)
		}
		for _, p := range c.Processes {
			text := processText(p)
			if p.Job != "" {
				text += fmt.Sprintf(", job %s by its cgroup", p.Job)
			} else if p.EnvJob != 0 {
				text += fmt.Sprintf(", job %d by its environment (a hint)", p.EnvJob)
			}
			fmt.Fprintf(w, "  %s  %s\n", figure(p.Memory), text)
		}
	}
	for _, f := range s.Faults {
		fmt.Fprintf(w, "%s%s %s: %s\n", f.Device, f.BusID, f.Code, f.Detail)
	}
}
