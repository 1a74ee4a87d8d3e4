package answer

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
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

// Baseline is one GPU's, as the record has it.
type Baseline struct {
	finding.Baseline
	Wall  *time.Time `json:"at"`    // null where it is of an earlier boot
	Holds bool       `json:"holds"` // false: of another epoch of the driver, it no longer counts
}

// NewBaselines is the document of a node in an epoch of the driver, on a host that was booted then.
func NewBaselines(node string, all map[gpu.ID]finding.Baseline, now gpu.Epoch, booted time.Time) Baselines {
	d := Baselines{Head: head(KindBaseline), Node: node, Cards: []Baseline{}}
	for _, id := range slices.Sorted(maps.Keys(all)) {
		b := Baseline{Baseline: all[id], Holds: all[id].Epoch.Same(now)}
		if b.Holds {
			b.Wall = moment(booted.Add(b.At))
		}
		d.Cards = append(d.Cards, b)
	}
	return cleaned(d)
}

// Text writes what is on record of each GPU.
func (d Baselines) Text(w io.Writer) {
	if len(d.Cards) == 0 {
		fmt.Fprintf(w, "no GPU of node %s carries anything without a job, as far as is on record\n", name(d.Node))
	}
	for _, b := range d.Cards {
		text := size(&b.Bytes) + " without a process, "
		switch {
		case b.Accepted:
			text += "accepted"
		case b.Holder != "":
			text += "held by " + name(b.Holder) + ", learned"
		default:
			text += "learned"
		}
		if b.Holds {
			text += " " + stamp(b.Wall)
		} else {
			text += " before the last driver reload or reboot: no longer counts"
		}
		fmt.Fprintf(w, "%s  %s\n", name(string(b.GPU)), text)
		for _, r := range b.Residents {
			fmt.Fprintf(w, "  PID %d (%s), %s\n", r.PID, name(r.Service), size(&r.Bytes))
		}
	}
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
	return Config{Head: head(KindConfig), Path: path, Lines: []CheckedLine{}}
}

// Text writes what was looked at, a line each, the verdict last.
func (c Config) Text(w io.Writer) {
	for _, l := range c.Lines {
		fmt.Fprintln(w, l.Text)
	}
	fmt.Fprintln(w, c.Verdict)
}

// OwnReport is what "bookend show" says to a user: their own job's report.
type OwnReport struct {
	Head
	Node  string   `json:"node"`
	Job   string   `json:"job"`
	Clean bool     `json:"clean"` // the GPUs were, when the job got them
	Start []string `json:"start"` // lines of the start report
	End   []string `json:"end"`   // and of the end report, or of what was seen so far
}

// NewOwnReport is its document.
func NewOwnReport(node, job string, clean bool, start, end string) OwnReport {
	lines := func(text string) []string {
		return slices.DeleteFunc(strings.Split(text, "\n"), func(l string) bool { return strings.TrimSpace(l) == "" })
	}
	return cleaned(OwnReport{Head: head(KindOwn), Node: node, Job: job, Clean: clean, Start: lines(start),
		End: lines(end)})
}

// Text writes what users may read of a job of theirs.
func (o OwnReport) Text(w io.Writer) {
	fmt.Fprintf(w, "%s on %s\n", inkOf(w).in(bold, "job "+name(o.Job)), name(o.Node))
	for _, part := range []struct {
		when  string
		lines []string
	}{{"at its start", o.Start}, {"at its end, or until now", o.End}} {
		if len(part.lines) == 0 {
			fmt.Fprintf(w, "%s: nothing to tell\n", part.when)
			continue
		}
		fmt.Fprintf(w, "%s:\n", part.when)
		for _, line := range part.lines {
			fmt.Fprintf(w, "  %s\n", cut(line))
		}
	}
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
