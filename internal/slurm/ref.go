package slurm

import (
	"fmt"
	"strings"
)

// Ref is a job as people name it on a command line.
type Ref struct {
	Kind  RefKind
	ID    JobID  // the job; of RefArray and RefHet, the id before the sign
	SLUID SLUID  // RefRun
	Part  uint32 // RefArray: the task; RefHet: the component
}

// RefKind is the form of a Ref.
type RefKind string

// The forms.
const (
	RefJob   RefKind = "job"   // 1234
	RefArray RefKind = "array" // 1234_7
	RefHet   RefKind = "het"   // 1234+1
	RefRun   RefKind = "run"   // a SLUID
)

// ParseRef reads a job id, an array task, a component of a heterogeneous job or a SLUID.
func ParseRef(s string) (Ref, error) {
	if ValidSLUID(s) {
		return Ref{Kind: RefRun, SLUID: SLUID(s)}, nil
	}
	kind, number, part := RefJob, s, "0"
	if i := strings.IndexAny(s, "_+"); i >= 0 {
		kind, number, part = RefArray, s[:i], s[i+1:]
		if s[i] == '+' {
			kind = RefHet
		}
	}
	id, ok := ParseJobID(number)
	n, partOK := decimal(part)
	if !ok || !partOK {
		return Ref{}, fmt.Errorf("parse job %+q: want a job id (1234), an array task (1234_7), "+
			"a component (1234+1) or a SLUID", s[:min(len(s), 64)])
	}
	return Ref{Kind: kind, ID: id, Part: n}, nil
}

// String writes the reference as ParseRef reads it.
func (r Ref) String() string {
	switch r.Kind {
	case RefRun:
		return string(r.SLUID)
	case RefArray:
		return fmt.Sprintf("%d_%d", r.ID, r.Part)
	case RefHet:
		return fmt.Sprintf("%d+%d", r.ID, r.Part)
	default:
		return fmt.Sprint(r.ID)
	}
}
