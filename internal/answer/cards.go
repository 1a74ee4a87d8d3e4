package answer

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/health"
	"bookend/internal/ledger"
	"bookend/internal/settle"
)

// Scene is what the state of the node's GPUs is made from.
type Scene struct {
	Now       gpu.Snapshot // without readings where the driver gave no answer
	Who       map[int]finding.Process
	At        func(time.Duration) time.Time // turns time since boot into a wall time
	Runs      []ledger.Run
	Epoch     gpu.Epoch                   // now's
	Baselines map[gpu.ID]finding.Baseline // that hold now
	Limits    finding.Limits
}

// NewCards is each GPU of the node: those that the driver shows now; where it shows none, those that runs of this
// epoch had. By Slurm's number, then by bus id.
func NewCards(s Scene) []CardStatus {
	cards := []CardStatus{}
	for _, r := range s.Now.Readings {
		c := CardStatus{Card: newCard(r.Device, s.index(r.Device.ID))}
		c.Memory = newMemory(r.Memory, &c.Unknown)
		s.balance(&c, r)
		s.add(&c, r.Device)
		cards = append(cards, c)
	}
	if len(cards) == 0 {
		cards = s.remembered()
	}
	slices.SortStableFunc(cards, func(a, b CardStatus) int {
		return cmp.Or(cmp.Compare(order(a), order(b)), cmp.Compare(a.BusID, b.BusID))
	})
	return cleaned(cards)
}

// last is behind all GPUs with a number.
const last = 1 << 20

func order(c CardStatus) int {
	if c.Index == nil {
		return last
	}
	return *c.Index
}

// balance adds whose the memory is.
func (s Scene) balance(c *CardStatus, r gpu.Reading) {
	c.Processes = listed(r, s.Who, s.At)
	for i := range c.Processes {
		s.people(&c.Processes[i])
	}
	if r.ProcessesUnknown != "" {
		c.Unknown.because("processes", r.ProcessesUnknown)
		c.Unknown.because("listed_bytes", r.ProcessesUnknown)
		c.Unknown.because("unexplained_bytes", r.ProcessesUnknown)
		return
	}
	listed := gpu.Bytes(0)
	for _, p := range r.Processes {
		if !p.Memory.Known() {
			listed = p.Memory
			break
		}
		listed.Bytes += p.Memory.Bytes
	}
	c.ListedBytes = c.Unknown.bytes("listed_bytes", listed)
	bytes, unknown := finding.Unexplained(r, s.Limits, s.Baselines[r.Device.ID])
	if unknown != "" {
		c.Unknown.because("unexplained_bytes", unknown)
		return
	}
	c.UnexplainedBytes = &bytes
}

// people adds what records know of a process's user and job.
func (s Scene) people(p *Process) {
	if p.UID != nil && *p.UID == 0 {
		p.User = "root"
	}
	for _, r := range s.Runs {
		if p.UID != nil && r.Job.UID == *p.UID && r.Job.User != "" {
			p.User = r.Job.User
		}
		own := p.Job != "" && (p.Job == fmt.Sprint(r.Job.ID) || p.Job == string(r.Job.SLUID))
		if end := r.Epilog(); own && end != nil {
			p.JobEnded = moment(end.Wall)
		}
	}
}

// add adds what records know of a GPU.
func (s Scene) add(c *CardStatus, d gpu.Device) {
	c.Jobs = s.jobs(d)
	c.Last = s.lastLook(d.ID)
	if c.Last == nil {
		c.Unknown.because("last", "no hook's look at it is on record")
	}
}

// jobs are those that have a GPU now, or a part of it.
func (s Scene) jobs(d gpu.Device) []string {
	jobs := []string{}
	for _, r := range s.Runs {
		if !r.Running(s.Runs) || r.Epoch != (gpu.Epoch{}) && r.Epoch.Changed(s.Epoch) {
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

// lastLook is the newest look of a hook's at a GPU that is on record.
func (s Scene) lastLook(id gpu.ID) *LastLook {
	var newest *LastLook
	var when time.Time
	for _, r := range s.Runs {
		for _, e := range r.Both() {
			reading, ok := e.Snapshot.Reading(id)
			if !ok || newest != nil && !e.Wall.After(when) {
				continue
			}
			when = e.Wall
			newest = &LastLook{Job: r.JobName(), At: moment(e.Wall), Codes: codesOn(id, e)}
			if reading.Memory.Used.Known() {
				newest.Used = &reading.Memory.Used.Bytes
			}
		}
	}
	return newest
}

// codesOn are the findings on a GPU that policy does not hide; a GPU that is not clean has one.
func codesOn(id gpu.ID, e ledger.End) []code.Code {
	codes := []code.Code{}
	for i, f := range e.Findings {
		if f.GPU == id && (e.Verdict.Tells(i) || e.Curves[id].State != settle.Clean) &&
			!slices.Contains(codes, f.Code) {
			codes = append(codes, f.Code)
		}
	}
	return codes
}

// index is Slurm's number of a GPU, from the newest record that has it.
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

// remembered are the GPUs that runs of this epoch had, where the driver shows none now.
func (s Scene) remembered() []CardStatus {
	cards, seen := []CardStatus{}, map[gpu.ID]bool{}
	for _, r := range ledger.Newest(s.Runs) {
		for _, a := range r.Devices {
			if a.Device.ID == "" || seen[a.Device.ID] || r.Epoch.Changed(s.Epoch) {
				continue
			}
			seen[a.Device.ID] = true
			c := CardStatus{Card: assigned(a), Processes: []Process{}}
			for _, field := range []string{"total_bytes", "reserved_bytes", "used_bytes", "free_bytes", "listed_bytes",
				"unexplained_bytes", "processes"} {
				c.Unknown.because(field, "the driver gave no answer")
			}
			s.add(&c, a.Device)
			cards = append(cards, c)
		}
	}
	return cards
}

// Card is what names a GPU.
type Card struct {
	Index *int   `json:"index"` // Slurm's number of it; null where no record has it
	UUID  string `json:"uuid"`  // empty where no GPU was found for Slurm's number
	BusID string `json:"bus_id"`
	Minor *int   `json:"minor"` // the number in the name of its device node; null where unknown
	Node  string `json:"node"`  // that name: nvidia0, renderD128; empty where unknown
	Name  string `json:"name"`  // the model; empty where unknown
}

func newCard(d gpu.Device, index *int) Card {
	return Card{Index: index, UUID: string(d.ID), BusID: string(d.BusID), Minor: d.Minor, Node: d.Node(), Name: d.Name}
}

func assigned(a ledger.Assigned) Card { return newCard(a.Device, &a.Index) }

// Memory is what one look said of a GPU's memory. Unknown of the object around it says why a figure is null.
type Memory struct {
	TotalBytes    *uint64 `json:"total_bytes"`
	ReservedBytes *uint64 `json:"reserved_bytes"` // kept by the driver itself
	UsedBytes     *uint64 `json:"used_bytes"`
	FreeBytes     *uint64 `json:"free_bytes"`
	// An old driver's used is never 0:
	UsedHasReserved bool   `json:"used_has_reserved"`  // it cannot tell the two apart
	Unjudged        string `json:"unjudged,omitempty"` // why used says nothing of what a job left behind
}

func newMemory(m gpu.Memory, u *Unknown) Memory {
	return Memory{
		UsedHasReserved: m.UsedHasReserved, Unjudged: m.Unjudged,
		TotalBytes: u.bytes("total_bytes", m.Total), ReservedBytes: u.bytes("reserved_bytes", m.Reserved),
		UsedBytes: u.bytes("used_bytes", m.Used), FreeBytes: u.bytes("free_bytes", m.Free),
	}
}

// Snapshot is what "bookend snapshot" says: what the driver answered just now.
type Snapshot struct {
	Head
	At      *time.Time  `json:"at"`
	Release string      `json:"driver_release"` // empty where the driver did not say
	Cards   []CardNow   `json:"gpus"`
	Faults  []gpu.Fault `json:"faults"`
	Tests   []LastTest  `json:"tests"`   // the last of each GPU on record; for root alone
	Problem string      `json:"problem"` // why the answer is not whole; empty where it is
}

// CardNow is one GPU as the driver shows it.
type CardNow struct {
	Card
	Memory
	Processes []Process `json:"processes"` // null where unknown
	Unknown   Unknown   `json:"unknown,omitempty"`
}

// Others is the PID that stands for a process which the reader is not to know more of than that it is there.
const Others = 0

// LastTest is the last test allocation on a GPU.
type LastTest struct {
	gpu.Probe
	Wall *time.Time `json:"at"`
	Void bool       `json:"void"` // the driver was reloaded or the node booted since, or no one can tell
}

// NewSnapshot is the document of one look, and of each GPU's last test on record; at turns time since boot into a wall
// time.
func NewSnapshot(s gpu.Snapshot, who map[int]finding.Process, at func(time.Duration) time.Time,
	tests map[gpu.ID]health.TestRecord, now gpu.Epoch) Snapshot {
	d := Snapshot{Head: head(KindSnapshot), Release: s.Driver.Version, Cards: []CardNow{}, Faults: list(s.Faults),
		Tests: []LastTest{}}
	if s.At > 0 {
		d.At = moment(at(s.At))
	}
	for _, r := range s.Readings {
		c := CardNow{Card: newCard(r.Device, nil)}
		c.Memory = newMemory(r.Memory, &c.Unknown)
		if c.Processes = listed(r, who, at); r.ProcessesUnknown != "" {
			c.Processes = nil
			c.Unknown.because("processes", r.ProcessesUnknown)
		}
		d.Cards = append(d.Cards, c)
	}
	for _, id := range slices.Sorted(maps.Keys(tests)) {
		r := tests[id]
		d.Tests = append(d.Tests, LastTest{Probe: r.Probe, Wall: moment(r.Wall), Void: !r.Epoch.Same(now)})
	}
	return cleaned(d)
}

// listed are the processes that the driver lists on a GPU, with what /proc said of them.
func listed(r gpu.Reading, who map[int]finding.Process, at func(time.Duration) time.Time) []Process {
	out := []Process{}
	for _, p := range r.Processes {
		owner, known := who[p.PID]
		owner.PID = p.PID
		if !known {
			owner.Why = "no one looked"
		}
		n := newProcess(owner, at)
		n.Bytes = n.Unknown.bytes("bytes", p.Memory)
		out = append(out, n)
	}
	return out
}

// Text writes one look at the node's GPUs and who is on them, and each GPU's last test on record.
func (s Snapshot) Text(w io.Writer) {
	for _, c := range s.Cards {
		fmt.Fprintf(w, "%s %s  %s  %s used, %s free of %s%s\n", c.BusID, cmp.Or(c.Node, "(minor unknown)"),
			name(c.UUID), size(c.UsedBytes), size(c.FreeBytes), size(c.TotalBytes), c.reserve())
		if why := c.Unknown["processes"]; why != "" {
			fmt.Fprintf(w, "  processes unknown: %s\n", cut(why))
		}
		for _, p := range c.Processes {
			text := p.text()
			switch {
			case p.PID == Others:
				text = "another user's process"
			case p.Job != "":
				text += fmt.Sprintf(", job %s by its cgroup", p.Job)
			case p.Hint != "":
				text += fmt.Sprintf(", job %s by its environment (a hint)", p.Hint)
			}
			fmt.Fprintf(w, "  %s  %s\n", size(p.Bytes), cut(text))
		}
	}
	for _, f := range s.Faults {
		fmt.Fprintf(w, "%s %s: %s\n", name(string(f.Device)+string(f.BusID)), f.Code, cut(f.Detail))
	}
	for _, t := range s.Tests {
		void := ""
		if t.Void { // it says nothing any more
			void = "; void: the driver was reloaded or the node booted since, or no one can tell"
		}
		fmt.Fprintf(w, "last test of %s, %s: %s%s\n", name(string(t.Device)), stamp(t.Wall), testText(t.Probe), void)
	}
}

// reserve is what is neither used nor free: the driver keeps it on every GPU, whoever uses it.
func (m Memory) reserve() string {
	switch {
	case m.UsedHasReserved:
		return " (used includes the driver's own reserve)"
	case m.ReservedBytes != nil && *m.ReservedBytes > 0:
		return fmt.Sprintf(" (%s reserved by the driver itself)", size(m.ReservedBytes))
	}
	return ""
}
