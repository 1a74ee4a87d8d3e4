package state

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"bookend/internal/attrib"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/policy"
	"bookend/internal/resolve"
	"bookend/internal/settle"
	"bookend/internal/slurm"
)

// Version is the format of a record. A record of another version is set aside like a damaged one.
const Version = 1

const (
	maxRecord    = 1 << 20 // bytes of one record
	maxEnds      = 4       // a second epilog is rare, a fifth is a mistake
	maxProcesses = 64      // a device, and an end, where a record would be too large
)

// Assigned is one device of a job: Slurm's index and the device behind it.
type Assigned = resolve.Assigned

// Run is one run of a job on this node: what its prolog and epilog saw.
type Run struct {
	Version int `json:"version"`
	// Key tells this run from others of the job id: see keyOf. Begin and Close set it where it is empty.
	Key      string     `json:"key"`
	Job      slurm.Job  `json:"job"`
	Display  Display    `json:"display,omitzero"`
	Epoch    gpu.Epoch  `json:"epoch"`
	Devices  []Assigned `json:"devices,omitempty"`
	Start    *End       `json:"start,omitempty"` // nil: no prolog, or a lost record
	Ends     []End      `json:"ends,omitempty"`  // one for each epilog; none while the run is open
	Archived bool       `json:"archived,omitempty"`
}

// Display is what only the job's task hook knows, for display: the user's claim.
type Display struct {
	Array slurm.ArrayTask `json:"array,omitzero"`
	HetID slurm.JobID     `json:"het_id,omitempty"`
}

// End is one of a run's two ends: its prolog's or epilog's look, and what was made of it.
type End struct {
	At        time.Duration           `json:"at_ns"` // CLOCK_BOOTTIME
	Wall      time.Time               `json:"wall"`  // for display
	Snapshot  gpu.Snapshot            `json:"snapshot"`
	Curves    map[gpu.ID]settle.Curve `json:"curves,omitempty"`
	Processes []attrib.Process        `json:"processes,omitempty"`
	Findings  []finding.Finding       `json:"findings,omitempty"`
	Report    string                  `json:"report,omitempty"` // as the user gets it
	Verdict   policy.Verdict          `json:"verdict"`
}

// Closed reports whether an epilog has run.
func (r Run) Closed() bool { return len(r.Ends) > 0 }

// Superseded reports that a run without an epilog is over all the same, and since when (CLOCK_BOOTTIME): its job
// id began anew among runs, the node's records of one epoch, and Slurm runs one job id once at a time.
func (r Run) Superseded(runs []Run) (at time.Duration, yes bool) {
	if r.Closed() {
		return 0, false
	}
	for _, o := range runs {
		if o.Job.ID == r.Job.ID && o.began() > r.began() && (!yes || o.began() < at) {
			at, yes = o.began(), true
		}
	}
	return at, yes
}

// Owner names the run's job as a cgroup does.
func (r Run) Owner() slurm.Owner { return slurm.Owner{ID: r.Job.ID, SLUID: r.Job.SLUID} }

// first is the earlier end on record, nil where there is none.
func (r Run) first() *End {
	if r.Start != nil || !r.Closed() {
		return r.Start
	}
	return &r.Ends[0]
}

// began orders the runs of one epoch.
func (r Run) began() time.Duration {
	if e := r.first(); e != nil {
		return e.At
	}
	return 0
}

// keyOf names a run by what Slurm tells runs of one job id apart with: the SLUID (25.11 and later), the start
// time (23.02 and later), and before that nothing: then by the time it was first seen.
func keyOf(r Run) string {
	if r.Job.SLUID != "" {
		return string(r.Job.SLUID)
	}
	if !r.Job.Start.IsZero() {
		return "t" + strconv.FormatInt(max(0, r.Job.Start.Unix()), 10)
	}
	if e := r.first(); e != nil {
		return "w" + strconv.FormatInt(max(0, e.Wall.UnixNano()), 10)
	}
	return "w0"
}

func validKey(s string) bool {
	if slurm.ValidSLUID(s) {
		return true
	}
	if len(s) < 2 || len(s) > 20 || s[0] != 't' && s[0] != 'w' {
		return false
	}
	for _, c := range []byte(s[1:]) {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}

// encode writes a record in the one form it has: equal runs give equal bytes. A run too large for a record loses
// processes beyond the first few, and says so.
func encode(r Run) ([]byte, error) {
	r.Version = Version
	r.Start, r.Ends = ordered(r.Start), slices.Clone(r.Ends)
	for i := range r.Ends {
		r.Ends[i] = *ordered(&r.Ends[i])
	}
	data, err := json.Marshal(r)
	if err == nil && len(data) >= maxRecord {
		r.Start = shortened(r.Start)
		for i := range r.Ends {
			r.Ends[i] = *shortened(&r.Ends[i])
		}
		data, err = json.Marshal(r)
	}
	if err == nil && len(data) >= maxRecord {
		err = fmt.Errorf("%d bytes", len(data))
	}
	if err != nil {
		return nil, fmt.Errorf("encode record of job %d: %w", r.Job.ID, err)
	}
	return append(data, '\n'), nil
}

func ordered(e *End) *End {
	if e == nil {
		return nil
	}
	o := *e
	o.Wall = o.Wall.UTC().Round(0)
	o.Processes = slices.Clone(o.Processes)
	slices.SortFunc(o.Processes, func(a, b attrib.Process) int { return cmp.Compare(a.PID, b.PID) })
	return &o
}

func shortened(e *End) *End {
	if e == nil {
		return nil
	}
	s := *e
	if len(s.Processes) > maxProcesses {
		s.Processes = s.Processes[:maxProcesses]
	}
	s.Snapshot.Readings = slices.Clone(s.Snapshot.Readings)
	for i := range s.Snapshot.Readings {
		reading := &s.Snapshot.Readings[i]
		if n := len(reading.Processes); n > maxProcesses {
			reading.Processes = reading.Processes[:maxProcesses]
			reading.ProcessesUnknown = fmt.Sprintf("%d processes, of which %d were recorded", n, maxProcesses)
		}
	}
	return &s
}

var errRecord = errors.New("not a whole record")

// decode reads a record that must be of this node, job id and key. It returns errRecord for anything else.
func decode(data []byte, node string, id slurm.JobID, key string) (Run, error) {
	var r Run
	if len(bytes.TrimSpace(data)) == 0 {
		return Run{}, fmt.Errorf("%w: empty", errRecord)
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return Run{}, fmt.Errorf("%w: %v", errRecord, err)
	}
	switch {
	case r.Version != Version:
		return Run{}, fmt.Errorf("%w: version %d, not %d", errRecord, r.Version, Version)
	case r.Job.Node != node || r.Job.ID != id || r.Key != key:
		return Run{}, fmt.Errorf("%w: of job %d, run %q on node %q", errRecord, r.Job.ID, r.Key, r.Job.Node)
	case r.Job.SLUID != "" && !slurm.ValidSLUID(string(r.Job.SLUID)) || !validKey(r.Key):
		return Run{}, fmt.Errorf("%w: SLUID %q, key %q", errRecord, r.Job.SLUID, r.Key)
	}
	return r, nil
}
