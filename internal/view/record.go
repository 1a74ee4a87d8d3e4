package view

import (
	"fmt"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/gpu"
	"bookend/internal/record"
)

// RunRecord is what the hooks recorded at the start and the end of a run.
type RunRecord struct {
	Numbering record.Origin `json:"numbering"` // how the GPUs behind Slurm's numbers were found
	Start     *HookEnd      `json:"start"`     // null if no prolog ran, or its record was lost
	Ends      []HookEnd     `json:"ends"`      // one for each epilog; empty while the job runs
}

// HookEnd is what one hook found.
type HookEnd struct {
	At         time.Time         `json:"at"`
	Unseen     string            `json:"unseen,omitempty"` // why it is known to have ended although no epilog ran
	Verdict    Verdict           `json:"verdict"`
	StillBytes uint64            `json:"still_bytes"` // in use at the start and still, if nothing else was found
	GPUs       []GPUEnd          `json:"gpus"`        // those that were read
	Findings   []Finding         `json:"findings"`
	KernelLog  []string          `json:"kernel_log"` // what it had about GPUs and host memory since the start
	Outputs    []record.Output   `json:"outputs"`    // of the job, in which messages about memory were searched
	Messages   []Message         `json:"messages"`
	Diagnosis  *record.Diagnosis `json:"diagnosis"`          // null if no diagnosis was made
	LeftOut    map[string]int    `json:"left_out,omitempty"` // entries left out of the record, by list: docs/limits.md
}

// GPUEnd is one GPU at one end.
type GPUEnd struct {
	Index     int          `json:"index"`
	ID        gpu.ID       `json:"id"`
	Memory    gpu.Memory   `json:"memory"`
	Processes *int         `json:"processes"`      // how many the driver lists; null if unknown
	State     record.State `json:"state"`          // clean, flat, moving, unknown; empty if it was not watched
	Looks     int          `json:"looks"`          // samples taken until it settled
	Settled   float64      `json:"settle_seconds"` // to the first of the final equal samples
	Watched   float64      `json:"watch_seconds"`  // from the first sample to the last
	Test      *Test        `json:"test"`           // null if none is on record
	Health    []gpu.Fact   `json:"health"`
}

// Test is the test allocation of a GPU.
type Test struct {
	Result   gpu.ProbeResult `json:"result"` // ok, gap, blocked, broken, wrong, skipped
	Why      string          `json:"why,omitempty"`
	Free     gpu.Figure      `json:"free"`    // right before the test
	Largest  gpu.Figure      `json:"largest"` // the largest single block that could be allocated
	Attempts int             `json:"attempts"`
	At       time.Time       `json:"at,omitzero"` // a start may have the test of an earlier hook
	Took     float64         `json:"took_seconds"`
	Error    *gpu.CallError  `json:"error,omitempty"`
	Pattern  string          `json:"pattern,omitempty"` // what a test of the memory itself found, if one was made
}

// Message stands for all messages of one kind in a job's outputs.
type Message struct {
	Kind      record.MessageKind `json:"kind"`
	Framework record.Framework   `json:"framework,omitempty"`
	Program   record.Framework   `json:"program,omitempty"` // that the framework worked for
	Asked     gpu.Figure         `json:"asked"`             // the allocation that failed
	Line      string             `json:"line"`
	Count     int                `json:"count"`
	Output    int                `json:"output"` // which of the outputs has it
}

// Finding is one finding of an end, with what policy decided.
type Finding struct {
	record.Finding
	At         string         `json:"at"` // start, end
	Action     catalog.Action `json:"action"`
	Why        string         `json:"why,omitempty"`        // why the action is weaker than configured
	Holder     *Process       `json:"holder,omitempty"`     // the process that it is about
	Candidates []Process      `json:"candidates,omitempty"` // processes that may hold it
}

func newFindings(at string, e record.End) []Finding {
	all := []Finding{}
	for i, f := range e.Findings {
		judged := e.Verdict.Of(i)
		one := Finding{Finding: f, At: at, Action: judged.Action, Why: judged.Why}
		if f.Holder != nil {
			one.Holder = new(newHolder(*f.Holder, e))
		}
		for _, h := range f.Candidates {
			one.Candidates = append(one.Candidates, newHolder(h, e))
		}
		all = append(all, one)
	}
	return all
}

func newHolder(h record.Holder, e record.End) Process {
	p := newProcess(h.Process, h.Memory, e.Clock)
	p.Classes, p.Owner, p.Open = h.Classes, h.Owner, h.Open
	return p
}

func newRecord(r record.Run) RunRecord {
	out := RunRecord{Numbering: r.Numbering, Ends: []HookEnd{}}
	if r.Start != nil {
		out.Start = new(newEnd("start", r, *r.Start))
	}
	for _, e := range r.Ends {
		end := newEnd("end", r, e)
		end.StillBytes = r.StillThere(e)
		out.Ends = append(out.Ends, end)
	}
	return out
}

func newEnd(at string, r record.Run, e record.End) HookEnd {
	out := HookEnd{At: e.Wall, Unseen: e.Unseen, Verdict: *newVerdict(e), GPUs: []GPUEnd{},
		Findings: newFindings(at, e), KernelLog: kernelLog(e.Kernel), Outputs: e.Outputs, Diagnosis: e.Diagnosis,
		LeftOut: e.Rest, Messages: each(e.Messages, func(m record.Message) Message {
			return Message{m.Kind, m.Framework, m.Program, m.Asked, m.Line, m.Count, m.File}
		})}
	for _, d := range r.Devices {
		if reading, ok := e.Snapshot.Reading(d.Device.ID); ok {
			out.GPUs = append(out.GPUs, newGPUEnd(d.Index, reading, e))
		}
	}
	return out
}

func newGPUEnd(index int, r gpu.Reading, e record.End) GPUEnd {
	id, curve := r.Device.ID, e.Curves[r.Device.ID]
	out := GPUEnd{Index: index, ID: id, Memory: r.Memory, State: curve.State, Looks: curve.Looks,
		Settled: curve.Settled.Seconds(), Watched: curve.Span.Seconds(), Health: []gpu.Fact{}}
	if r.ProcessesUnknown == "" {
		out.Processes = new(len(r.Processes))
	}
	if t, ok := e.Probe(id); ok {
		out.Test = &Test{Result: t.Result, Why: t.Why, Free: t.Free, Largest: t.Largest, Attempts: t.Attempts,
			Took: t.Times.Total().Seconds(), Error: t.Error, Pattern: t.Pattern.Outcome()}
		if t.At > 0 {
			out.Test.At = e.Clock(t.At)
		}
	}
	for _, h := range e.Health {
		if h.Device == id {
			out.Health = append(out.Health, h.Facts...)
		}
	}
	return out
}

func kernelLog(k *gpu.KernelLog) []string {
	if k == nil {
		return []string{}
	}
	lines := []string{after("not read: ", k.Unknown)}
	if k.Lost {
		lines = append(lines, "part of it was overwritten before it was read")
	}
	for _, x := range k.Xids {
		text := ""
		if row, known := catalog.LookupXid(x.Code); known {
			text = ": " + row.Meaning
		}
		if pid := x.OwnerPID(); pid != 0 {
			text += fmt.Sprintf(", PID %d (%s)", pid, x.Name)
		}
		if x.More > 0 {
			text += fmt.Sprintf(", and %d like it before", x.More)
		}
		lines = append(lines, gpu.Error(x.Code)+after(" on ", string(x.BusID))+text+": "+x.Text)
	}
	for _, kill := range k.Kills {
		lines = append(lines, kill.Describe())
	}
	return given(append(lines, k.Mismatch)...)
}

// Recording is what the recorder sampled while the job ran: every maximum is a lower bound.
type Recording struct {
	Every   float64       `json:"every_seconds"`
	Samples int           `json:"samples"`
	Gaps    []Period      `json:"gaps"` // without a sample
	GPUs    []RecordedGPU `json:"gpus"`
}

// Period is a time without a sample.
type Period struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
}

// RecordedGPU is what was sampled of one GPU.
type RecordedGPU struct {
	Index     int                    `json:"index"`
	ID        gpu.ID                 `json:"id"`
	Peak      Most                   `json:"peak"`              // memory in use
	Own       Most                   `json:"own"`               // of the job's own processes together
	Unlisted  Most                   `json:"unlisted"`          // that no process accounts for
	Together  int                    `json:"processes_at_once"` // of the job, at most
	Busy      *int                   `json:"busy_percent"`      // mean; null if never reported
	Idle      float64                `json:"idle_seconds"`      // in which no kernel ran
	Unread    int                    `json:"unread_samples"`    // in which memory or processes could not be read
	Unused    bool                   `json:"unused"`            // nothing ran on it
	Processes []RecordedProcess      `json:"processes"`         // the largest
	More      int                    `json:"more_processes"`    // which the list does not have
	Faults    []record.RecordedFault `json:"faults,omitempty"`  // the GPU's errors
}

// Most is the most memory that was sampled, in bytes.
type Most struct {
	Bytes uint64    `json:"bytes"`
	At    time.Time `json:"at,omitzero"`
}

// RecordedProcess is a process that was sampled on a GPU.
type RecordedProcess struct {
	PID     int       `json:"pid"`
	Name    string    `json:"name,omitempty"`
	UID     uint32    `json:"uid"`
	Job     string    `json:"job,omitempty"` // in whose cgroup it was
	Own     bool      `json:"own"`           // that is this job
	Most    uint64    `json:"most_bytes"`
	FirstAt time.Time `json:"first_at"`
	LastAt  time.Time `json:"last_at"`
}

// newRecording returns what was recorded of a run, soFar while it has not ended; nil if nothing was.
func newRecording(r record.Run, soFar *record.Recording) *Recording {
	recording, until := r.RecordedUntil(soFar)
	if recording == nil {
		return nil
	}
	clock := r.First().Clock
	out := &Recording{Every: recording.Every.Seconds(), Samples: recording.Samples, GPUs: []RecordedGPU{},
		Gaps: each(recording.Gaps(r.First().At, until), func(s record.Span) Period {
			return Period{clock(s.From), clock(s.To)}
		})}
	for _, d := range r.Devices {
		for _, g := range recording.GPUs {
			if g.ID == d.Device.ID {
				out.GPUs = append(out.GPUs, newRecordedGPU(r, d.Index, g))
			}
		}
	}
	return out
}

func newRecordedGPU(r record.Run, index int, g record.GPURecording) RecordedGPU {
	clock := r.First().Clock
	most := func(m record.Most) Most {
		if m.At == 0 {
			return Most{Bytes: m.Bytes}
		}
		return Most{m.Bytes, clock(m.At)}
	}
	return RecordedGPU{Index: index, ID: g.ID, Peak: most(g.Peak), Own: most(g.Own), Unlisted: most(g.Unlisted),
		Together: g.Together, Busy: g.Busy.Mean(), Idle: g.Busy.Idle.Seconds(), Unread: g.Unread, Unused: g.Unused(),
		More: g.More, Faults: g.Faults,
		Processes: each(g.Processes, func(p record.RecordedProcess) RecordedProcess {
			return RecordedProcess{p.PID, p.Name, p.UID, p.Owner.Name(), r.Owns(p.Owner), p.Most, clock(p.First),
				clock(p.Last)}
		})}
}
