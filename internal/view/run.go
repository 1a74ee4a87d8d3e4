package view

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/gpu"
	"bookend/internal/record"
)

// RunSummary summarizes one run of a job.
type RunSummary struct {
	Job       string    `json:"job"` // as users write it: "42", "42_3", "42+1"
	JobID     uint32    `json:"job_id"`
	SLUID     string    `json:"sluid"` // the run's own ID, from Slurm 25.11 on
	User      string    `json:"user"`
	UID       uint32    `json:"uid"`
	Partition string    `json:"partition"`
	State     State     `json:"state"`
	BeganAt   time.Time `json:"began_at,omitzero"` // time of the prolog's sample; missing if there is none
	EndedAt   time.Time `json:"ended_at,omitzero"` // time of the epilog's sample; missing if there is none
	Unseen    string    `json:"unseen,omitempty"`  // why it is known to have ended although no epilog ran
	Seconds   *float64  `json:"duration_seconds"`  // null if one of the two is missing
	Exit      *int      `json:"exit_code"`         // of the job; null while it runs, or if Slurm does not report it
	Signal    *int      `json:"exit_signal"`       // signal that ended the job; 0 for none

	GPUs     []GPU     `json:"gpus"`
	Start    *Verdict  `json:"start"` // null if no prolog is recorded
	End      *Verdict  `json:"end"`   // of the last epilog; null if none is recorded
	Findings []Finding `json:"findings"`
	// StillBytes is memory in use at its start and still in use, if nothing else was found.
	StillBytes uint64 `json:"still_bytes"`

	Peak        gpu.Figure `json:"peak"`         // most memory of the job's own processes on one GPU
	BusyPercent *int       `json:"busy_percent"` // mean of its GPUs; null if not fully recorded or never reported
	IdleGPUs    []int      `json:"idle_gpus"`    // GPUs on which no process was recorded
	// OutOfMemory are the causes of a job whose output says that memory ran out.
	OutOfMemory []record.CauseName `json:"out_of_memory,omitempty"`
}

// Verdict is the outcome of a hook.
type Verdict struct {
	Action catalog.Action `json:"action"`         // ignore or empty: clean
	Exit   int            `json:"exit"`           // of the hook; above 0 it drained the node
	Code   catalog.Code   `json:"code,omitempty"` // the finding that decided
	Held   string         `json:"held,omitempty"` // why a drain was not carried out

	ByScontrol bool `json:"by_scontrol,omitempty"` // the hook itself exited 0
	// Untested says why a test allocation that was due was not made: such an end is not called clean.
	Untested string `json:"untested,omitempty"`
}

func newVerdict(e record.End) *Verdict {
	v := e.Verdict
	return &Verdict{v.Action, v.Exit, v.Code, v.Held, v.ByScontrol, gpu.Untested(e.Probes)}
}

// State is the state of a run.
type State string

// The states. A lost run had no epilog, but a later run or a health check shows that it has ended.
const (
	Running State = "running"
	Ended   State = "ended"
	Lost    State = "lost"
)

func newRuns(runs, all []record.Run) []RunSummary {
	return each(runs, func(r record.Run) RunSummary { return newRun(r, all) })
}

func newRun(r record.Run, all []record.Run) RunSummary {
	s := RunSummary{Job: r.JobName(), JobID: uint32(r.Job.ID), SLUID: string(r.Job.SLUID), User: r.Job.User,
		UID: r.Job.UID, Partition: r.Job.Partition, State: Lost, Findings: []Finding{}, IdleGPUs: []int{},
		GPUs: each(r.Devices, func(d record.Assigned) GPU { return GPU{&d.Index, d.Device} })}
	if e := r.Job.Exit; e.Known {
		s.Exit, s.Signal = new(e.Raw>>8), new(e.Raw&0x7f)
	}
	if r.Start != nil {
		s.BeganAt, s.Start = r.Start.Wall, newVerdict(*r.Start)
		s.Findings = newFindings("start", *r.Start)
	}
	for _, e := range r.Ends {
		s.Findings = append(s.Findings, newFindings("end", e)...)
	}
	end := r.Epilog()
	switch {
	case end != nil:
		s.State, s.EndedAt, s.End = Ended, end.Wall, newVerdict(r.Last())
		s.StillBytes, s.OutOfMemory = r.StillThere(r.Last()), end.Diagnosis.OutOfMemory()
	case r.Running(all):
		s.State = Running
	case r.Closed():
		s.Unseen = r.Last().Unseen
	}
	if end != nil && r.Start != nil {
		s.Seconds = new((end.Over() - r.Start.At).Round(time.Millisecond).Seconds())
	}
	s.addRecording(r)
	return s
}

// addRecording adds what the recorder saw of the GPUs, if it saw the whole run.
func (s *RunSummary) addRecording(r record.Run) {
	end := r.Epilog()
	if end == nil || end.Recording == nil {
		s.Peak = gpu.Unknown("nothing is on record of the time between its start and its end")
		return
	}
	if !end.Recording.Measures(r.First().At, end.Over()) {
		s.Peak = gpu.Unknown("it was not recorded all of the time")
		return
	}
	var busy record.Busy
	unattributed := false
	for _, g := range end.Recording.GPUs {
		s.Peak.Bytes = max(s.Peak.Bytes, g.Own.Bytes)
		busy.Samples, busy.Sum = busy.Samples+g.Busy.Samples, busy.Sum+g.Busy.Sum
		i := slices.IndexFunc(r.Devices, func(d record.Assigned) bool { return d.Device.ID == g.ID })
		unattributed = unattributed || g.Together == 0 && !g.Unused()
		if g.Unused() && i >= 0 {
			s.IdleGPUs = append(s.IdleGPUs, r.Devices[i].Index)
		}
	}
	if s.Peak.Bytes == 0 && unattributed {
		s.Peak = gpu.Unknown("whose the processes on its GPUs were is not known")
	}
	s.BusyPercent = busy.Mean()
}

// row is a run's line of "bookend history". A figure that is unknown is "-" there.
func (s RunSummary) row() string {
	ran, peak, busy := "?", "-", "-"
	if s.Seconds != nil {
		ran = (time.Duration(*s.Seconds) * time.Second).String()
	} else if s.State == Running {
		ran = "runs"
	}
	if s.Peak.Known() {
		peak = figure(s.Peak)
	}
	if s.BusyPercent != nil {
		busy = fmt.Sprintf("%d %%", *s.BusyPercent)
	}
	return row(stamp(cmp.Or(s.EndedAt, s.BeganAt)), s.Job, owner(s.User, s.UID), s.numbers(), ran, peak, busy,
		s.outcomes())
}

// name returns a job's name as users write it, with the ID in Slurm's logs if it differs: "1234_7 (1240)".
func (s RunSummary) name() string {
	if id := fmt.Sprint(s.JobID); s.Job != id {
		return s.Job + " (" + id + ")"
	}
	return s.Job
}

func owner(user string, uid uint32) string { return cmp.Or(user, fmt.Sprintf("uid %d", uid)) }

func (s RunSummary) numbers() string {
	return cmp.Or(strings.Join(each(s.GPUs, GPU.number), ","), "?")
}

func (s RunSummary) outcomes() string {
	var parts []string
	add := func(end, before string, v *Verdict) {
		if codes := s.codesAt(end); codes != "" {
			parts = append(parts, before+codes)
		}
		if v != nil && v.Exit != 0 {
			parts = append(parts, fmt.Sprintf("drained (%d)", v.Exit))
		} else if v != nil && v.Held != "" {
			parts = append(parts, fmt.Sprintf("would drain (%s)", v.Held))
		}
	}
	add("end", "", s.End)
	add("start", "at start ", s.Start)
	if s.State == Lost {
		parts = append(parts, "no end on record")
	} else if len(parts) == 0 && s.State == Ended {
		parts = append(parts, cmp.Or(s.End.Untested, "clean"))
	}
	if len(s.OutOfMemory) > 0 {
		parts = append(parts, "out of memory: "+join(s.OutOfMemory, ", "))
	}
	if len(s.IdleGPUs) > 0 {
		parts = append(parts, "never used: GPU "+strings.Join(each(s.IdleGPUs, strconv.Itoa), ","))
	}
	if s.Signal != nil && *s.Signal != 0 {
		parts = append(parts, fmt.Sprintf("job failed (signal %d)", *s.Signal))
	} else if s.Exit != nil && *s.Exit != 0 {
		parts = append(parts, fmt.Sprintf("job failed (exit %d)", *s.Exit))
	}
	return strings.Join(parts, "; ")
}

// codesAt lists the codes found at one end, without duplicates and those that policy ignores or only notes.
func (s RunSummary) codesAt(end string) string {
	var words []string
	listed := map[catalog.Code]bool{}
	for _, f := range s.Findings {
		if f.At != end || f.Action == catalog.ToIgnore || f.Action == catalog.ToNote || listed[f.Code] {
			continue
		}
		listed[f.Code] = true
		words = append(words, string(f.Code)+after(" ", amount(f.Bytes)))
	}
	return strings.Join(words, ", ")
}

// outcome describes a hook's verdict. A GPU that was dirty at the start and is unchanged is not called simply clean.
func outcome(v Verdict, still uint64) string {
	switch {
	case v.ByScontrol:
		return fmt.Sprintf("DRAIN for %s (by scontrol, exit 0)", v.Code)
	case v.Exit != 0:
		return fmt.Sprintf("DRAIN for %s (exit %d)", v.Code, v.Exit)
	case v.Held != "":
		return fmt.Sprintf("would drain for %s (%s)", v.Code, v.Held)
	case v.Code != "":
		return fmt.Sprintf("%s (%s)", v.Action, v.Code)
	case still > 0:
		return cmp.Or(v.Untested, "clean") + "; still there from before: " + gpu.Size(still)
	}
	return cmp.Or(v.Untested, "clean")
}
