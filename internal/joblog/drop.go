package joblog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"bookend/internal/slurm"
)

// MaxDrop is the size of the largest record, in bytes.
const MaxDrop = 4 << 10

const dropVersion = 1

// MaxSteps is how many files of a job's steps a record holds.
const MaxSteps = 8

// MaxName is the length of the longest job name that a record holds, in bytes.
const MaxName = 256

// maxMore is the most files of steps that are counted.
const maxMore = 1 << 20

// Drop is the record that task hooks, running as the user, leave for the job's epilog. All of it is the user's claim:
// the targets are opened as the user, the rest is for display and to expand patterns.
type Drop struct {
	// Target is of the script's errors, or of all it writes; zero when that is no file.
	Target Target          `json:"target,omitzero"`
	Array  slurm.ArrayTask `json:"array,omitzero"`   // zero when the job is no array task
	HetID  slurm.JobID     `json:"het_id,omitempty"` // 0 when the job is not heterogeneous
	Name   string          `json:"name,omitempty"`   // of the job; empty where it is not known
	// Steps are the files that the job's steps write to, the most recent first, and More how many others there were.
	Steps []Target `json:"steps,omitempty"`
	More  int      `json:"more,omitempty"`
	// Elsewhere is set where a step's output goes to no file that could be told from its node: to srun's own
	// terminal, to a pipe, to one file a task that is not the one of the task's errors.
	Elsewhere bool `json:"elsewhere,omitempty"`
	// AddressSpace is the soft limit of address space of the job's tasks, bytes; Unlimited for none, 0 where nobody
	// looked.
	AddressSpace uint64 `json:"address_space,omitempty"`
}

// Note adds files of a step to the record: those noted before come after them, and the oldest are only counted.
func (d *Drop) Note(files []Target) {
	for _, t := range files {
		known := slices.IndexFunc(d.Steps, func(o Target) bool { return o.Path == t.Path })
		if known >= 0 {
			d.Steps = slices.Delete(d.Steps, known, known+1)
		}
		d.Steps = slices.Insert(d.Steps, 0, t)
	}
	if over := len(d.Steps) - MaxSteps; over > 0 {
		d.Steps, d.More = d.Steps[:MaxSteps], d.More+over
	}
}

// Unlimited is the AddressSpace of a job without such a limit. What is larger is none either: 4 EiB are more than any
// processor addresses.
const Unlimited = 1 << 62

// record is a Drop in its file.
type record struct {
	Bookend int `json:"bookend"`
	Drop
}

// Encode returns the record's JSON, with as many of the steps' files as fit into MaxDrop, or an error when it would be
// larger without them.
func (d Drop) Encode() ([]byte, error) {
	for {
		b, err := json.Marshal(record{dropVersion, d})
		if err == nil && len(b) <= MaxDrop {
			return b, nil
		}
		if len(d.Steps) == 0 {
			return nil, fmt.Errorf("encode drop: %d bytes: %v", len(b), err)
		}
		d.Steps, d.More = d.Steps[:len(d.Steps)-1], d.More+1
	}
}

// ParseDrop reads a record: one JSON object of version 1 without unknown keys, with absolute paths or none.
func ParseDrop(b []byte) (Drop, error) {
	d, err := parseDrop(b)
	if err != nil {
		return Drop{}, fmt.Errorf("parse drop: %w", err)
	}
	return d, nil
}

func parseDrop(b []byte) (Drop, error) {
	if len(b) > MaxDrop {
		return Drop{}, fmt.Errorf("%d bytes", len(b))
	}
	var r record
	decoder := json.NewDecoder(bytes.NewReader(b))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&r); err != nil {
		return Drop{}, err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return Drop{}, errors.New("more than one value")
	}
	if err := r.check(); err != nil {
		return Drop{}, err
	}
	return r.Drop, nil
}

// check refuses what Encode does not write.
func (r record) check() error {
	switch {
	case r.Bookend != dropVersion:
		return fmt.Errorf("version %d", r.Bookend)
	case r.Array.Master == 0 && r.Array.Task != 0:
		return errors.New("array task without an array")
	case len(r.Steps) > MaxSteps || r.More < 0 || r.More > maxMore:
		return fmt.Errorf("%d files of steps, and %d more", len(r.Steps), r.More)
	case len(r.Name) > MaxName:
		return fmt.Errorf("name of %d bytes", len(r.Name))
	case r.AddressSpace > Unlimited:
		return fmt.Errorf("address space of %d bytes", r.AddressSpace)
	}
	targets := r.Steps
	if r.Target != (Target{}) {
		targets = append([]Target{r.Target}, targets...)
	}
	for _, t := range targets {
		if err := t.check(); err != nil {
			return err
		}
	}
	return nil
}
