package wire

import (
	"time"

	"bookend/internal/gpu"
)

// Limits on values; what lies beyond cannot have come from a working backend or hook.
const (
	maxDevices   = 512     // 32 GPUs cut into 7 MIG instances each, doubled
	maxProcesses = 8 << 10 // of a device; NVIDIA's driver lists at most 950
	maxID        = 128     // bytes; NVIDIA's longest has 80
	maxText      = 4 << 10 // bytes of a name or an error text
	maxPID       = 1 << 22 // the kernel's PID_MAX_LIMIT
	maxBytes     = 1 << 52 // 4 PiB of memory
	maxTime      = 10 * time.Minute
)

func validateRequest(r Request) *Error {
	switch {
	case r.Op != Snapshot && r.Op != Watch && r.Op != Probe:
		return garbage("unknown op %q", r.Op)
	case r.DeadlineMillis <= 0 || r.DeadlineMillis > maxTime.Milliseconds():
		return garbage("deadline of %d ms", r.DeadlineMillis)
	case r.Watch.Max < 0 || r.Watch.Max > maxTime || r.Watch.Flat < 0 || r.Watch.Flat > maxTime:
		return garbage("watch of %v, flat after %v", r.Watch.Max, r.Watch.Flat)
	case len(r.Devices) > maxDevices:
		return garbage("%d devices", len(r.Devices))
	}
	if problem := validateRule(r.Probe); problem != nil {
		return problem
	}
	for _, d := range r.Devices {
		if d.ID == "" && d.BusID == "" {
			return garbage("a device without id and bus id")
		}
		if problem := validateDevice(d); problem != nil {
			return problem
		}
	}
	return nil
}

func validateReply(r Reply) *Error {
	switch {
	case r.Kind == "" || len(r.Kind) > maxID:
		return garbage("kind %.20q", r.Kind)
	case (r.Hello != nil) != (r.Kind == KindHello) && known(r.Kind),
		(r.Snapshot != nil) != hasSnapshot(r.Kind) && known(r.Kind),
		(r.Fault != nil) != (r.Kind == KindFault) && known(r.Kind),
		(r.Probe != nil) != (r.Kind == KindProbe) && known(r.Kind),
		len(r.Health) > 0 && r.Kind != KindHealth && known(r.Kind):
		return garbage("content does not fit kind %q", r.Kind)
	case r.Kind == KindHello && !short(r.Hello.Backend, r.Hello.Version):
		return garbage("hello is too long")
	case r.Kind == KindFault:
		return validateFault(*r.Fault)
	case r.Kind == KindHealth:
		return validateHealth(r.Health)
	case r.Kind == KindProbe:
		return validateProbe(*r.Probe)
	case hasSnapshot(r.Kind):
		return validateSnapshot(*r.Snapshot)
	}
	return nil
}

func hasSnapshot(k Kind) bool { return k == KindSnapshot || k == KindNeighbours }

func validateSnapshot(s gpu.Snapshot) *Error {
	switch {
	case s.At < 0:
		return garbage("look at %v since boot", s.At)
	case len(s.Readings) > maxDevices || len(s.Faults) > maxDevices:
		return garbage("%d readings, %d faults", len(s.Readings), len(s.Faults))
	case !short(s.Driver.Version, s.Driver.Library):
		return garbage("driver version is too long")
	}
	for _, f := range s.Faults {
		if problem := validateFault(f); problem != nil {
			return problem
		}
	}
	seen := map[gpu.ID]bool{}
	for _, r := range s.Readings {
		if r.Device.ID == "" || seen[r.Device.ID] {
			return garbage("device %q is nameless or listed twice", r.Device.ID)
		}
		seen[r.Device.ID] = true
		if problem := validateReading(r); problem != nil {
			return problem
		}
	}
	return nil
}

func validateReading(r gpu.Reading) *Error {
	if problem := validateDevice(r.Device); problem != nil {
		return problem
	}
	if !validFigures(r.Memory.Total, r.Memory.Reserved, r.Memory.Used, r.Memory.Free) ||
		!short(r.ProcessesUnknown, r.Memory.Unjudged) {
		return garbage("device %q: impossible memory or reason", r.Device.ID)
	}
	if len(r.Processes) > maxProcesses {
		return garbage("device %q: %d processes", r.Device.ID, len(r.Processes))
	}
	seen := map[int]bool{}
	for _, p := range r.Processes {
		if p.PID <= 0 || p.PID > maxPID || seen[p.PID] {
			return garbage("device %q: process %d is impossible or listed twice", r.Device.ID, p.PID)
		}
		seen[p.PID] = true
		if !validFigures(p.Memory) {
			return garbage("device %q: process %d: impossible memory", r.Device.ID, p.PID)
		}
	}
	return nil
}

func validateDevice(d gpu.Device) *Error {
	switch {
	case !validID(d.ID) || !validID(d.Parent):
		return garbage("device id %.200q", d.ID)
	case !validBusID(d.BusID):
		return garbage("bus id %.200q is not in normal form", d.BusID)
	case d.Minor != nil && *d.Minor < 0:
		return garbage("device %q: minor %d", d.ID, *d.Minor)
	case !short(d.Name, d.Vendor):
		return garbage("device %q: name is too long", d.ID)
	}
	return nil
}

func validateFault(f gpu.Fault) *Error {
	if f.Code == "" || !validID(gpu.ID(f.Code)) || !validID(f.Device) || !validBusID(f.BusID) || !short(f.Detail) {
		return garbage("fault %.20q of device %.200q", f.Code, f.Device)
	}
	return nil
}

// validID allows printable ASCII without blanks: ids become keys and parts of lines.
func validID(id gpu.ID) bool {
	for i := range len(id) {
		if id[i] <= ' ' || id[i] > '~' {
			return false
		}
	}
	return len(id) <= maxID
}

func validBusID(b gpu.BusID) bool {
	if b == "" {
		return true
	}
	normal, err := gpu.ParseBusID(string(b))
	return err == nil && normal == b
}

func validFigures(figures ...gpu.Figure) bool {
	for _, f := range figures {
		if f.Bytes > maxBytes || !short(f.Unknown) {
			return false
		}
	}
	return true
}

func short(texts ...string) bool {
	for _, t := range texts {
		if len(t) > maxText {
			return false
		}
	}
	return true
}
