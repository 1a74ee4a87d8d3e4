package answer

import (
	"time"

	"bookend/internal/finding"
	"bookend/internal/gpu"
)

// Baselines is what "bookend baseline" says: what each GPU carries without any job.
type Baselines struct {
	Head
	Node  string     `json:"node"`
	Cards []Baseline `json:"gpus"`
}

// NewBaselines is the document of a node, without GPUs yet.
func NewBaselines(node string) Baselines {
	return Baselines{Head: head(KindBaseline), Node: text(node), Cards: []Baseline{}}
}

// Baseline is one GPU's.
type Baseline struct {
	UUID      string     `json:"uuid"`
	Bytes     uint64     `json:"bytes"`    // without a process
	Holder    string     `json:"holder"`   // who holds them, where learned
	Accepted  bool       `json:"accepted"` // by an admin; else learned
	At        *time.Time `json:"at"`       // null where it is of an earlier boot
	Holds     bool       `json:"holds"`    // false: of another epoch of the driver, it no longer counts
	Residents []Resident `json:"services"`
}

// NewBaseline is one GPU's in an epoch of the driver, on a host that was booted then.
func NewBaseline(b finding.Baseline, now gpu.Epoch, booted time.Time) Baseline {
	n := Baseline{UUID: text(string(b.GPU)), Bytes: b.Bytes, Accepted: b.Accepted, Holds: b.Epoch.Same(now),
		Residents: []Resident{}}
	if !b.Accepted {
		n.Holder = text(b.Holder)
	}
	if n.Holds {
		n.At = moment(booted.Add(b.At))
	}
	for _, r := range b.Residents {
		n.Residents = append(n.Residents, Resident{r.PID, text(r.Service), r.Bytes})
	}
	return n
}

// Resident is one service that is on the GPU.
type Resident struct {
	PID     int    `json:"pid"`
	Service string `json:"service"`
	Bytes   uint64 `json:"bytes"`
}

// Config is what "bookend config check" says.
type Config struct {
	Head
	Path    string        `json:"path"`
	Valid   bool          `json:"valid"`  // every key is known and sound, and root may trust the file
	Usable  bool          `json:"usable"` // and the hooks can do their work with it
	Verdict string        `json:"verdict"`
	Lines   []CheckedLine `json:"lines"`
}

// CheckedLine is one thing that was looked at.
type CheckedLine struct {
	Line int    `json:"line"` // of the file; 0 for none
	Text string `json:"text"`
}

// NewConfig is the document of a file, before anything was looked at.
func NewConfig(path string) Config {
	return Config{Head: head(KindConfig), Path: text(path), Lines: []CheckedLine{}}
}

// OwnReport is what "bookend show" says to a user: their own job's report.
type OwnReport struct {
	Head
	Node  string   `json:"node"`
	Job   string   `json:"job"`
	Clean bool     `json:"clean"` // the GPUs were, when the job got them
	Start []string `json:"start"` // lines of the start report
}

// NewOwnReport is its document.
func NewOwnReport(node, job string, clean bool, start []string) OwnReport {
	return OwnReport{Head: head(KindOwn), Node: text(node), Job: text(job), Clean: clean, Start: list(start)}
}

// Doctor is what "bookend doctor" says.
type Doctor struct {
	Head
	Results []Checked      `json:"results"`
	Counts  map[string]int `json:"counts"` // of results by level
}

// Checked is one thing that was looked at.
type Checked struct {
	Check string `json:"check"`         // its name, as in docs/doctor.md
	Level string `json:"level"`         // ok, warning, wrong, unknown
	Path  string `json:"path"`          // or what it is about, where that is no file
	Seen  string `json:"seen"`          // what there is
	Why   string `json:"why,omitempty"` // why it matters; where it is not well
	Fix   string `json:"fix,omitempty"` // a command, or what to change
}

// NewDoctor is the document of results, whose texts are printable ASCII.
func NewDoctor(results []Checked, counts map[string]int) Doctor {
	return Doctor{head(KindDoctor), list(results), counts}
}
