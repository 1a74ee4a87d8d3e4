package joblog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"bookend/internal/slurm"
)

// MaxDrop is the size of the largest record, in bytes.
const MaxDrop = 4 << 10

const dropVersion = 1

// Drop is the record that a task hook, running as the user, leaves for the job's epilog. All of it is the
// user's claim: the target is opened as the user, the rest is for display.
type Drop struct {
	Target Target          // zero when the output is no file
	Array  slurm.ArrayTask // zero when the job is no array task
	HetID  slurm.JobID     // 0 when the job is not heterogeneous
	// AddressSpace is the soft limit of address space of the job's tasks, bytes; Unlimited for none, 0 where nobody
	// looked.
	AddressSpace uint64
}

// Unlimited is the AddressSpace of a job without such a limit. What is larger is none either: 4 EiB are more than any
// processor addresses.
const Unlimited = 1 << 62

// record is a Drop in its file.
type record struct {
	Bookend int             `json:"bookend"`
	Target  Target          `json:"target,omitzero"`
	Array   slurm.ArrayTask `json:"array,omitzero"`
	HetID   slurm.JobID     `json:"het_id,omitempty"`
	// AddressSpace is a pointer to tell a record that says 0, which no limit is, from one that does not say.
	AddressSpace *uint64 `json:"address_space,omitempty"`
}

// Encode returns the record's JSON, or an error when it would be larger than MaxDrop.
func (d Drop) Encode() ([]byte, error) {
	r := record{Bookend: dropVersion, Target: d.Target, Array: d.Array, HetID: d.HetID}
	if d.AddressSpace != 0 {
		r.AddressSpace = &d.AddressSpace
	}
	b, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode drop: %w", err)
	}
	if len(b) > MaxDrop {
		return nil, fmt.Errorf("encode drop: %d bytes", len(b))
	}
	return b, nil
}

// ParseDrop reads a record: one JSON object of version 1 without unknown keys, with an absolute path or none.
func ParseDrop(b []byte) (Drop, error) {
	if len(b) > MaxDrop {
		return Drop{}, fmt.Errorf("parse drop: %d bytes", len(b))
	}
	var r record
	decoder := json.NewDecoder(bytes.NewReader(b))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&r); err != nil {
		return Drop{}, fmt.Errorf("parse drop: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return Drop{}, errors.New("parse drop: more than one value")
	}
	if r.Bookend != dropVersion {
		return Drop{}, fmt.Errorf("parse drop: version %d", r.Bookend)
	}
	if r.Target != (Target{}) {
		if err := r.Target.check(); err != nil {
			return Drop{}, fmt.Errorf("parse drop: %w", err)
		}
	}
	if r.Array.Master == 0 && r.Array.Task != 0 {
		return Drop{}, errors.New("parse drop: array task without an array")
	}
	d := Drop{Target: r.Target, Array: r.Array, HetID: r.HetID}
	if r.AddressSpace != nil {
		if d.AddressSpace = *r.AddressSpace; d.AddressSpace == 0 || d.AddressSpace > Unlimited {
			return Drop{}, fmt.Errorf("parse drop: address space of %d bytes", d.AddressSpace)
		}
	}
	return d, nil
}
