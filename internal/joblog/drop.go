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
}

// record is a Drop in its file.
type record struct {
	Bookend int             `json:"bookend"`
	Target  Target          `json:"target,omitzero"`
	Array   slurm.ArrayTask `json:"array,omitzero"`
	HetID   slurm.JobID     `json:"het_id,omitempty"`
}

// Encode returns the record's JSON, or an error when it would be larger than MaxDrop.
func (d Drop) Encode() ([]byte, error) {
	b, err := json.Marshal(record{dropVersion, d.Target, d.Array, d.HetID})
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
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return Drop{}, fmt.Errorf("parse drop: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
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
	return Drop{r.Target, r.Array, r.HetID}, nil
}
