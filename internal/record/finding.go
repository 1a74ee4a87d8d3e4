package record

import (
	"cmp"
	"fmt"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/gpu"
	"bookend/internal/slurm"
)

// Finding is one observation, or one question that could not be answered (Unknown is set).
type Finding struct {
	Code    catalog.Code `json:"code"`
	GPU     gpu.ID       `json:"gpu,omitempty"`     // empty: the driver, or Bookend itself
	Index   *int         `json:"index,omitempty"`   // Slurm's index of that GPU, for display
	Unknown string       `json:"unknown,omitempty"` // why the answer is neither yes nor no

	Bytes  gpu.Figure `json:"bytes,omitzero"`   // memory this finding is about
	Holder *Holder    `json:"holder,omitempty"` // the process it is about
	Owner  *Owner     `json:"owner,omitempty"`  // the job it is blamed on, with the level of evidence
	// Candidates are live processes that may hold it: for a process that is gone, those that have this very GPU open;
	// for memory without a process, those that have the driver open without a known reason. Searched is set if every
	// process of the node was examined for that.
	Candidates []Holder `json:"candidates,omitempty"`
	Searched   bool     `json:"searched,omitempty"`

	Xid      int    `json:"xid,omitempty"`       // number or code of the driver error it is about; 0 for none
	CausedBy int    `json:"caused_by,omitempty"` // number of the error that caused that one; 0 if none is known
	NoteOnly string `json:"note_only,omitempty"` // why no policy makes more of it than a note; empty if one may
	// Seen is when the recorder first saw that error (CLOCK_BOOTTIME); 0 if it did not.
	Seen time.Duration `json:"seen_ns,omitempty"`

	Ended Outcome `json:"ended,omitempty"` // what became of Holder if clean-up was to end it; empty if it was not

	// Repeated is set if the last other job on this GPU, or on the node if GPU is empty, ended with the same finding.
	Repeated bool `json:"repeated,omitempty"`

	Observed string `json:"observed,omitempty"` // may contain raw strings of the system: use safetext.Clean
	Expected string `json:"expected,omitempty"`

	// Earlier is set for a GPU's error from before the job, or in a health check one that is on record already.
	Earlier bool `json:"earlier,omitempty"`

	// Doubts are the reasons why this does not prove that the GPU is unusable. A drain requires that there are none.
	Doubts []string `json:"doubts,omitempty"`
}

// Holder is a process that holds a GPU's memory.
type Holder struct {
	Process
	Memory  gpu.Figure `json:"memory"` // unknown for a candidate: a descriptor proves no bytes
	Classes []Class    `json:"classes,omitempty"`
	Owner   *Owner     `json:"owner,omitempty"` // of a candidate; a holder's owner is that of its finding
	Open    []string   `json:"open,omitempty"`  // device nodes it has open, if that was read: "nvidia0"
}

// Saw returns a finding about no GPU in particular: what was observed and what was expected.
func Saw(c catalog.Code, observed, expected string) Finding {
	return Finding{Code: c, Observed: observed, Expected: expected}
}

// Unsure returns a question about no GPU in particular that could not be answered, and why.
func Unsure(c catalog.Code, why string) Finding { return Finding{Code: c, Unknown: why} }

func FromFault(f gpu.Fault) Finding {
	codes := map[gpu.FaultCode]catalog.Code{
		gpu.FaultNoDriver: catalog.NoDriver, gpu.FaultNoLibrary: catalog.NoDriver,
		gpu.FaultMismatch: catalog.Mismatch, gpu.FaultNoDevice: catalog.Missing,
		gpu.FaultLost: catalog.Lost, gpu.FaultReset: catalog.Lost, gpu.FaultNoSymbol: catalog.Old,
	}
	otherwise, at := catalog.DriverKO, ""
	if f.Device != "" || f.BusID != "" {
		otherwise = catalog.NoAnswer
	}
	if f.BusID != "" {
		at = fmt.Sprintf("GPU at %s: ", f.BusID)
	}
	found := Finding{Code: cmp.Or(codes[f.Code], otherwise), GPU: f.Device, Observed: at + f.Detail,
		Expected: "the driver answers for this GPU"}
	switch f.Code {
	case gpu.FaultNoLibrary:
		found.AddDoubt("the library may be elsewhere: nvidia.nvml_library")
	case gpu.FaultForbidden:
		found.AddDoubt("the cause may be around the hook: library, permissions, device access (cgroup), host memory")
	}
	return found
}

// Unresolved returns findings for a job's unknown numbers and for those that match none of the driver's GPUs, of which
// it has so many. before are the job's GPUs by what the driver had earlier since the boot: such a GPU is gone.
func Unresolved(unknown string, missing []int, before []Assigned, have int) (found []Finding) {
	if unknown != "" {
		found = append(found, Unsure(catalog.Ambiguous, unknown))
	}
	for _, index := range missing {
		f := Finding{Code: catalog.Missing, Index: &index, Expected: "a GPU for every index that Slurm gives out",
			Observed: fmt.Sprintf("Slurm's GPU %d does not exist: the driver has %d", index, have)}
		for _, d := range before {
			if d.Index == index {
				f.GPU = d.Device.ID
				f.Observed += fmt.Sprintf("; earlier since the node booted it had GPU %s at %s", f.GPU, d.Device.BusID)
			}
		}
		if f.GPU == "" {
			f.AddDoubt("the numbering may be configured wrongly")
		}
		found = append(found, f)
	}
	return found
}

// DriverError returns what is known of the driver error that a finding is about, or of the one that caused it. It is
// false if the number is not known to this release.
func (f Finding) DriverError() (catalog.DriverError, bool) {
	return catalog.LookupXid(cmp.Or(f.CausedBy, f.Xid))
}

// Cause returns what caused the driver error that a finding is about: catalog.Unclear if that cannot be told.
func (f Finding) Cause() catalog.Cause {
	e, _ := f.DriverError()
	return e.Cause
}

func (f *Finding) AddDoubt(format string, args ...any) {
	f.Doubts = append(f.Doubts, fmt.Sprintf(format, args...))
}

// Owner is the job a finding is blamed on.
type Owner struct {
	Job   slurm.JobID `json:"job"`
	SLUID slurm.SLUID `json:"sluid,omitempty"`
	UID   uint32      `json:"uid"`
	Level Level       `json:"level"`
}

// JobName returns the job's id, its SLUID if that is all that its cgroup names, or "none".
func (o Owner) JobName() string { return cmp.Or(o.Slurm().Name(), "none") }

// Named reports whether the owner is a job. For a process that the recorder saw in no job's cgroup it is not.
func (o Owner) Named() bool { return o.Slurm().Found() }

// OnlyRecorded reports whether only the recorder saw this, between the job's two ends.
func (f Finding) OnlyRecorded() bool { return f.Owner != nil && f.Owner.Level == ByRecorder }

func (o Owner) Slurm() slurm.Owner { return slurm.Owner{ID: o.Job, SLUID: o.SLUID} }

// Outcome is what became of a process that clean-up was to end. The values are in records, so they must not change.
type Outcome string

const (
	AlreadyGone Outcome = "gone" // before any signal was sent
	ByTerm      Outcome = "sigterm"
	ByKill      Outcome = "sigkill"
	StillThere  Outcome = "still_there" // SIGKILL was sent: it hangs in the kernel
	Refused     Outcome = "refused"     // no signal was sent
)

// Signal names the signal that ended the process, as signal(7) does, empty if clean-up did not end it.
func (o Outcome) Signal() string { return map[Outcome]string{ByTerm: "SIGTERM", ByKill: "SIGKILL"}[o] }

func (o Outcome) Text() string {
	words := map[Outcome]string{
		ByTerm: "ended by SIGTERM", ByKill: "ended by SIGKILL", AlreadyGone: "already gone", StillThere: "still there",
	}
	return cmp.Or(words[o], string(o))
}

// WorthTelling is the default of thresholds.report, in bytes, for readers of records without the configuration.
const WorthTelling = 32 << 20

// WithoutProcess reports whether no live process is listed for the memory: any process may have held it.
func (f Finding) WithoutProcess() bool { return f.Code == catalog.Residue || f.Code == catalog.Phantom }

// Level is the evidence behind an attribution, strongest first.
type Level string

const (
	ByCgroup      Level = "cgroup"      // the process is in the job's cgroup
	BySighting    Level = "sighting"    // an earlier hook saw it there
	ByRecorder    Level = "recorded"    // the recorder saw it there, between a job's two ends
	ByExclusive   Level = "exclusive"   // it started between the job's two ends, same user, on a GPU given to it alone
	ByEnvironment Level = "environment" // its environment names the job: a hint
	NoEvidence    Level = "none"
)

// Certain reports whether a process was seen in its job's cgroup by a hook.
func (l Level) Certain() bool { return l == ByCgroup || l == BySighting }

func (l Level) Weaker(than Level) bool { return rank[l] < rank[than] }

var rank = map[Level]int{NoEvidence: 0, ByEnvironment: 1, ByExclusive: 2, BySighting: 3, ByRecorder: 3, ByCgroup: 4}
