package record

import (
	"fmt"
	"strings"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/gpu"
	"bookend/internal/slurm"
)

// Strike is one fault that speaks against a GPU itself, with all that was found of it.
type Strike struct {
	At    time.Time      `json:"at"`  // when it was first found
	Job   slurm.JobID    `json:"job"` // whose hook found it
	Codes []catalog.Code `json:"codes"`
	Xids  []int          `json:"xids,omitempty"`
}

// Struck is a GPU with strikes.
type Struck struct {
	Index   *int       `json:"index"` // Slurm's index; null if it is not certain
	Device  gpu.Device `json:"device"`
	Faults  []Strike   `json:"faults"`          // oldest first
	Hours   int        `json:"within_hours"`    // how far back they were counted
	Repeats bool       `json:"repeat_offender"` // it has as many as the configuration asks for
}

// Name returns Slurm's index of the GPU, or its UUID.
func (s Struck) Name() string {
	if s.Index != nil {
		return fmt.Sprint(*s.Index)
	}
	return string(s.Device.ID)
}

// Words returns the one line about a repeat offender, empty for another GPU.
func (s Struck) Words() string {
	if !s.Repeats {
		return ""
	}
	n, unit := s.Hours, "hours"
	if n >= 48 && n%24 == 0 {
		n, unit = n/24, "days"
	}
	const form = "GPU %s: %d faults in %d %s: repeat offender; bookend rma %[1]s"
	return fmt.Sprintf(form, s.Name(), len(s.Faults), n, unit)
}

// Words returns what was found, with its meaning and what NVIDIA asks for.
func (s Strike) Words() string {
	var words []string
	for _, n := range s.Xids {
		e, _ := catalog.LookupXid(n)
		words = append(words, fmt.Sprintf("%s (%s; NVIDIA asks: %s)", gpu.Error(n), e.Meaning, e.Asks))
	}
	for _, c := range s.Codes {
		if entry, _ := catalog.Lookup(c); c != catalog.Xid && c != catalog.XidFatal {
			words = append(words, fmt.Sprintf("%s (%s)", c, entry.Title))
		}
	}
	return strings.Join(words, ", ")
}
