package protocol

import (
	"slices"
	"strings"
	"time"

	"bookend/internal/gpu"
)

// Limits on values that a working backend or hook never exceeds. MaxReplyBytes bounds the rest.
const (
	maxID    = 128     // bytes; NVIDIA's longest has 80
	maxBytes = 1 << 52 // 4 PiB of memory
	maxTime  = 10 * time.Minute
)

func validateRequest(r Request) *Error {
	switch {
	case r.Op != Snapshot && r.Op != Watch && r.Op != Probe && r.Op != Record:
		return garbage("unknown op %q", r.Op)
	case r.DeadlineMillis <= 0 || r.DeadlineMillis > maxTime.Milliseconds():
		return garbage("deadline of %d ms", r.DeadlineMillis)
	}
	return nil
}

const kindOther Kind = "other"

// validateReply refuses a line without its content, or with impossible content. Content of other kinds is ignored.
func validateReply(r *Reply) *Error {
	var lacks bool
	switch r.Kind {
	case KindDone:
	case KindHello:
		lacks = r.Hello == nil
	case KindSnapshot:
		if lacks = r.Snapshot == nil; !lacks {
			return validateSnapshot(*r.Snapshot)
		}
	case KindFault:
		if lacks = r.Fault == nil; !lacks {
			return validateFault(*r.Fault)
		}
	case KindHealth:
	case KindProbe:
		lacks = r.Probe == nil
	case "":
		lacks = true
	default:
		r.Kind = kindOther
	}
	if lacks {
		return garbage("a line of kind %.20q lacks its content", r.Kind)
	}
	return nil
}

func validateSnapshot(s gpu.Snapshot) *Error {
	for _, f := range s.Faults {
		if problem := validateFault(f); problem != nil {
			return problem
		}
	}
	for _, e := range s.Events {
		if e.Device == "" || !validID(e.Device) || e.Code <= 0 || e.Code > gpu.EventRecovery {
			return garbage("event %d of device %.200q", e.Code, e.Device)
		}
	}
	seen := map[gpu.ID]bool{}
	for _, r := range s.Readings {
		d := r.Device
		if d.ID == "" || seen[d.ID] || !validID(d.ID) || !validID(d.Parent) || !validBusID(d.BusID) {
			return garbage("device id %.200q, bus id %.200q: nameless, listed twice or impossible", d.ID, d.BusID)
		}
		seen[d.ID] = true
		if problem := validateReading(r); problem != nil {
			return problem
		}
	}
	return nil
}

func validateReading(r gpu.Reading) *Error {
	if !validFigures(r.Memory.Total, r.Memory.Reserved, r.Memory.Used, r.Memory.Free) {
		return garbage("device %q: impossible memory", r.Device.ID)
	}
	seen := map[int]bool{}
	for _, p := range r.Processes {
		if p.PID <= 0 || p.PID > gpu.MaxPID || seen[p.PID] || !validFigures(p.Memory) {
			return garbage("device %q: process %d is impossible or listed twice", r.Device.ID, p.PID)
		}
		seen[p.PID] = true
	}
	return nil
}

func validateFault(f gpu.Fault) *Error {
	if f.Code == "" || !validID(gpu.ID(f.Code)) || !validID(f.Device) || !validBusID(f.BusID) {
		return garbage("fault %.20q of device %.200q", f.Code, f.Device)
	}
	return nil
}

// validID allows printable ASCII without blanks: ids become keys and parts of lines.
func validID(id gpu.ID) bool {
	unprintable := func(c rune) bool { return c <= ' ' || c > '~' }
	return len(id) <= maxID && !strings.ContainsFunc(string(id), unprintable)
}

func validBusID(b gpu.BusID) bool {
	if b == "" {
		return true
	}
	normal, err := gpu.ParseBusID(string(b))
	return err == nil && normal == b
}

func validFigures(figures ...gpu.Figure) bool {
	return !slices.ContainsFunc(figures, func(f gpu.Figure) bool { return f.Bytes > maxBytes })
}
