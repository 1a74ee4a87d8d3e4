package view

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/ledger"
	"bookend/internal/settle"
)

// Scene is the input for the current state of the node's GPUs.
type Scene struct {
	Now       gpu.Snapshot // without readings if the driver did not answer
	Who       map[int]finding.Process
	At        func(time.Duration) time.Time // converts time since boot to wall time
	Runs      []ledger.Run
	Epoch     gpu.Epoch                   // the current one
	Baselines map[gpu.ID]finding.Baseline // those that are valid now
	Limits    finding.Limits
}

// GPU is the identity of a GPU.
type GPU struct {
	Index *int `json:"index"` // Slurm's index; null if no record has it
	gpu.Device
}

// GPUStatus is the current state of one GPU.
type GPUStatus struct {
	GPU
	Memory      gpu.Memory  `json:"memory"`
	Unexplained gpu.Figure  `json:"unexplained"` // memory used beyond the listed processes and the GPU's baseline
	Processes   []Process   `json:"processes"`
	Unlisted    string      `json:"processes_unknown,omitempty"` // why the process list is missing or incomplete
	Jobs        []string    `json:"jobs"`                        // jobs that have it now
	Last        *LastSample `json:"last"`                        // null if no record of a hook has it
}

// Process is one process on a GPU.
type Process struct {
	finding.Process
	Memory   gpu.Figure `json:"memory"`
	BeganAt  time.Time  `json:"began_at,omitzero"`
	User     string     `json:"user,omitempty"`        // user name, if a job's record has it
	JobEnded time.Time  `json:"job_ended_at,omitzero"` // when its job ended
}

// LastSample is what the latest start or end of a job with this GPU found.
type LastSample struct {
	Job   string      `json:"job"`
	At    time.Time   `json:"at"`
	Codes []code.Code `json:"codes"` // empty if nothing was found that was not there before
}

// NewGPUs returns each GPU that the driver reports now, sorted by Slurm's index, then by bus ID.
func NewGPUs(s Scene) []GPUStatus {
	gpus := []GPUStatus{}
	for _, r := range s.Now.Readings {
		c := GPUStatus{GPU: GPU{s.index(r.Device.ID), r.Device}, Memory: r.Memory, Processes: s.listed(r),
			Unlisted: r.ProcessesUnknown, Jobs: s.jobs(r.Device), Last: s.lastSample(r.Device.ID)}
		bytes, unknown := finding.Unexplained(r, s.Limits, s.Baselines[r.Device.ID])
		c.Unexplained = gpu.Figure{Bytes: bytes, Unknown: cmp.Or(r.ProcessesUnknown, unknown)}
		gpus = append(gpus, c)
	}
	slices.SortStableFunc(gpus, func(a, b GPUStatus) int {
		return cmp.Or(cmp.Compare(a.order(), b.order()), cmp.Compare(a.BusID, b.BusID))
	})
	return cleaned(gpus)
}

func (c GPU) order() int {
	if c.Index == nil {
		return 1 << 20
	}
	return *c.Index
}

// listed returns the processes that the driver lists on a GPU, with what /proc and the records contain about them.
func (s Scene) listed(r gpu.Reading) []Process {
	out, boots := []Process{}, ledger.BootsOf(s.Runs)
	for _, listed := range r.Processes {
		who, known := s.Who[listed.PID]
		p := Process{Process: who, Memory: listed.Memory}
		if p.PID = listed.PID; !known {
			p.Why = "no one looked"
		}
		if p.Start > 0 {
			p.BeganAt = s.At(p.Start)
		}
		if p.seen() && p.UID == 0 {
			p.User = "root"
		}
		own := -1
		for i, r := range s.Runs {
			if p.seen() && r.Job.UID == p.UID && r.Job.User != "" {
				p.User = r.Job.User
			}
			if r.Owns(p.Cgroup) && (own < 0 ||
				boots.Time(r, r.Last()).After(boots.Time(s.Runs[own], s.Runs[own].Last()))) {
				own = i
			}
		}
		if own >= 0 && s.Runs[own].Epilog() != nil {
			p.JobEnded = s.Runs[own].Epilog().Wall
		}
		out = append(out, p)
	}
	return out
}

func (p Process) seen() bool { return !p.Gone && p.Why == "" }

func (s Scene) jobs(d gpu.Device) []string {
	jobs := []string{}
	for _, r := range s.Runs {
		if !r.Running(s.Runs) || r.Epoch.OtherBoot(s.Epoch) {
			continue
		}
		for _, a := range r.Devices {
			if a.Device.ID == d.ID || a.Device.Parent == d.ID && d.ID != "" {
				jobs = append(jobs, r.JobName())
			}
		}
	}
	slices.Sort(jobs)
	return slices.Compact(jobs)
}

// lastSample returns the newest recorded sample that a hook took of a GPU. Its findings are those that policy does not
// hide; if the GPU was not clean, all of them.
func (s Scene) lastSample(id gpu.ID) (newest *LastSample) {
	var last time.Time
	boots := ledger.BootsOf(s.Runs)
	for _, r := range s.Runs {
		for _, e := range r.Both() {
			at := boots.Time(r, *e)
			if _, ok := e.Snapshot.Reading(id); !ok || newest != nil && !at.After(last) {
				continue
			}
			last = at
			newest = &LastSample{Job: r.JobName(), At: e.Wall, Codes: []code.Code{}}
			for i, f := range e.Findings {
				if f.GPU == id && (e.Verdict.Tells(i) || e.Curves[id].State != settle.Clean) {
					newest.Codes = append(newest.Codes, f.Code)
				}
			}
			slices.Sort(newest.Codes)
			newest.Codes = slices.Compact(newest.Codes)
		}
	}
	return newest
}

func (s Scene) index(id gpu.ID) *int {
	for _, r := range ledger.Newest(s.Runs) {
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
	return strings.Join(slices.DeleteFunc([]string{string(c.ID), c.Name, c.Node()},
		func(s string) bool { return s == "" }), "  ")
}

func (c GPUStatus) rows(now time.Time) (rows []string) {
	processes := some(c.Processes, 8, "and %d more: bookend snapshot",
		func(p Process) string { return p.short(now, len(c.Processes) > 1) })
	if len(processes) == 0 {
		processes = []string{"-"}
	}
	state, used := c.state(), "unknown: "+c.Memory.Used.Unknown
	if state == stateUnexplained {
		state += " " + Figure(c.Unexplained)
	}
	if m := c.Memory; m.Used.Known() && m.Total.Known() {
		const gib = 1 << 30
		used = fmt.Sprintf("%.1f/%.1f GiB", float64(m.Used.Bytes)/gib, float64(m.Total.Bytes)/gib)
	} else if m.Used.Known() {
		used = Figure(m.Used)
	}
	first := row(c.number(), used, state, cmp.Or(strings.Join(c.Jobs, ","), "-"))
	for _, p := range processes {
		rows, first = append(rows, row(first, p)), row("", "", "", "")
	}
	return rows
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
	stray := func(p Process) bool { return p.Cgroup.Found() || p.Service == "" && p.seen() && p.UID != 0 }
	stay := func(c code.Code) bool { return c.Traits().Memory.Stays() }
	stays := c.Last != nil && slices.ContainsFunc(c.Last.Codes, stay)
	strays := len(c.Jobs) == 0 && slices.ContainsFunc(c.Processes, stray)
	unexplained := c.Unexplained.Known() && c.Unexplained.Bytes >= finding.WorthTelling
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
	text, facts := fmt.Sprint(p.PID), []string{}
	if p.Gone {
		text += " gone"
	} else if p.Name != "" {
		text += " " + p.Name
	}
	if p.seen() {
		facts = append(facts, owner(p.User, p.UID))
	}
	for _, of := range [][2]string{{"job ", p.Cgroup.Name()}, {"", p.Service}, {"container ", p.Container}} {
		if of[1] != "" {
			facts = append(facts, of[0]+of[1])
		}
	}
	if !p.JobEnded.IsZero() {
		facts = append(facts, "ended "+day(p.JobEnded, now))
	}
	if p.Memory.Known() && several {
		facts = append(facts, Figure(p.Memory))
	}
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
func NewSnapshot(s Scene, problem string) Snapshot {
	d := Snapshot{Head: head(KindSnapshot), Release: s.Now.Driver.Version, GPUs: []GPUStatus{},
		Faults: append([]gpu.Fault{}, s.Now.Faults...), Problem: problem}
	if s.Now.At > 0 {
		d.At, d.GPUs = s.At(s.Now.At), NewGPUs(s)
	}
	return cleaned(d)
}

// Text writes one sample of the node's GPUs and their processes.
func (s Snapshot) Text(w io.Writer) {
	for _, c := range s.GPUs {
		m := c.Memory
		reserve := "" // neither used nor free: the driver reserves it on every GPU
		if m.Reserved.Known() && m.Reserved.Bytes > 0 {
			reserve = fmt.Sprintf(" (%s reserved by the driver itself)", Figure(m.Reserved))
		}
		fmt.Fprintf(w, "%s %s  %s  %s used, %s free of %s%s\n", c.BusID, cmp.Or(c.Node(), "(minor unknown)"), c.ID,
			Figure(m.Used), Figure(m.Free), Figure(m.Total), reserve)
		if c.Unlisted != "" {
			fmt.Fprintf(w, "  processes unknown: %s\n", c.Unlisted)
		}
		for _, p := range c.Processes {
			text := processText(p.Process, p.BeganAt)
			if p.Cgroup.Found() {
				text += fmt.Sprintf(", job %s by its cgroup", p.Cgroup.Name())
			} else if p.EnvJobID != 0 {
				text += fmt.Sprintf(", job %d by its environment (a hint)", p.EnvJobID)
			}
			fmt.Fprintf(w, "  %s  %s\n", Figure(p.Memory), text)
		}
	}
	for _, f := range s.Faults {
		fmt.Fprintf(w, "%s%s %s: %s\n", f.Device, f.BusID, f.Code, f.Detail)
	}
}
