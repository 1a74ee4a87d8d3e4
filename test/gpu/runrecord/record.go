// Package runrecord holds what the GPU lane writes down: for each run of a scenario what was true, what Bookend said,
// and the evidence for both; and how long programs took. Files of it are committed, and the tables in docs/ are
// made from them and from nothing else.
package runrecord

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Version is the format of these files.
const Version = 1

// Machine is what was measured on.
type Machine struct {
	GPU     string `json:"gpu"` // model, as the driver names it
	GPUs    int    `json:"gpus"`
	Driver  string `json:"driver"`
	Kernel  string `json:"kernel"`
	System  string `json:"system"` // the distribution's name
	Slurm   string `json:"slurm"`
	Torch   string `json:"torch,omitempty"`
	Bookend string `json:"bookend"`
	Track   string `json:"track"`            // how Slurm tracks and fences jobs
	Orders  string `json:"orders,omitempty"` // whether PCI and minor order agree
	// Others had the driver open before anything ran: whoever they are, they may hold what no process is listed for.
	Others []string `json:"others,omitempty"`
}

// File is the outcome of one run of the lane.
type File struct {
	Version int       `json:"version"`
	Fake    bool      `json:"fake,omitempty"` // a rehearsal without a GPU: proves nothing and is never published
	Date    time.Time `json:"date"`
	Command string    `json:"command"`
	Machine Machine   `json:"machine"`
	// One of the two: runs of scenarios, or timings.
	Runs    []Run    `json:"runs,omitempty"`
	Timings *Timings `json:"timings,omitempty"`

	Path string `json:"-"` // where it was read
}

// Outcome is what became of a run.
type Outcome string

// The outcomes. Broken is the lane's own failure: the scene did not come about, so nothing was judged.
const (
	Right  Outcome = "right"
	Wrong  Outcome = "wrong"
	Broken Outcome = "broken"
)

// Run is one run of one scenario.
type Run struct {
	Scenario string  `json:"scenario"`
	Title    string  `json:"title"`
	Truth    string  `json:"truth"` // in words, as the scenario's code declares it
	Number   int     `json:"number"`
	Mode     string  `json:"mode"`
	Outcome  Outcome `json:"outcome"`
	Problem  string  `json:"problem,omitempty"` // of a broken run
	Seconds  float64 `json:"seconds"`
	// Settings are what was configured beside the shipped defaults and the mode.
	Settings string `json:"settings,omitempty"`
	// Control is what was switched off, in the words of Bookend's configuration, to see that the judge then calls
	// the run wrong. Empty for an ordinary run.
	Control string `json:"control,omitempty"`

	Holder       *Holder     `json:"holder,omitempty"` // who truly holds memory
	Others       []Holder    `json:"others,omitempty"` // who else belongs to the scene
	Jobs         []Job       `json:"jobs,omitempty"`
	Checks       []Check     `json:"checks"`
	HealthChecks []NodeCheck `json:"health_checks,omitempty"` // in order
	// test allocations that the lane itself asked the backend for
	Tests    []Test     `json:"tests,omitempty"`
	Evidence []Evidence `json:"evidence,omitempty"`
	Slurm    []string   `json:"slurm,omitempty"` // lines of slurmd's log about the node's hooks
}

// AsItShould reports an ordinary run that is right, or a control that the judge called wrong.
func (r Run) AsItShould() bool {
	return r.Outcome == map[bool]Outcome{true: Wrong, false: Right}[r.Control != ""]
}

// Check is one statement that a machine judged.
type Check struct {
	What  string `json:"what"`
	Want  string `json:"want"`
	Got   string `json:"got"`
	Right bool   `json:"right"`
}

// Holder is a process that holds memory, by its own account, by what started it and by nvidia-smi. Sizes are bytes.
type Holder struct {
	PID       int    `json:"pid"`
	UID       uint32 `json:"uid"`
	GPU       string `json:"gpu,omitempty"`
	Allocated uint64 `json:"allocated"` // what it asked for
	// what cuMemGetInfo told it is missing from the whole card, its context included
	Gone   uint64 `json:"gone,omitempty"`
	Held   uint64 `json:"held"` // what nvidia-smi says of it; of memory without a process, what was exported
	Cgroup string `json:"cgroup"`
	Role   string `json:"role,omitempty"` // its part in the scene, in a few words
	Proc   *Proc  `json:"proc,omitempty"`
}

// Proc is what /proc said of a process while it held memory, as the lane itself read it.
type Proc struct {
	Name    string   `json:"name"`
	State   string   `json:"state"`
	NSpid   string   `json:"nspid"` // its PID in each PID namespace, the host's first
	UID     string   `json:"uid"`
	Threads string   `json:"threads"`
	Exe     string   `json:"exe"`
	Cgroup  string   `json:"cgroup"`
	Open    []string `json:"open,omitempty"`    // device nodes of the driver: "fd 5 7 9 -> /dev/nvidia0", "map -> …"
	Problem string   `json:"problem,omitempty"` // what could not be read
}

// Job is a job and what Bookend recorded of it.
type Job struct {
	ID    int    `json:"id"`
	User  string `json:"user"` // "name(uid)"
	State string `json:"state"`
	Asked string `json:"asked,omitempty"` // its --gres
	GPUs  []GPU  `json:"gpus,omitempty"`  // as Bookend resolved them
	CUDA  []GPU  `json:"cuda,omitempty"`  // as the job itself saw them
	// Start and End are its ends, as Bookend has them on record.
	Start  json.RawMessage `json:"start,omitempty"`
	End    json.RawMessage `json:"end,omitempty"`
	Hooks  []Hook          `json:"hooks,omitempty"`
	Output string          `json:"output"` // the job's log as its user has it
}

// GPU is one card.
type GPU struct {
	Index int    `json:"index"`
	UUID  string `json:"uuid"`
}

// Hook is one line of Bookend's own log.
type Hook struct {
	Program string  `json:"program"`
	Message string  `json:"message"`
	Seconds float64 `json:"seconds"`
	Looks   int     `json:"looks"`
	JobLog  string  `json:"job_log,omitempty"`
}

// Evidence is what another program said at a moment, unchanged.
type Evidence struct {
	When    string `json:"when"`
	Command string `json:"command"`
	Output  string `json:"output"`
}

// Timings are wall times of whole programs, run in turn.
type Timings struct {
	GPUs     int      `json:"gpus"`
	Rounds   int      `json:"rounds"`
	Idle     bool     `json:"idle"` // the cards were clean before and after
	Programs []Timing `json:"programs"`
	Pairs    []Pair   `json:"pairs,omitempty"`
}

// Timing is one program's.
type Timing struct {
	Name    string    `json:"name"`
	What    string    `json:"what"`
	Command string    `json:"command"`
	Millis  []float64 `json:"millis"` // in order of the rounds
}

// Median is the middle of the times, in milliseconds.
func (t Timing) Median() float64 {
	sorted := slices.Sorted(slices.Values(t.Millis))
	n := len(sorted)
	switch {
	case n == 0:
		return 0
	case n%2 == 1:
		return sorted[n/2]
	}
	return (sorted[n/2-1] + sorted[n/2]) / 2
}

// Suffix ends the name of a record: JSON, compressed.
const Suffix = ".json.gz"

// Write replaces a file as a whole, so that an interrupted run leaves the last whole one.
func (f File) Write(path string) error {
	var b bytes.Buffer
	packed, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return err
	}
	lines := json.NewEncoder(packed)
	lines.SetIndent("", " ")
	if err := errors.Join(lines.Encode(f), packed.Close()); err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", b.Bytes(), 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// Load reads every record below a folder, oldest first. A rehearsal's is an error: it must not be published.
func Load(folder string) ([]File, error) {
	paths, err := filepath.Glob(filepath.Join(folder, "*"+Suffix))
	if err != nil {
		return nil, err
	}
	var all []File
	for _, path := range paths {
		f, err := Read(path)
		if err = errors.Join(err, f.check()); err != nil {
			return nil, fmt.Errorf("read record %q: %w", path, err)
		}
		all = append(all, f)
	}
	slices.SortStableFunc(all, func(a, b File) int { return a.Date.Compare(b.Date) })
	return all, nil
}

// Read reads one record. What it says is not checked.
func Read(path string) (File, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return File{}, err
	}
	packed, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return File{}, err
	}
	f := File{Path: path}
	decoder := json.NewDecoder(packed)
	decoder.DisallowUnknownFields()
	return f, decoder.Decode(&f)
}

func (f File) check() error {
	switch {
	case f.Version != Version:
		return fmt.Errorf("version %d, not %d", f.Version, Version)
	case f.Fake:
		return errors.New("a rehearsal without a GPU")
	case f.Machine.GPUs < 1 || f.Machine.GPU == "" || f.Date.IsZero():
		return errors.New("no machine or date")
	case (len(f.Runs) == 0) == (f.Timings == nil):
		return errors.New("want runs or timings, one of them")
	}
	for _, r := range f.Runs {
		if want := r.Judge(); r.Outcome != want {
			return fmt.Errorf("%s, run %d, is called %q, its checks say %q", r.Scenario, r.Number, r.Outcome, want)
		}
	}
	return nil
}

// Judge is the outcome that follows from the checks.
func (r Run) Judge() Outcome {
	switch {
	case r.Problem != "" || len(r.Checks) == 0:
		return Broken
	case slices.ContainsFunc(r.Checks, func(c Check) bool { return !c.Right }):
		return Wrong
	}
	return Right
}
