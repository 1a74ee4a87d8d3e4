package joblog

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"bookend/internal/record"
	"bookend/internal/slurm"
)

const (
	MaxDrop     = 4 << 10 // bytes in all
	MaxSteps    = 8       // files of a job's steps that are kept
	MaxName     = 256     // bytes of a job's name
	dropVersion = 1
)

// Drop is what task hooks leave for the epilog. All of it is the user's claim: targets are opened as the user.
type Drop struct {
	Bookend int `json:"bookend"` // format version; Encode sets it
	// Target is the file of the script's errors, or of all its output; zero if that is no file.
	Target Target          `json:"target,omitzero"`
	Array  slurm.ArrayTask `json:"array,omitzero"`   // zero if the job is not an array task
	HetID  slurm.JobID     `json:"het_id,omitempty"` // 0 if the job is not heterogeneous
	Name   string          `json:"name,omitempty"`   // of the job; empty if it is not known
	Steps  []Target        `json:"steps,omitempty"`  // the files that the job's steps write to, the most recent first
	// Elsewhere is set if a step's output goes to no file that its node can identify: to srun's own terminal, a pipe,
	// or one file per task other than that of the task's errors; or if there are more files than a record holds.
	Elsewhere bool `json:"elsewhere,omitempty"`
	// AddressSpace is the soft limit of the job's tasks in bytes; diagnosis.Unlimited if none, 0 if unknown.
	AddressSpace uint64 `json:"address_space,omitempty"`
}

// Note adds files of a step to the front of the record and removes the oldest if there are too many.
func (d *Drop) Note(files []Target) {
	for _, t := range files {
		known := slices.IndexFunc(d.Steps, func(o Target) bool { return o.Path == t.Path })
		if known >= 0 {
			d.Steps = slices.Delete(d.Steps, known, known+1)
		}
		d.Steps = slices.Insert(d.Steps, 0, t)
	}
	if len(d.Steps) > MaxSteps {
		d.Steps, d.Elsewhere = d.Steps[:MaxSteps], true
	}
}

// Encode returns the record's JSON, with as many of the steps' files as fit into MaxDrop, or an error if none would.
func (d Drop) Encode() ([]byte, error) {
	for {
		d.Bookend = dropVersion
		b, err := json.Marshal(d)
		if err == nil && len(b) <= MaxDrop {
			return b, nil
		}
		if len(d.Steps) == 0 {
			return nil, fmt.Errorf("encode drop: %d bytes: %v", len(b), err)
		}
		d.Steps, d.Elsewhere = d.Steps[:len(d.Steps)-1], true
	}
}

// ParseDrop reads a record of version 1, with absolute paths or none.
func ParseDrop(b []byte) (d Drop, err error) {
	if len(b) > MaxDrop {
		return d, fmt.Errorf("parse drop: %d bytes", len(b))
	}
	if err = json.Unmarshal(b, &d); err == nil {
		err = d.check()
	}
	if err != nil {
		return Drop{}, fmt.Errorf("parse drop: %w", err)
	}
	d.Bookend = 0
	return d, nil
}

// check refuses what Encode does not write.
func (d Drop) check() error {
	switch {
	case d.Bookend != dropVersion:
		return fmt.Errorf("version %d", d.Bookend)
	case d.Array.Master == 0 && d.Array.Task != 0:
		return errors.New("array task without an array")
	case len(d.Steps) > MaxSteps:
		return fmt.Errorf("%d files of steps", len(d.Steps))
	case len(d.Name) > MaxName:
		return fmt.Errorf("name of %d bytes", len(d.Name))
	case d.AddressSpace > record.Unlimited:
		return fmt.Errorf("address space of %d bytes", d.AddressSpace)
	}
	for i, t := range append([]Target{d.Target}, d.Steps...) {
		if err := t.check(); err != nil && (i > 0 || t != (Target{})) {
			return err
		}
	}
	return nil
}
